"""run.yaml, cluster.yaml and runbooks: what is accepted, what is refused, and with which errors."""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner.agent.launch.rank_commands import placeholders
from runner.errors import SpecError
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.placeholders import PLACEHOLDERS, remedy_values
from runner.facts.specs.run import RunSpec
from runner.facts.wire import decode, encode
from runner.load.fields import fields_of
from runner.load.reference_pages import CLUSTER_EXAMPLE, PAGES, RUN_EXAMPLE, TRAINER_EXAMPLE
from runner.load.runbooks import load_pages, load_runbooks
from runner.load.specs import load_cluster, load_run
from runner.supervisor.decisions import policy_of
from tests.plans import launch_plan

DOCS = Path(__file__).parents[2] / "docs"


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    """Write a file of settings and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run_problem(folder: Path, text: str) -> str:
    """Return the message with which a run.yaml is refused."""
    with pytest.raises(SpecError) as caught:
        load_run(write(folder, text))
    return str(caught.value)


def cluster_problem(folder: Path, text: str) -> str:
    """Return the message with which a cluster.yaml is refused."""
    with pytest.raises(SpecError) as caught:
        load_cluster(write(folder, text, "cluster.yaml"))
    return str(caught.value)


# What is accepted.


def test_a_run_of_five_lines_is_enough(tmp_path: Path) -> None:
    """A name, a command and a size make a run; everything else has a default that is settled on loading."""
    spec = load_run(write(tmp_path, RUN_EXAMPLE))
    assert spec.command == ("{python}", "train.py", "--resume={resume}")
    assert (spec.nodes, spec.ranks_per_node, spec.world_size) == (2, 4, 8)
    assert spec.working_directory == str(tmp_path)
    assert spec.checkpoints == str(tmp_path / "checkpoints")
    assert os.access(spec.python, os.X_OK)
    assert decode(encode(spec)) == spec


def test_the_trainer_runs_in_the_interpreter_of_stoker(tmp_path: Path) -> None:
    """A run of the built-in trainer uses this interpreter and leaves its checkpoint folder to the runner."""
    spec = load_run(write(tmp_path, TRAINER_EXAMPLE))
    assert spec.trainer == {"recipe": "tiny_cpu", "steps": 500}
    assert spec.python == sys.executable
    assert spec.checkpoints == ""


def test_a_command_may_be_a_list(tmp_path: Path) -> None:
    """A list is taken word for word: no splitting, double braces left for the agent to fill in."""
    spec = load_run(
        write(tmp_path, "name: a\ncommand: [bash, -c, 'exec ./go {rank} | tee {{x}}']\n")
    )
    assert spec.command == ("bash", "-c", "exec ./go {rank} | tee {{x}}")


def test_the_agent_fills_every_documented_placeholder(tmp_path: Path) -> None:
    """What the loader allows in braces is exactly what an agent fills in for a rank."""
    plan = launch_plan(node_rank=1, num_nodes=2)
    assert placeholders(plan, 3, "python3").keys() == PLACEHOLDERS.keys()


def test_modules_to_preload_are_a_list_or_one_name(tmp_path: Path) -> None:
    """A command has none unless it names some, whatever its program; the trainer has its own unless it names others, or []."""

    def preload(text: str) -> tuple[str, ...]:
        return load_run(write(tmp_path, text)).preload

    command, trainer = "name: a\ncommand: [/bin/true]\n", "name: a\ntrainer: {recipe: tiny_cpu}\n"
    assert preload(command) == ()
    assert preload(command + "preload: [torch, torch.distributed, _x.y1]\n") == (
        "torch",
        "torch.distributed",
        "_x.y1",
    )
    assert preload(command + "preload: torch\n") == ("torch",)
    assert preload(trainer) == ("stoker.trainer_preload",)
    assert preload(trainer + "preload: [numpy]\n") == ("numpy",)
    assert preload(trainer + "preload: []\n") == ()


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are resolved against the file's folder wherever Stoker is started, and a venv's python stays a link."""
    (tmp_path / "code").mkdir()
    (tmp_path / "python").symlink_to(sys.executable)
    write(tmp_path, "name: a\ncommand: x\nworking_directory: code\npython: ./python\n")
    monkeypatch.chdir("/")
    spec = load_run(tmp_path / "run.yaml")
    assert spec.working_directory == str(tmp_path / "code")
    assert spec.python == str(tmp_path / "python")


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading ~ is the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = load_run(write(tmp_path, "name: a\ncommand: x\ncheckpoints: ~/kept\n"))
    assert spec.checkpoints == str(tmp_path / "kept")


def test_variables_keep_the_text_of_the_file(tmp_path: Path) -> None:
    """Variables are text: leading zeros, exponents and truth values arrive as written."""
    spec = load_run(
        write(
            tmp_path,
            "name: a\ncommand: x\nenvironment: {A: 0010, B: 1e-3, C: true, D: '', E: yes, F: 'a b'}\n",
        )
    )
    assert spec.environment == {
        "A": "0010",
        "B": "1e-3",
        "C": "true",
        "D": "",
        "E": "yes",
        "F": "a b",
    }


def test_numbers_follow_yaml_1_2(tmp_path: Path) -> None:
    """An exponent without a dot is a number, a leading zero is decimal, and 1:30 or yes are text."""
    spec = load_run(
        write(tmp_path, "name: a\ntrainer: {lr: 1e-4, n: 010, h: 0x10, t: 1:30, y: yes, z: ~}\n")
    )
    assert spec.trainer == {"lr": 1e-4, "n": 10, "h": 16, "t": "1:30", "y": "yes", "z": None}


def test_a_cluster_has_its_state_beside_its_file(tmp_path: Path) -> None:
    """Without a state folder the cluster's is .stoker/<name> beside cluster.yaml."""
    spec = load_cluster(write(tmp_path, CLUSTER_EXAMPLE, "cluster.yaml"))
    assert spec == ClusterSpec(
        name="laptop",
        state=str(tmp_path / ".stoker/laptop"),
        local=LocalNodes(nodes=2, slots=2, spares=1),
    )
    assert decode(encode(spec)) == spec


def test_what_nodes_should_have_is_part_of_the_cluster(tmp_path: Path) -> None:
    """One path of storage may stand alone; a path that is not absolute is refused, since it is on the nodes."""
    text = "name: a\ncheck_level: quick\nhardware: {gpus: 8, storage: /data}\n"
    spec = load_cluster(write(tmp_path, text, "cluster.yaml"))
    assert spec.hardware.as_args() == {"gpus": 8, "storage": ["/data"]}
    with pytest.raises(SpecError, match=r"hardware.site_script: 'health.sh'.*absolute path"):
        load_cluster(
            write(tmp_path, "name: a\nhardware: {site_script: health.sh}\n", "cluster.yaml")
        )


# What is refused: the message names field, value and way out.

RUN = "name: a\ncommand: [x]\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (RUN + "comand: y\n", ["run.yaml:3: comand", "did you mean 'command'", "known: name"]),
        (RUN + "nodes: 0\n", ["run.yaml:3: nodes", "0 nodes", "give 1 or more"]),
        (RUN + "nodes: '2'\n", ["nodes: '2'", "whole number"]),
        (RUN + "nodes: 2.5\n", ["nodes: 2.5", "whole number"]),
        (RUN + "nodes: true\n", ["nodes: True", "whole number"]),
        (RUN + "nodes:\n", ["nodes", "whole number", "leave the field out"]),
        (RUN + "nodes: [1]\n", ["nodes: [1]", "whole number"]),
        (RUN + "start_seconds: -1\n", ["start_seconds", "-1 seconds", "0 or more"]),
        (RUN + "start_seconds: .nan\n", ["start_seconds", "'.nan'", "finite"]),
        (RUN + "start_seconds: soon\n", ["start_seconds: 'soon'", "number"]),
        (RUN + "start_seconds: 1e300\n", ["start_seconds", "31622400 or less"]),
        (RUN + "output_limit_bytes: 10\n", ["output_limit_bytes", "4096 or more"]),
        (RUN + "environment: [A]\n", ["environment: ['A']", "fields and their values"]),
        (RUN + "environment: {A: [1]}\n", ["environment.A: [1]", "text"]),
        (RUN + "environment: {A: }\n", ["environment.A", 'write ""']),
        (RUN + "environment: {RANK: 1}\n", ["environment.RANK", "set by Stoker"]),
        (RUN + "environment: {STOKER_X: 1}\n", ["environment.STOKER_X", "set by Stoker"]),
        (RUN + "environment: {A=B: 1}\n", ["'A=B'", "letters, digits"]),
        (RUN + "working_directory: nowhere\n", ["working_directory: 'nowhere'", "make it"]),
        (RUN + "python: no-such-python\n", ["python: 'no-such-python'", "PATH"]),
        (RUN + "python: ./run.yaml\n", ["python: './run.yaml'", "name an interpreter"]),
        (RUN + "preload: [torch, 'torch nn']\n", ["run.yaml:3: preload[1]: 'torch nn'", "such as"]),
        (RUN + "preload: torch, numpy\n", ["preload: 'torch, numpy'", "item of a list"]),
        (RUN + "preload: [a..b]\n", ["preload[0]: 'a..b'", "not the name of a module"]),
        (RUN + "preload: [.a]\n", ["preload[0]: '.a'", "not the name of a module"]),
        (RUN + "preload: ['']\n", ["preload[0]: ''", "not the name of a module"]),
        (RUN + "preload: [a/b.py]\n", ["preload[0]: 'a/b.py'", "not the name of a module"]),
        (RUN + "preload: [a, b, a]\n", ["preload[2]: 'a' is named twice", "remove one"]),
        (RUN + "preload: [1]\n", ["preload[0]: 1", "text"]),
        (RUN + "preload: {a: b}\n", ["preload: {'a': 'b'}", "list"]),
        (RUN + "preload:\n", ["preload", "list", "leave the field out"]),
        (
            RUN + f"preload: [{', '.join(f'm{i}' for i in range(65))}]\n",
            ["preload: 65 modules", "64 or fewer"],
        ),
        (RUN + "checkpoints: run.yaml\n", ["checkpoints: 'run.yaml'", "is not a folder"]),
        (RUN + "checkpoints: run.yaml/x\n", ["checkpoints: 'run.yaml/x'", "is not a folder"]),
        (RUN + "checkpoints: ~no-such-user/x\n", ["checkpoints", "write the path out"]),
        (RUN + "trainer: {recipe: a}\n", ["command", "together with trainer", "remove"]),
        ("name: a\n", ["run.yaml: neither command nor trainer"]),
        ("name: a\ncommand: []\n", ["run.yaml:2: command: [] is empty"]),
        ("name: a\ncommand: ''\n", ["command: '' is empty"]),
        ("name: a\ncommand: ['']\n", ["command[0]", "not a program"]),
        ("name: a\ncommand: [1]\n", ["command[0]: 1", "text"]),
        ("name: a\ncommand: 5\n", ["command: 5", "list"]),
        ("name: a\ncommand: {a: b}\n", ["command: {'a': 'b'}", "list"]),
        ("name: a\ntrainer: []\n", ["trainer: [] is empty"]),
        ("name: a\ntrainer: tiny\n", ["trainer: 'tiny'", "fields and their values"]),
        ("name: a\ncommand: x 'y\n", ["command", "No closing quotation", "close the quotes"]),
        ("name: a\ncommand: x | y\n", ["command: '|'", "needs a shell", "bash, -c"]),
        (
            "name: a\ncommand: [x, '{rnak}']\n",
            ["command[1]", "{rnak}", "did you mean 'rank'", "master_port", "{{ and }}"],
        ),
        ("name: a\ncommand: ['{rank!r}', '{}']\n", ["'{rank!r}'", "'{}'"]),
        ("name: a\ncommand: ['{']\n", ["lone '{'", "twice"]),
        ("name: a\ncommand: ['}']\n", ["lone '}'", "twice"]),
        ("name: A\ncommand: x\n", ["name: 'A'", "a-z"]),
        (f"name: {'a' * 41}\ncommand: x\n", ["name", "1 to 40"]),
        ("name: a/b\ncommand: x\n", ["name: 'a/b'"]),
        ("name: 7\ncommand: x\n", ["name: 7", "quotes"]),
        ("command: x\n", ["name: must be given"]),
        ("", ["run.yaml: empty; give name"]),
        ("# nothing\n", ["run.yaml: empty"]),
        ("- a\n", ["['a']", "give name"]),
        ("name: a\nname: b\ncommand: x\n", ["run.yaml:1: name", "given again in line 2"]),
        (
            "name: a\ntrainer:\n  model: {a: 1,\n    a: 2}\n",
            ["run.yaml:3: trainer.model.a", "again in line 4"],
        ),
        ("name: [a\n", ["run.yaml:2:1", "not YAML"]),
        ("name: a\n\tcommand: x\n", ["run.yaml:2:1", "not YAML"]),
        ("name: a\n---\nname: b\n", ["run.yaml:2:1", "not YAML"]),
        ("name: &n a\ncommand: *n\n", ["run.yaml:2:10", "alias", "write the value out"]),
        ("name: !!python/name:os.system a\ncommand: x\n", ["run.yaml:1: name", "tag"]),
        ("name: a\ncommand: !!set {x}\n", ["command", "tag"]),
        ("name: a\ncommand: x\n? [b]\n: c\n", ["key in line 3", "plain text"]),
        ('name: a\ncommand: "x\\0"\n', ["command", "NUL"]),
        ('name: a\ncommand: "\\ud800"\n', ["command", "surrogate"]),
        ("name: a\ncommand: !!int abc\n", ["command", "'abc' is not a valid int"]),
        ("name: a\ncommand: \x07\n", ["not YAML", "remove it"]),
    ],
)
def test_a_bad_run_is_refused_in_one_message(tmp_path: Path, text: str, parts: list[str]) -> None:
    """Each kind of bad input yields a message that names place, value and way out."""
    message = run_problem(tmp_path, text)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("local: {nodes: -1}\n", ["cluster.yaml:2: local.nodes", "-1 nodes", "0 or more"]),
        ("local: {spares: -1}\n", ["local.spares", "-1 nodes", "0 or more"]),
        ("local: {slotz: 1}\n", ["local.slotz", "did you mean 'slots'"]),
        ("local: 3\n", ["local", "got 3"]),
        ("metrics_port: 65536\n", ["metrics_port", "65535 or less"]),
        ("metrics_port: -1\n", ["metrics_port", "0 or more"]),
        ("web_port: 65536\n", ["web_port", "65535 or less"]),
        (
            "web_certificate_file: web.crt\n",
            ["web_certificate_file", "given without web_key_file; name both"],
        ),
        ("web_key_file: web.key\n", ["web_key_file", "given without web_certificate_file"]),
        ("fence_seconds: 0\n", ["fence_seconds", "more than 0"]),
        (
            "heartbeat_timeout_seconds: 2\n",
            ["cluster.yaml:2: heartbeat_timeout_seconds", "more than 2"],
        ),
        ("heartbeat_seconds: 3\n", ["cluster.yaml:2: heartbeat_seconds", "less than 2.5"]),
        ("hard_cap_seconds: 30\n", ["hard_cap_seconds", "60.0 or more"]),
        ("fence_seconds: 9000\n", ["fence_seconds", "3600.0 or less"]),
        ("state: cluster.yaml\n", ["state: 'cluster.yaml'", "is not a folder"]),
        ("stores: redis\n", ["stores", "unknown field"]),
    ],
)
def test_a_bad_cluster_is_refused_in_one_message(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    """Limits, contradictions between times and unknown fields of a cluster are refused."""
    message = cluster_problem(tmp_path, "name: c\n" + text)
    assert all(part in message for part in parts), message


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    """One message lists every problem, in the order of the file, so that one repair is enough."""
    message = run_problem(
        tmp_path, "nmae: a\nnodes: 0\nranks_per_node: many\nmode: x\nstart_seconds: -3\nname: B\n"
    )
    lines = [int(line) for line in re.findall(r"run\.yaml:(\d+):", message)]
    assert lines == sorted(lines) == [1, 2, 3, 4, 5, 6]
    assert "7 problems" in message, message


def test_a_flood_of_problems_is_cut(tmp_path: Path) -> None:
    """A file with thousands of problems still gives a short message."""
    message = run_problem(tmp_path, RUN + "".join(f"x{i}: 1\n" for i in range(5000)))
    assert "4970 more" in message
    assert len(message) < 20_000


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"name: \xff\n", "not UTF-8"),
        (b"a" * (1024 * 1024 + 1), "larger than"),
        (b"[" * 100_000, "YAML"),
        (b"name: a\ntrainer: " + b"{a: " * 60 + b"}" * 60, "deep"),
        (b"\xff\xfen\x00", "not UTF-8"),
    ],
)
def test_bytes_that_are_no_settings_are_refused(tmp_path: Path, data: bytes, part: str) -> None:
    """Binary data, huge files and bottomless nesting are refused like any other bad input."""
    path = tmp_path / "run.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError, match=part):
        load_run(path)


@pytest.mark.parametrize("name", ["missing.yaml", ".", "missing/run.yaml", "a" * 300, "nul\0"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    """A path that leads to no readable file is named together with the reason."""
    with pytest.raises(SpecError, match="cannot be read"):
        load_run(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    """Checkpoints that could never be written are refused before anything starts."""
    # Root may write everywhere, so a child without root loads the file, from a folder that it may not enter.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder, "closed")
        closed.mkdir(mode=0o500)
        path = write(Path(folder), RUN + "checkpoints: closed/kept\n")
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            message = b""
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                load_run(path)
            except SpecError as error:
                message = str(error).encode()
            finally:
                os.write(theirs, message)
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as answer:
            message_text = answer.read()
        os.waitpid(child, 0)
    assert "checkpoints: 'closed/kept'" in message_text
    assert "cannot be written to; choose another path" in message_text


# Any input at all.

_NAMES = st.sampled_from(
    [field.name for cls in (RunSpec, ClusterSpec, LocalNodes) for field in fields_of(cls)]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from([f"{{{name}}}" for name in PLACEHOLDERS] + ["a", "act", ".", "{{", "~"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_NAMES, st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=12,
)
_SPECS = st.dictionaries(_NAMES, _VALUES, max_size=8)


def _only_refusals(load: Any, path: Path) -> None:
    try:
        spec = load(path)
    except SpecError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert decode(encode(spec), limit_bytes=2**24) == spec
    assert not refusal or str(path) in refusal


@pytest.mark.costly
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plain=_SPECS)
def test_any_structure_is_loaded_or_refused(tmp_path: Path, plain: dict[str, Any]) -> None:
    """For any values of known fields, loading returns a spec that survives the wire or raises SpecError."""
    import yaml

    path = write(tmp_path, "")
    path.write_bytes(yaml.safe_dump(plain, encoding="utf-8", allow_unicode=False))
    _only_refusals(load_run, path)
    _only_refusals(load_cluster, path)


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.one_of(
        st.binary(max_size=60),
        st.text(alphabet=":-?[]{}&*!|>'\"%@`#, \n\tabnm0.1~<=_/\\xuU", max_size=60).map(str.encode),
    )
)
@example(data=b'"\\UFFFFFFFF"')
@example(data=b"a: " + b"9" * 5000)
@example(data=b"? ? ?")
@example(data=b"%YAML 9.9\n---\na")
@example(data=b"&a [*a]")
@example(data=b"!<> a")
@example(data=b"\xef\xbb\xbfname: a")
def test_any_bytes_are_loaded_or_refused(tmp_path: Path, data: bytes) -> None:
    """Arbitrary bytes in a file of settings never raise anything but SpecError."""
    path = tmp_path / "run.yaml"
    path.write_bytes(data)
    _only_refusals(load_run, path)
    _only_refusals(load_cluster, path)


# Runbooks.

PAGE = """\
---
name: rank_crash
title: A rank died
faults: [rank_crash]
ladder:
  - restart
  - do: swap
    tries: 2
    page: true
    when: {same_node: 1, probe: [agent_only, node_dead]}
  - stop
---
# Meaning
"""


def test_a_runbook_is_read_from_its_front_matter(tmp_path: Path) -> None:
    """The front matter becomes a ladder; a bare verb is a rung with its defaults; the prose is left alone."""
    write(tmp_path, PAGE, "rank_crash.md")
    runbook = load_runbooks(tmp_path)["rank_crash"]
    assert runbook.title == "A rank died"
    assert runbook.faults == ("rank_crash",)
    assert [(rung.do, rung.tries, rung.page) for rung in runbook.ladder] == [
        ("restart", 1, False),
        ("swap", 2, True),
        ("stop", 1, False),
    ]
    assert runbook.ladder[1].when == {"same_node": 1, "probe": ["agent_only", "node_dead"]}


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("name: rank_crash", "name: crash", ["rank_crash.md:2: name: 'crash'", "'rank_crash'"]),
        ("[rank_crash]", "[rank_crush]", ["faults[0]: 'rank_crush'", "'rank_crash'"]),
        ("[rank_crash]", "[]", ["faults: empty"]),
        ("- restart", "- reboot", ["rank_crash.md:6: ladder[0]", "'reboot'", "'restart'"]),
        ("- restart", "- watch", ["rank_crash.md:6: ladder[0]", "'rank_crash' has ended it"]),
        ("tries: 2", "tries: 0", ["ladder[1].tries", "give 1 or more"]),
        ("tries: 2", "tries: 200", ["ladder[1].tries: 200 tries", "100 or less"]),
        ("tries: 2", "tries: 99", ["rank_crash.md:5: ladder: the ladder has no end: 101 tries"]),
        ("  - stop\n", "", ["rank_crash.md:7: ladder[1]: the ladder has no end", "`- do: stop`"]),
        (
            "same_node: 1",
            "same_nod: 1",
            ["rank_crash.md:10: ladder[1].when.same_nod", "'same_node'"],
        ),
        ("same_node: 1", "same_node: 0", ["when.same_node: 0 is not valid", "whole number from 1"]),
        ("node_dead]", "dead]", ["when.probe", "one of agent_only, node_dead"]),
        (
            "page: true",
            "args: {often: 2}",
            ["rank_crash.md:9: ladder[1].args.often", "unknown args"],
        ),
        ("name: rank_crash", "name: rank_crash\nmode: never", ["mode: 'never'", "'advise'"]),
        ("tries: 2", "trys: 2", ["rank_crash.md:8: ladder[1].trys", "did you mean 'tries'"]),
        ("tries: 2", "tries: [", ["rank_crash.md:10:", "not YAML"]),
        ("---\n# Meaning", "# Meaning", ["no end"]),
        ("---\nname", "name", ["begins with a line '---'"]),
        ("title: A rank died\n", "", ["title: must be given"]),
    ],
)
def test_a_bad_runbook_is_refused(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    """A page that cannot be executed is refused with the line of the page."""
    assert old in PAGE
    write(tmp_path, PAGE.replace(old, new, 1), "rank_crash.md")
    with pytest.raises(SpecError) as caught:
        load_runbooks(tmp_path)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_fault_belongs_to_one_runbook(tmp_path: Path) -> None:
    """Two pages that claim the same fault are refused, since only one ladder can answer it."""
    write(tmp_path, PAGE, "rank_crash.md")
    write(tmp_path, PAGE.replace("name: rank_crash", "name: twin"), "twin.md")
    with pytest.raises(SpecError, match="'rank_crash' belongs to the page 'rank_crash' already"):
        load_runbooks(tmp_path)


def test_a_folder_without_runbooks_is_refused(tmp_path: Path) -> None:
    """A supervisor without a single ladder could answer nothing."""
    with pytest.raises(SpecError, match="no runbook"):
        load_runbooks(tmp_path)


SITE_PAGE = """\
---
name: hardware-sign
title: Hardware complains, at this site
faults: [gpu_ecc, gpu_lost, gpu_xid_other, nvlink_error, thermal_power]
ladder:
  - do: quarantine
    when: {gang_died: true, lasting_sign: true}
  - stop
---
# Hardware complains, at this site
"""


def test_a_site_page_replaces_ours_of_the_same_name(tmp_path: Path) -> None:
    """The other pages stay, and a site may add pages of its own that people follow by hand."""
    write(tmp_path, SITE_PAGE, "hardware-sign.md")
    write(tmp_path, "---\nname: power\ntitle: Power\nby_hand: true\n---\n# Power\n", "power.md")
    pages = load_pages(site=str(tmp_path))
    shipped = load_runbooks()
    found = load_runbooks(site=str(tmp_path))
    assert list(found) == list(shipped)
    assert [rung.do for rung in found["hardware-sign"].ladder] == ["quarantine", "stop"]
    assert {name for name in found if found[name] != shipped[name]} == {"hardware-sign"}
    assert pages["power"].runbook is None
    assert pages["hardware-sign"].file == str(tmp_path / "hardware-sign.md")


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("gpu_ecc, ", "", ["no page answers 'gpu_ecc' any more", "hardware-sign"]),
        ("gpu_ecc, ", "gpu_ecc, rank_crash, ", ["'rank_crash' belongs to the page"]),
        ("  - stop\n", "", ["hardware-sign.md:6: ladder[0]: the ladder has no end"]),
        ("lasting_sign: true", "lasting_sign: 3", ["hardware-sign.md:7:", "true or false"]),
    ],
)
def test_a_bad_site_page_is_refused(tmp_path: Path, old: str, new: str, parts: list[str]) -> None:
    """It is refused with its file and line, and no fault may be left without a page."""
    assert old in SITE_PAGE
    write(tmp_path, SITE_PAGE.replace(old, new, 1), "hardware-sign.md")
    with pytest.raises(SpecError) as caught:
        load_runbooks(site=str(tmp_path))
    assert all(part in str(caught.value) for part in parts), caught.value


def test_the_folder_of_a_sites_pages_is_relative_to_the_file(tmp_path: Path) -> None:
    """An empty folder is refused as any other that holds no page."""
    write(tmp_path, "name: c\nrunbooks_folder: pages\n", "cluster.yaml")
    cluster = load_cluster(tmp_path / "cluster.yaml")
    assert cluster.runbooks_folder == str(tmp_path / "pages")
    with pytest.raises(SpecError, match="no runbook"):
        policy_of(cluster)


# The pages of docs/.


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_documented_fields_are_those_of_the_code(name: str) -> None:
    """The committed page is what the specs print; `make docs` rewrites it."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()


@pytest.mark.parametrize("cls", [RunSpec, ClusterSpec, LocalNodes])
def test_every_field_is_documented(cls: type) -> None:
    """Each field of a spec is documented, and each number of seconds, bytes or nodes has its unit and least value."""
    for field in fields_of(cls):
        assert field.meaning, field.name
        if field.value_type in (int, float):
            assert field.limits.least is not None or field.limits.above is not None, field.name
            assert field.limits.most is not None, field.name
        if field.name.endswith("_seconds"):
            assert field.limits.unit == "seconds", field.name


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("command: train --lr {lr}", "`lr` is not given"),
        ("command: train --lr {lr} --f {lr_factor}\nlr: 1e-3", "would apply it twice"),
        ("command: train\nlr: 1e-3", "is used by nothing"),
        ("command: train --lr {lrr}\nlr: 1e-3", "did you mean 'lr'?"),
    ],
)
def test_placeholders_of_the_learning_rate_need_one_rate(
    tmp_path: Path, lines: str, words: str
) -> None:
    """A rate without a placeholder, a placeholder without a rate, and a factor twice are refused with the way out."""
    file = tmp_path / "run.yaml"
    file.write_text(f"name: a\n{lines}\n")
    with pytest.raises(SpecError) as caught:
        load_run(file)
    assert words in str(caught.value)


def test_placeholders_of_remedies_are_filled_in_at_each_launch() -> None:
    """The peak or rate times the factors, the factor alone, and the ranges; the hash of the spec stays that of the command."""
    remedies = {"lr_peak": 4e-4, "lr_factor": 0.5, "skip_steps": [[5, 6], [9, 9]]}
    assert remedy_values(remedies, lr=1e-3) == {
        "lr": "0.0002",
        "lr_factor": "0.5",
        "skip_steps": "5-6,9",
    }
    assert remedy_values({"lr": 4e-5}, lr=1e-3)["lr"] == "4e-05"
    assert remedy_values({}, lr=1e-3) == {"lr": "0.001", "lr_factor": "1", "skip_steps": ""}
