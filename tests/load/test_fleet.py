"""The fleet in cluster.yaml: domains with their ranges, and checks."""

import subprocess
import sys
from pathlib import Path

import pytest

from healthchecks.registry import all_checks
from runner.errors import SpecError
from runner.facts.wire import decode, encode
from runner.load.specs import load_cluster


def domains(folder: Path, text: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the domains that this text gives, after a journey over the wire."""
    path = folder / "cluster.yaml"
    path.write_text(f"name: a\ndomains:\n{text}")
    loaded = decode(encode(load_cluster(path))).domains
    return {kind: {name: tuple(nodes) for name, nodes in x.items()} for kind, x in loaded.items()}


def problem(folder: Path, text: str) -> str:
    """Return the message with which a cluster.yaml is refused."""
    path = folder / "cluster.yaml"
    path.write_text(f"name: a\n{text}")
    with pytest.raises(SpecError) as caught:
        load_cluster(path)
    return str(caught.value)


def test_domains_keep_their_order_and_write_ranges_out(tmp_path: Path) -> None:
    """Kinds stay in the order of the file, nearest first; ranges become names in counting order."""
    found = domains(tmp_path, "  switch: {s1: [n1-n3, n7], s2: [n9-n11]}\n  rack: {r1: n1-n11}\n")
    assert list(found) == ["switch", "rack"]
    assert found["switch"] == {"s1": ("n1", "n2", "n3", "n7"), "s2": ("n9", "n10", "n11")}
    assert found["rack"]["r1"] == tuple(f"n{number}" for number in range(1, 12))


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("n1-n3", ["n1", "n2", "n3"]),
        ("n08-n11", ["n08", "n09", "n10", "n11"]),
        ("gpu-a-9-gpu-a-10", ["gpu-a-9", "gpu-a-10"]),
        ("n[1-2,5]", ["n1", "n2", "n5"]),
        ("n[01-03].dc", ["n01.dc", "n02.dc", "n03.dc"]),
        ("r[1-2]n[1-2], x", ["r1n1", "r1n2", "r2n1", "r2n2", "x"]),
        ("n5-n5", ["n5"]),
        # a name like any other: the prefix is not repeated
        ("rack1-8", ["rack1-8"]),
    ],
)
def test_ranges_are_those_of_people_and_of_slurm(
    tmp_path: Path, written: str, names: list[str]
) -> None:
    """Leading zeros are kept, brackets may come more than once, and commas part items."""
    assert domains(tmp_path, f"  rack: {{r1: '{written}'}}\n") == {"rack": {"r1": tuple(names)}}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("domains: {rack: {r1: [n1-n4], r2: [n4-n8]}}", ["n4 is in 'r1' already", "keep it"]),
        ("domains: {rack: {r1: [n1-n4, n2]}}", ["n2 is named twice"]),
        ("domains: {rack: {r1: []}}", ["domains.rack.r1: no nodes", "n1-n8"]),
        ("domains: {rack: {r1: }}", ["no nodes"]),
        ("domains: {rack: {}}", ["expected names and their nodes", "r1: [n1-n8]"]),
        ("domains: {rack: [n1]}", ["expected names and their nodes"]),
        ("domains: {rack: {r1: [n8-n1]}}", ["runs from 8 down to 1", "swap"]),
        ("domains: {rack: {r1: ['n[8-1]']}}", ["runs from 8 down to 1"]),
        ("domains: {rack: {r1: [n1-n100001]}}", ["more than 100,000 nodes", "smaller range"]),
        ("domains: {rack: {r1: ['a[1-999]b[1-999]']}}", ["more than 100,000 nodes"]),
        ("domains: {rack: {r1: [n1-n99999, m1-m99999]}}", ["more than 100,000 nodes in 'r1'"]),
        ("domains: {rack: {r1: [n1-n9999999999]}}", ["more than 9 digits"]),
        ("domains: {rack: {r1: ['n[1-x]']}}", ["'1-x' in brackets", "n[1-8,10]"]),
        ("domains: {rack: {r1: ['n[1-2']}}", ["is not the name of a node"]),
        ("domains: {rack: {r1: ['n1,,n2']}}", ["a node without a name"]),
        ("domains: {rack: {r1: [7]}}", ["7 is not the name of a node", "as text"]),
        ("domains: {rack: {r 1: [n1]}}", ["'r 1' is not a valid name of a rack"]),
        ("domains: {my rack: {r1: [n1]}}", ["'my rack' is not a valid name"]),
        ("domains: [n1]", ["domains: "]),
        ("checks: [disk_spaec]", ["'disk_spaec' is not a check", "did you mean 'disk_space'?"]),
        ("checks: [clock, clock]", ["'clock' is named twice"]),
        ("checks: 3", ["checks: 3"]),
    ],
)
def test_a_wrong_fleet_is_refused_with_the_way_out(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    """Each message names the place, the value and what to do."""
    message = problem(tmp_path, text + "\n")
    for part in ("cluster.yaml:", *parts):
        assert part in message, message


def test_a_node_may_be_in_one_domain_of_each_kind(tmp_path: Path) -> None:
    """A rack and a switch may hold the same nodes."""
    found = domains(tmp_path, "  switch: {s1: [n1-n2]}\n  rack: {r1: [n1-n2]}\n")
    assert found["switch"]["s1"] == found["rack"]["r1"]


def test_checks_may_be_one_name_a_list_or_none(tmp_path: Path) -> None:
    """One name is read as a list of one; `[]` asks for no checks."""
    for text, wanted in (
        ("clock", ("clock",)),
        ("[clock, memory]", ("clock", "memory")),
        ("[]", ()),
    ):
        path = tmp_path / "cluster.yaml"
        path.write_text(f"name: a\nchecks: {text}\n")
        assert load_cluster(path).checks == wanted


def test_the_names_of_checks_are_those_that_there_are(tmp_path: Path) -> None:
    """The loader takes every health check's name, and imports none of the checks for it."""
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: a\nchecks: [{', '.join(all_checks())}]\n")
    script = (
        "import sys; from pathlib import Path; from runner.load.specs import load_cluster\n"
        f"print(*load_cluster(Path({str(path)!r})).checks)\n"
        "print(*(name for name in sys.modules if name.startswith('healthchecks.checks.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{' '.join(all_checks())}\n\n"
