"""What an attempt runs with: what is written down of it, and what is a difference."""

import pytest
from msgspec.structs import replace

from runner.facts.launch_conditions import (
    LEFT_OUT,
    MAX_DIFFERENCES,
    PARTS,
    LaunchConditions,
    differences,
    digests,
    filled_up,
    is_compared,
    leave_out,
    masked_arguments,
    of_data,
    without_secrets,
)

BEFORE = LaunchConditions(
    environment={"NCCL_ALGO": "Ring"},
    git_commit="a" * 40,
    python="3.11.7",
    packages={"torch": "2.1.0", "numpy": "1.26"},
)


def test_no_secret_is_written_down() -> None:
    """Values of variables and options whose names say so, and passwords in addresses, are left out; other values stay."""
    variables = {
        "WANDB_API_KEY": "w",
        "HF_TOKEN": "h",
        "DB_PASSWORD": "d",
        "STOKER_SEAL_KEYS": "s",
        "KEYBOARD": "de",
        "PROXY": "https://me:secret@proxy:80/x",
    }
    assert without_secrets(variables) == {
        "DB_PASSWORD": LEFT_OUT,
        "HF_TOKEN": LEFT_OUT,
        "KEYBOARD": "de",
        "PROXY": "https://***@proxy:80/x",
        "STOKER_SEAL_KEYS": LEFT_OUT,
        "WANDB_API_KEY": LEFT_OUT,
    }
    given = ("train.py", "--api-key", "abc", "--token=abc", "--tokens-per-batch", "8", "--lr=1")
    shown = masked_arguments(given)
    assert "abc" not in " ".join(shown)
    assert shown[-1] == "--lr=1"


@pytest.mark.parametrize(
    "name",
    ["SSH_TTY", "PWD", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "TERM", "HOSTNAME", "SLURM_JOB_ID"],
)
def test_variables_of_sessions_and_hosts_are_not_compared(name: str) -> None:
    """They differ between two shells or two nodes, and say nothing of the run."""
    assert not is_compared(name)
    assert is_compared("NCCL_ALGO")
    assert is_compared("PYTHONPATH")


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (LaunchConditions(git_commit="b" * 40), ("commit aaaaaaaaaaaa -> bbbbbbbbbbbb",)),
        (
            LaunchConditions(git_commit="a" * 40, source_diff="c" * 64),
            ("changes that are not committed: none -> cccccccccccc",),
        ),
        (LaunchConditions(python="3.12.0"), ("Python 3.11.7 -> 3.12.0",)),
        (
            LaunchConditions(packages={"torch": "2.2.0", "numpy": "1.26", "x": "1"}),
            ("package torch 2.1.0 -> 2.2.0", "package x absent -> 1"),
        ),
        (LaunchConditions(unknown={"code": "no repository", "packages": "no Python"}), ()),
    ],
)
def test_differences_are_named_and_what_is_not_known_is_none(
    now: LaunchConditions, found: tuple[str, ...]
) -> None:
    """Each names old and new; a folder without git, or a command that is no Python, differs in nothing."""
    same = {"environment": BEFORE.environment}
    given = {name: getattr(now, name) for name in now.__struct_fields__}
    assert differences(BEFORE, LaunchConditions(**{**given, **same})) == found
    assert differences(BEFORE, BEFORE) == ()


def test_many_differences_are_cut_and_what_was_known_stays() -> None:
    """The message has an end; an attempt that could not find out the packages leaves those known that were."""
    many = LaunchConditions(packages={f"p{number}": "1" for number in range(50)})
    found = differences(BEFORE, many)
    assert len(found) == MAX_DIFFERENCES + 1
    assert found[-1].startswith("and ")
    unknown = LaunchConditions(git_commit="a" * 40, unknown={"packages": "late"})
    kept = filled_up(unknown, BEFORE)
    assert (kept.packages, kept.python) == (BEFORE.packages, BEFORE.python)


def test_digests_are_of_what_is_compared_and_known() -> None:
    """A variable of the node's own and an argv change none; what is left out or not known has none."""
    found = digests(BEFORE)
    assert tuple(found) == ("code", "packages", "variables")
    own = replace(BEFORE, argv=("x",), environment={"NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "e"})
    assert digests(own) == found
    assert differences(BEFORE, own) == ()
    assert digests(of_data("sha256:1")).keys() == {"data"}
    other = digests(replace(BEFORE, source_diff="c" * 64, environment={"NCCL_ALGO": "Tree"}))
    assert [part for part in found if found[part] != other[part]] == ["code", "variables"]


@pytest.mark.parametrize("parts", [(), ("code",), ("packages", "variables"), PARTS])
def test_what_is_left_out_is_as_it_was_known(parts: tuple[str, ...]) -> None:
    """It is no difference, and filling it up gives back the whole, data included, in whatever order they come."""
    whole = replace(BEFORE, data="sha256:1", argv=("train.py",))
    part = leave_out(whole, parts)
    assert differences(whole, part) == differences(part, whole) == ()
    assert filled_up(part, whole) == whole
    assert filled_up(whole, filled_up(of_data("sha256:1"), None)) == whole
    assert filled_up(of_data("sha256:1"), replace(whole, data="")) == whole
