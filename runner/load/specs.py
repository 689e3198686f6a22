"""Specs: run.yaml -> RunSpec and cluster.yaml -> ClusterSpec, with every path absolute and every default settled."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from runner.facts.contract import OWN_VARIABLES
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.load import fleet, metrics, pages, saves, stores
from runner.load.commands import check_rate, split_command, uses_placeholder
from runner.load.deadlines import check_deadline
from runner.load.documents import Document, parse, read_text
from runner.load.fields import build, check_fields, fields_of
from runner.load.problems import Problems, check_names, shown

_NAME = re.compile(r"[a-z0-9-]{1,40}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# Of cluster.yaml, which may be missing until they are made.
_CLUSTER_FILES = (
    "token_file",
    "web_viewer_token_file",
    "web_operator_token_file",
    "web_certificate_file",
    "web_key_file",
)
# Modules to preload; one imports its own dependencies, so few are ever named; chosen, not measured.
MAX_PRELOAD = 64
# What the built-in trainer's ranks import, in one module.
TRAINER_PRELOAD = ("stoker.trainer_preload",)
# Set for every rank by the contract of a rank: a file that sets them would be overruled without a word.
_OWN_VARIABLES = re.compile(OWN_VARIABLES)


def is_run_file(path: str | Path) -> bool:
    """Whether a file describes a run, not a cluster: it says what to run. Raises SpecError for what is no YAML."""
    plain = parse(read_text(Path(path)), str(path)).plain
    return isinstance(plain, dict) and ("command" in plain or "trainer" in plain)


def load_run(path: str | Path) -> RunSpec:
    """Read a run.yaml; raise SpecError that names every problem in it."""
    given = Path(path)
    return read_run(read_text(given), str(path), _folder_of(given))


def read_run(text: str, name: str, folder: Path) -> RunSpec:
    """Read the text of a run.yaml, called `name`, as if it were in `folder`; raise SpecError that names every problem in it."""
    document = parse(text, name)
    problems = Problems(document)
    plain = check_fields(RunSpec, document.plain, problems)
    _check_goal(plain, problems)
    _check_name(plain, problems)
    if "command" in plain:
        plain["command"] = split_command(plain["command"], problems)
    check_rate(plain, problems)
    plain["environment"] = _environment(plain.get("environment"), document, problems)
    plain["working_directory"] = _working_directory(plain, folder, problems)
    plain["python"] = _python(plain, folder, problems)
    plain["preload"] = _preload(plain, problems)
    if "planned" in plain:
        plain["planned"] = metrics.planned(plain["planned"], problems)
    if "metric_pattern" in plain:
        metrics.check_pattern(plain["metric_pattern"], problems)
    check_deadline(plain.get("deadline"), problems)
    plain["checkpoints"] = _folder_to_write(plain, "checkpoints", folder, problems)
    plain["saves"] = _folder_to_write(plain, "saves", folder, problems)
    saves.check(plain, problems)
    return build(RunSpec, plain, problems)


def load_cluster(path: str | Path, *, only_reads: bool = False) -> ClusterSpec:
    """Read a cluster.yaml; raise SpecError that names every problem in it.

    `only_reads`: for a command that orders nothing. Its checks and their limits are not compared with those that there are.
    """
    document, folder, problems = _open(path)
    plain = check_fields(ClusterSpec, document.plain, problems)
    _check_name(plain, problems)
    _check_times(plain, problems)
    if "domains" in plain:
        plain["domains"] = fleet.domains(plain["domains"], problems)
    if "checks" in plain:
        plain["checks"] = fleet.checks(plain["checks"], problems, only_reads=only_reads)
    if not only_reads:
        fleet.check_limits(plain.get("check_limits"), problems)
    if isinstance(plain.get("hardware"), dict):
        fleet.check_hardware(plain["hardware"], problems)
    if "store" in plain:
        plain["store"] = stores.store(plain["store"], folder, problems)
    if "pages" in plain:
        plain["pages"] = pages.pages(plain["pages"], folder, problems)
    if not plain.get("state") and isinstance(plain.get("name"), str):
        plain["state"] = f".stoker/{plain['name']}"
    plain["state"] = _folder_to_write(plain, "state", folder, problems)
    plain["journal_folder"] = _folder_to_write(plain, "journal_folder", folder, problems)
    if isinstance(plain.get("runbooks_folder"), str) and plain["runbooks_folder"]:
        plain["runbooks_folder"] = _absolute(plain["runbooks_folder"], folder)
    for name in _CLUSTER_FILES:
        if isinstance(plain.get(name), str) and plain[name]:
            plain[name] = _absolute(plain[name], folder)
    if bool(plain.get("web_certificate_file")) != bool(plain.get("web_key_file")):
        given, missing = "web_certificate_file", "web_key_file"
        given, missing = (given, missing) if plain.get(given) else (missing, given)
        problems.add((given,), f"given without {missing}; name both, or remove it")
    return build(ClusterSpec, plain, problems)


def _open(path: str | Path) -> tuple[Document, Path, Problems]:
    """Return the document, the absolute folder it lies in, and a place for its problems."""
    given = Path(path)
    document = parse(read_text(given), str(path))
    return document, _folder_of(given), Problems(document)


def _folder_of(path: Path) -> Path:
    return Path(os.path.abspath(path)).parent


def _check_name(plain: dict[str, Any], problems: Problems) -> None:
    name = plain.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        problems.add(
            ("name",), f"{shown(name)} is not valid; give 1 to 40 characters of a-z, 0-9 and -"
        )


def _check_goal(plain: dict[str, Any], problems: Problems) -> None:
    """Exactly one of command and trainer says what to run."""
    given = [name for name in ("command", "trainer") if name in plain]
    if len(given) == 2:
        problems.add(
            ("command",), "given together with trainer; a run has one of them, remove the other"
        )
    elif not given:
        problems.add((), "neither command nor trainer is given; say what to run with one of them")
    elif plain[given[0]] in ("", [], {}):
        problems.add((given[0],), f"{shown(plain[given[0]])} is empty; say what to run")


def _check_times(plain: dict[str, Any], problems: Problems) -> None:
    """Note times that contradict each other, defaults included, at the one that the file gives."""
    times = {field.name: field.default for field in fields_of(ClusterSpec)} | plain
    heartbeat, silence = times["heartbeat_seconds"], times["heartbeat_timeout_seconds"]
    if _numbers(heartbeat, silence) and silence <= 2 * heartbeat:
        timeout = "heartbeat_timeout_seconds"
        problems.add(
            (timeout if timeout in plain else "heartbeat_seconds",),
            f"silence after {silence} s with a heartbeat every {heartbeat} s would make a node silent after one lost "
            f"heartbeat; give heartbeat_timeout_seconds more than {2 * heartbeat}, or heartbeat_seconds less than {silence / 2}",
        )
    fence, cap = times["fence_seconds"], times["hard_cap_seconds"]
    if _numbers(fence, cap) and cap < fence:
        problems.add(
            ("hard_cap_seconds",) if "hard_cap_seconds" in plain else ("fence_seconds",),
            f"a hard cap of {cap} s would come before the fence of {fence} s; give hard_cap_seconds {fence} or more, "
            f"or fence_seconds {cap} or less",
        )


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _environment(given: Any, document: Document, problems: Problems) -> Any:
    """Return variables as the text the file has for them: `0010` stays `0010`, `1e-3` stays `1e-3`."""
    if not isinstance(given, dict):
        return {} if given is None else given
    variables: dict[str, Any] = {}
    for name, value in given.items():
        where = ("environment", name)
        if not _VARIABLE.fullmatch(name):
            problems.add(
                where, f"{shown(name)} is not the name of a variable; use letters, digits and _"
            )
        elif _OWN_VARIABLES.fullmatch(name):
            problems.add(where, f"{name} is set by Stoker for every rank; remove it here")
        if value is None and not problems.has(where):
            problems.add(where, 'the value is empty; write "" to mean an empty text')
        variables[name] = document.texts.get(where, value)
    return variables


def _absolute(path: str, folder: Path) -> str:
    """Resolve a path against the file's folder and `~`. Links stay links: a venv's python must keep its own path."""
    return os.path.abspath(folder / os.path.expanduser(path))


def _working_directory(plain: dict[str, Any], folder: Path, problems: Problems) -> Any:
    given = plain.get("working_directory", "")
    if not isinstance(given, str):
        return given
    path = _absolute(given, folder)
    if not os.path.isdir(path):
        problems.add(
            ("working_directory",),
            f"{shown(given)} is not a folder (resolved to {path}); make it, or name one that exists",
        )
    return path


def _python(plain: dict[str, Any], folder: Path, problems: Problems) -> Any:
    given = plain.get("python", "")
    if not isinstance(given, str):
        return given
    if not given and "trainer" in plain:
        return sys.executable
    name = given or "python3"
    named_by_path = "/" in name or name.startswith("~")
    path = _absolute(name, folder) if named_by_path else shutil.which(name)
    if path and os.path.isfile(path) and os.access(path, os.X_OK):
        return os.path.abspath(path)
    if given or uses_placeholder(plain.get("command"), "python"):
        looked = f"resolved to {path}" if named_by_path else "searched on PATH"
        problems.add(
            ("python",),
            f"{shown(name)} is not an executable program ({looked}); name an interpreter",
        )
    return ""


def _preload(plain: dict[str, Any], problems: Problems) -> Any:
    """Return the modules to preload as a list; the trainer brings its own unless the file gives some, or `[]` for none."""
    if "preload" not in plain:
        return list(TRAINER_PRELOAD) if "trainer" in plain else []
    given = plain["preload"]
    if isinstance(given, list) and len(given) > MAX_PRELOAD:
        way_out = f"name {MAX_PRELOAD} or fewer; a module that imports the others will do"
        problems.add(("preload",), f"{len(given)} modules; {way_out}")
        return []
    wrong = (
        "not the name of a module; write it as `import` would, such as torch or torch.distributed, "
        "each as an item of a list"
    )
    return check_names(
        "preload", given, problems, lambda name: None if _MODULE.fullmatch(name) else wrong
    )


def _folder_to_write(plain: dict[str, Any], name: str, folder: Path, problems: Problems) -> Any:
    """Resolve a folder that Stoker or its ranks will write into; it may not exist yet, but must be possible to make."""
    given = plain.get(name, "")
    if not isinstance(given, str) or not given:
        return given
    path = _absolute(given, folder)
    if given.startswith("~") and os.path.expanduser(given) == given:
        problems.add((name,), f"{shown(given)} names no home folder known here; write the path out")
        return path
    existing = path
    while not os.path.lexists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        problems.add((name,), f"{shown(given)}: {existing} is not a folder; choose another path")
    elif not os.access(existing, os.W_OK | os.X_OK):
        problems.add(
            (name,),
            f"{shown(given)}: {existing} cannot be written to; choose another path or allow it",
        )
    return path
