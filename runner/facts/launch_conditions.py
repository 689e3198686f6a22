"""What an attempt runs with: command, environment, code, packages, data. A run that is the same has the same ones in each attempt.

What is compared, and why no more:
- code: the commit, and the hash of the differences from it in files that git tracks; files that a run itself writes are untracked;
- packages and Python of the interpreter that the command names;
- environment: the agent's variables that steer what ranks compute (`is_compared`), not those of shells, sessions and hosts, nor
  those that name what a node has of its own (`is_of_node`). What run.yaml itself says is fixed for a run by its hash;
- data: the fingerprint that ranks report of what they train on.
What is not known on one of the two sides is no difference.

These are the four parts. Each has a digest, by which the nodes of a gang are compared with each other, and with what the run is
known to run with: thousands of nodes need not send the parts themselves.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import field
from msgspec.structs import replace

from runner.facts.wire import Value
from runner.facts.wording import printable

# In a journal entry. Chosen: some 30 KB at the most.
MAX_PACKAGES = 600
MAX_VARIABLES = 200
MAX_VALUE_CHARACTERS = 300
MAX_ARGUMENTS = 200
# Of one comparison; the rest is counted.
MAX_DIFFERENCES = 12
# Of a value in a difference.
MAX_SHOWN = 80
MAX_FINGERPRINT = 200
LEFT_OUT = "(secret, left out)"
PARTS = ("code", "packages", "variables", "data")
# Keys of `LaunchConditions.unknown`.
_UNKNOWN_PARTS = {"code": "code", "packages": "packages", "environment": "variables"}
# Hexadecimal digits of a digest: 64 bits. Chosen.
DIGEST_DIGITS = 16

_COMPARED = re.compile(
    r"(NCCL|TORCH|TORCHINDUCTOR|PYTORCH|CUBLAS|CUDNN|NVTE|NVIDIA_TF32|TRITON|XLA|OMP|MKL|OPENBLAS|DEEPSPEED|MEGATRON|FLASH)_.*"
    r"|CUDA_(DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|MODULE_LOADING)|PYTHON(PATH|HASHSEED|OPTIMIZE|NOUSERSITE)"
    r"|LD_(LIBRARY_PATH|PRELOAD)"
)
# Network interfaces and adapters, identities, topology, affinity and folders of caches: two healthy nodes may differ in them.
_OF_NODE = re.compile(
    r".*_(IFNAME|HCA|HOSTID|GID_INDEX|TOPO_FILE|DEBUG_FILE|CACHE_DIR|CACHE_DIRECTORY|EXTENSIONS_DIR|PLACES|AFFINITY)"
)
# Names, and options of commands, whose values are never written down, as a whole word between underscores or dashes.
_SECRET = re.compile(
    r"(^|[_-])(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIES?|DSN)($|[_-])",
    re.IGNORECASE,
)
# What stands before the host of an address.
_USER_INFO = re.compile(r"(://)[^/@\s]+@")


class LaunchConditions(Value):
    """What a node found beside a launch, bounded. None, "" or empty: not known, and why in `unknown` (part -> reason).

    `environment`: variables that are compared; `given`: those of run.yaml. `source_diff`: sha256 of the differences from
    `git_commit`, "" for none; the differences themselves are in source.diff in the attempt's folder. `data`: the fingerprint.
    `left_out`: parts that are not in here, since they are as the run is known to run with, or are reported apart.
    """

    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    git_commit: str = ""
    source_diff: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    left_out: tuple[str, ...] = ()


def is_compared(name: str) -> bool:
    """Whether a variable steers what ranks compute, so that another value makes another run."""
    return _COMPARED.fullmatch(name) is not None and not is_secret(name)


def is_of_node(name: str) -> bool:
    """Whether a variable names what a node has of its own: it is recorded, and never compared."""
    return _OF_NODE.fullmatch(name) is not None


def is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    return _SECRET.search(name) is not None


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables as they may be written down: sorted, bounded, secrets and passwords in addresses left out."""
    return {
        name: LEFT_OUT if is_secret(name) else masked(variables[name])
        for name in sorted(variables)[:MAX_VARIABLES]
    }


def masked(text: str) -> str:
    """Return a value as it may be written down."""
    return printable(_USER_INFO.sub(r"\1***@", text), MAX_VALUE_CHARACTERS)


def masked_arguments(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command as it may be written down: `--token x` and `--token=x` without the x."""
    shown, hides_next = list[str](), False
    for argument in argv[:MAX_ARGUMENTS]:
        option, equals, _ = argument.partition("=")
        if hides_next:
            shown.append(LEFT_OUT)
        elif equals and is_secret(option):
            shown.append(f"{option}={LEFT_OUT}")
        else:
            shown.append(masked(argument))
        hides_next = argument.startswith("-") and not equals and is_secret(option)
    return tuple(shown)


def of_data(fingerprint: str) -> LaunchConditions:
    """Return what a rank reports of its data, alone."""
    others = tuple(part for part in PARTS if part != "data")
    return LaunchConditions(data=fingerprint[:MAX_FINGERPRINT], left_out=others)


def known_parts(conditions: LaunchConditions) -> tuple[str, ...]:
    """Return the parts that are known."""
    has = {
        "code": bool(conditions.git_commit),
        "packages": bool(conditions.packages),
        "variables": "environment" not in conditions.unknown,
        "data": bool(conditions.data),
    }
    return tuple(part for part in PARTS if has[part] and part not in conditions.left_out)


def digests(conditions: LaunchConditions) -> dict[str, str]:
    """Return a short hash of each part that is known: what is not compared is not in it."""
    environment = {
        name: value for name, value in conditions.environment.items() if not is_of_node(name)
    }
    compared: dict[str, Any] = {
        "code": [conditions.git_commit, conditions.source_diff],
        "packages": [conditions.python, dict(conditions.packages)],
        "variables": environment,
        "data": conditions.data,
    }
    return {part: _digest(compared[part]) for part in known_parts(conditions)}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def summary(conditions: LaunchConditions) -> dict[str, str]:
    """Return what is known of each part, short: what two attempts, or a person, can be asked to compare."""
    commit, changes = conditions.git_commit[:12], conditions.source_diff[:12]
    found = {
        "commit": f"{commit} and changes {changes}" if commit and changes else commit,
        "Python": conditions.python,
        "packages": f"{len(conditions.packages)}" if conditions.packages else "",
        "data": conditions.data,
    }
    return {part: text for part, text in found.items() if text}


def leave_out(conditions: LaunchConditions, parts: Collection[str]) -> LaunchConditions:
    """Return conditions that say nothing of these parts."""
    emptied: dict[str, dict[str, Any]] = {
        "code": {"git_commit": "", "source_diff": ""},
        "packages": {"python": "", "packages": {}},
        "variables": {"environment": {}, "given": {}},
        "data": {"data": ""},
    }
    out = [part for part in PARTS if part in parts or part in conditions.left_out]
    changes = {name: value for part in out for name, value in emptied[part].items()}
    return replace(conditions, **changes, left_out=tuple(out))


def differences(before: LaunchConditions, now: LaunchConditions) -> tuple[str, ...]:
    """Say what is not the same, in words; empty when nothing that is known of both is different."""
    found = list(_differences(before, now))
    more = len(found) - MAX_DIFFERENCES
    return (*found[:MAX_DIFFERENCES], *([f"and {more} more"] if more > 0 else []))


def _differences(before: LaunchConditions, now: LaunchConditions) -> Iterator[str]:
    known = known_parts(now)
    parts = [part for part in known_parts(before) if part in known]
    if "code" in parts:
        if before.git_commit != now.git_commit:
            yield f"commit {before.git_commit[:12]} -> {now.git_commit[:12]}"
        if before.source_diff != now.source_diff:
            yield f"changes that are not committed: {_hash(before)} -> {_hash(now)}"
    if before.python and now.python and before.python != now.python:
        yield f"Python {before.python} -> {now.python}"
    if "packages" in parts:
        yield from _changes("package", before.packages, now.packages)
    if "variables" in parts:
        yield from _changes("variable", before.environment, now.environment)
    if "data" in parts and before.data != now.data:
        yield f"data {printable(before.data, MAX_SHOWN)} -> {printable(now.data, MAX_SHOWN)}"


def _hash(conditions: LaunchConditions) -> str:
    return conditions.source_diff[:12] or "none"


def _changes(what: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({**before, **now}):
        if before.get(name) != now.get(name) and not is_of_node(name):
            old, new = (printable(each.get(name, "absent"), MAX_SHOWN) for each in (before, now))
            yield f"{what} {name} {old} -> {new}"


def filled_up(now: LaunchConditions, before: LaunchConditions | None) -> LaunchConditions:
    """Return what is known of a run after an attempt whose conditions count: what that one does not know stays known."""
    if before is None:
        return now
    known, known_before = known_parts(now), known_parts(before)
    code, packages, variables, data = (now if part in known else before for part in PARTS)
    missing = [part for part in PARTS if part not in (*known, *known_before)]
    reasons = {**before.unknown, **now.unknown}
    return LaunchConditions(
        argv=now.argv or before.argv,
        environment=variables.environment,
        given=variables.given,
        git_commit=code.git_commit,
        source_diff=code.source_diff,
        python=packages.python,
        packages=packages.packages,
        unknown={part: why for part, why in reasons.items() if _UNKNOWN_PARTS.get(part) in missing},
        data=data.data,
        left_out=tuple(part for part in missing if part in before.left_out or part in now.left_out),
    )
