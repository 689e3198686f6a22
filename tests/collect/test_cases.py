"""Real logs of runs that died, were sick or were healthy: what is made of them, as a table of confusions."""

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.collect import engines
from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts.causes import Verdict
from runner.rootcause.fingerprints import masked
from runner.rootcause.signatures import SIGNATURES, Signature

CASES = Path(__file__).parents[2] / "../shared/data/logs/cases.jsonl"
# Of the sick ones; what no reader of the lines alone can know is not among them.
LEAST_RIGHT = 0.95
# without signatures that a case quotes; chosen
LEAST_WITHOUT = 0.9
# of the sick cases, which only their own alternatives make right
MAX_GAP = 0.05
# escaped characters, sets, and single characters of a pattern
TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
# characters of a line that can be part of a sample; chosen
LEAST_QUOTED = 25
HARDWARE = ("gpu_ecc", "gpu_lost", "gpu_xid_other", "nvlink_error", "thermal_power")
STORAGE = ("filesystem", "checkpoint_io")

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason="../shared/data is not here")


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


@pytest.fixture(scope="module")
def judged(engine: Engine) -> list[tuple[dict[str, Any], list[Verdict]]]:
    """Judge all cases."""
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [(case, verdicts(case["log"], engine)) for case in cases]


def verdicts(
    text: str, engine: Engine | None, signatures: Sequence[Signature] = SIGNATURES
) -> list[Verdict]:
    """Judge one log."""
    diagnosis = Diagnosis(engine=engine, signatures=signatures)
    log = diagnosis.log("log")
    log.feed(text.encode())
    log.finish()
    return diagnosis.verdicts()


def test_nearly_all_faults_are_right(
    judged: list[tuple[dict[str, Any], list[Verdict]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """At least 95 of 100 sick logs get the fault that their operators named."""
    confusions = Counter(
        (case["label"], found[0].cause.fault if found else "healthy") for case, found in judged
    )
    with capsys.disabled():
        print("\nlabel -> verdict: cases")
        for (label, verdict), num in sorted(confusions.items()):
            print(f"  {label} -> {verdict}: {num}{'' if label == verdict else '  <<'}")
    sick = {pair: num for pair, num in confusions.items() if pair[0] != "healthy"}
    right = sum(num for (label, verdict), num in sick.items() if label == verdict)
    assert right >= LEAST_RIGHT * sum(sick.values())


def test_most_faults_are_right_without_the_signatures_that_quote_a_case(
    judged: list[tuple[dict[str, Any], list[Verdict]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each case is judged again without the signatures whose sample appears in it, numbers and names apart.
    No sample was taken from a case, but libraries write the same words everywhere. Overfitted signatures lose their cases.
    """
    # which would keep each of these sets for later
    monkeypatch.setattr(engines, "hyperscan", None)
    num_sick = num_right = num_left_out = 0
    lost = []
    for case, found in judged:
        if case["label"] == "healthy":
            continue
        num_sick += 1
        left = [one for one in SIGNATURES if not is_quoted(one, case["log"])]
        if len(left) < len(SIGNATURES):
            num_left_out += 1
            found = verdicts(case["log"], None, left)
        is_right = bool(found) and found[0].cause.fault == case["label"]
        num_right += is_right
        lost += [] if is_right else [case["id"]]
    with capsys.disabled():
        print(
            f"\nwithout what quotes a case ({num_left_out} cases): {num_right} of {num_sick} right"
        )
        print(f"  wrong: {', '.join(lost)}")
    assert num_right >= LEAST_WITHOUT * num_sick


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_a_case_is_judged_alike_without_the_alternatives_that_only_it_has(
    judged: list[tuple[dict[str, Any], list[Verdict]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each case is judged again without those alternatives of signatures that match a line of it, and of no other case.

    What is left is what other logs, catalogues, families and tracebacks know: a rule that was written for one case loses it.
    """
    # It compiles each of these sets for seconds, for a few lines.
    monkeypatch.setattr(engines, "hyperscan", None)
    owners = {
        (one.name, part): [
            case["id"]
            for case, _ in judged
            if any(re.search(part, line) for line in case["log"].splitlines())
        ]
        for one in SIGNATURES
        for part in alternatives(one.pattern)
    }
    sick = [(case, found) for case, found in judged if case["label"] != "healthy"]
    right, lost = 0, []
    for case, found in sick:
        if not found or found[0].cause.fault != case["label"]:
            continue
        right += 1
        own = {key for key, cases in owners.items() if cases == [case["id"]]}
        again = verdicts(case["log"], None, without(own)) if own else found
        if not again or again[0].cause.fault != case["label"]:
            lost.append(case["id"])
    with capsys.disabled():
        kinds = Counter(min(len(cases), 2) for cases in owners.values())
        print(
            f"\nof {len(owners)} alternatives {kinds[0]} are in no case, {kinds[1]} in one, {kinds[2]} in several"
        )
        print(
            f"as is: {right} of {len(sick)} right; without what only a case has: {right - len(lost)}"
        )
        print(f"  lost: {', '.join(lost)}")
    assert len(lost) < MAX_GAP * len(sick)


def without(own: Collection[tuple[str, str]]) -> list[Signature]:
    """Return the signatures without some of their alternatives, by name and pattern."""
    left = []
    for one in SIGNATURES:
        parts = [part for part in alternatives(one.pattern) if (one.name, part) not in own]
        left += [replace(one, pattern="|".join(parts))] if parts else []
    return left


def alternatives(pattern: str) -> list[str]:
    """Split a pattern at the bars that are in no group and no set."""
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    parts, depth = [""], 0
    for token in TOKENS.findall(pattern.removeprefix(flags)):
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [f"(?i:{part})" if flags else part for part in parts]


def test_patterns_are_split_at_their_outermost_bars() -> None:
    """Bars in groups and sets, and behind a backslash, are parts of an alternative."""
    assert alternatives(r"(?i)a(?:b|(c|d))|[|)\]]\|e|f") == [
        r"(?i:a(?:b|(c|d)))",
        r"(?i:[|)\]]\|e)",
        "(?i:f)",
    ]
    for one in SIGNATURES:
        assert any(re.search(part, one.sample) for part in alternatives(one.pattern)), one.name


def is_quoted(signature: Signature, text: str) -> bool:
    """Whether a signature's sample occurs in a log, or a line of the log in the sample."""
    sample = masked(signature.sample)
    lines = [masked(line) for line in text.splitlines()]
    return any(sample in line or (len(line) > LEAST_QUOTED and line in sample) for line in lines)


def test_no_healthy_log_has_an_incident(
    judged: list[tuple[dict[str, Any], list[Verdict]]],
) -> None:
    """The false alarm is what users punish most."""
    assert [case["id"] for case, found in judged if case["label"] == "healthy" and found] == []


def test_no_hardware_and_no_storage_is_called_the_users_mistake(
    judged: list[tuple[dict[str, Any], list[Verdict]]],
) -> None:
    """An operator with that verdict looks in the wrong place."""
    wrong = [
        case["id"]
        for case, found in judged
        if case["label"] in (*HARDWARE, *STORAGE)
        and found
        and found[0].cause.fault in ("config_error", "data_error")
    ]
    assert wrong == []


def test_no_wrong_node_or_gpu_is_named(
    judged: list[tuple[dict[str, Any], list[Verdict]]],
) -> None:
    """Where the operators named one, the verdict names it or none."""
    for case, found in judged:
        culprit = found[0].cause.culprit if found else None
        if case["culprit"] is not None and culprit is not None and culprit.kind != "rank":
            assert culprit.id in case["culprit"], case["id"]
