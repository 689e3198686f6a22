"""What an attempt runs with: command, environment, code, packages, data. A run that is the same has the same ones in each attempt.

What is compared, and why no more:
- code: the commit, and the hash of the differences from it in files that git tracks; files that a run itself writes are untracked;
- packages and Python of the interpreter that the command names;
- environment: the agent's variables that steer what ranks compute (`is_compared`), not those of shells, sessions and hosts. What
  run.yaml itself says is fixed for a run by its hash;
- data: the fingerprint that the trainer reads back.
What is not known on one of the two sides is no difference.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import field

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
LEFT_OUT = "(secret, left out)"

_COMPARED = re.compile(
    r"(NCCL|TORCH|TORCHINDUCTOR|PYTORCH|CUBLAS|CUDNN|NVTE|NVIDIA_TF32|TRITON|XLA|OMP|MKL|OPENBLAS|DEEPSPEED|MEGATRON|FLASH)_.*"
    r"|CUDA_(DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|MODULE_LOADING)|PYTHON(PATH|HASHSEED|OPTIMIZE|NOUSERSITE)"
    r"|LD_(LIBRARY_PATH|PRELOAD)"
)
# Names, and options of commands, whose values are never written down, as a whole word between underscores or dashes.
_SECRET = re.compile(
    r"(^|[_-])(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIES?|DSN)($|[_-])",
    re.IGNORECASE,
)
# What stands before the host of an address.
_USER_INFO = re.compile(r"(://)[^/@\s]+@")


class LaunchConditions(Value):
    """What node 0 found beside a launch, bounded. None, "" or empty: not known, and why in `unknown` (part -> reason).

    `environment`: variables that are compared; `given`: those of run.yaml. `source_diff`: sha256 of the differences from
    `git_commit`, "" for none; the differences themselves are in source.diff in the attempt's folder.
    """

    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    git_commit: str = ""
    source_diff: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def is_compared(name: str) -> bool:
    """Whether a variable steers what ranks compute, so that another value makes another run."""
    return _COMPARED.fullmatch(name) is not None and not is_secret(name)


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


def differences(before: LaunchConditions, now: LaunchConditions) -> tuple[str, ...]:
    """Say what is not the same, in words; empty when nothing that is known of both is different."""
    found = list(_differences(before, now))
    more = len(found) - MAX_DIFFERENCES
    return (*found[:MAX_DIFFERENCES], *([f"and {more} more"] if more > 0 else []))


def _differences(before: LaunchConditions, now: LaunchConditions) -> Iterator[str]:
    if before.git_commit and now.git_commit:
        if before.git_commit != now.git_commit:
            yield f"commit {before.git_commit[:12]} -> {now.git_commit[:12]}"
        if before.source_diff != now.source_diff:
            yield f"changes that are not committed: {_hash(before)} -> {_hash(now)}"
    if before.python and now.python and before.python != now.python:
        yield f"Python {before.python} -> {now.python}"
    if before.packages and now.packages:
        yield from _changes("package", before.packages, now.packages)
    if "environment" not in {**before.unknown, **now.unknown}:
        yield from _changes("variable", before.environment, now.environment)


def _hash(conditions: LaunchConditions) -> str:
    return conditions.source_diff[:12] or "none"


def _changes(what: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({**before, **now}):
        if before.get(name) != now.get(name):
            old, new = (printable(each.get(name, "absent"), MAX_SHOWN) for each in (before, now))
            yield f"{what} {name} {old} -> {new}"


def filled_up(now: LaunchConditions, before: LaunchConditions | None) -> LaunchConditions:
    """Return what is known of a run after an attempt that differs in nothing: what that one could not find out stays known."""
    if before is None:
        return now
    return LaunchConditions(
        argv=now.argv,
        environment=before.environment if "environment" in now.unknown else now.environment,
        given=now.given,
        git_commit=now.git_commit or before.git_commit,
        source_diff=now.source_diff if now.git_commit else before.source_diff,
        python=now.python or before.python,
        packages=now.packages or before.packages,
        unknown=now.unknown,
    )
