"""The contract of checks: three outcomes, no way to pass without having measured, limits that mean something."""

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from healthchecks import checks
from healthchecks.check import (
    Evidence,
    GpuVendor,
    NodeFacts,
    Outcome,
    Verdict,
    describe,
    from_plain,
    to_plain,
)
from healthchecks.child import ALWAYS, run
from healthchecks.coverage import checks_of, overall, pick, required_checks
from healthchecks.declaration import GPUS
from healthchecks.levels import BUDGET_SECONDS, LEVELS, seconds_at
from healthchecks.limits import judge_of, parse_overrides
from healthchecks.registry import LAST, all_checks, check_names, load
from runner.errors import UserError

CHECKS = all_checks()
NODE = NodeFacts()
VENDORS: tuple[GpuVendor, ...] = ("amd", "nvidia")
REQUIRED = required_checks(NODE)
LIMITS = {key: limit for check in CHECKS.values() for key, limit in check.limits.items()}

GOOD = judge_of(LIMITS, {})("memory.wrong_bytes", 0)
BAD = judge_of(LIMITS, {})("memory.wrong_bytes", 1)
UNMEASURED = judge_of(LIMITS, {})("memory.wrong_bytes", None)
BUSY = judge_of(LIMITS, {})("memory.wrong_bytes", None, is_busy=True)
INFORMATIVE = Evidence(name="memory.info", value=1)


@pytest.mark.parametrize(
    ("evidence", "trouble", "outcome"),
    [
        ((GOOD,), "", Outcome.PASS),
        ((GOOD, INFORMATIVE), "", Outcome.PASS),
        ((GOOD, BAD), "", Outcome.FAIL),
        ((BAD, UNMEASURED), "hung", Outcome.FAIL),
        ((GOOD, UNMEASURED), "", Outcome.UNKNOWN),
        ((GOOD,), "hung", Outcome.UNKNOWN),
        ((INFORMATIVE,), "", Outcome.UNKNOWN),
        ((), "", Outcome.UNKNOWN),
    ],
)
def test_an_outcome_follows_from_the_evidence(
    evidence: tuple[Evidence, ...], trouble: str, outcome: Outcome
) -> None:
    """One value beyond its limit fails; passing takes measured values, all of them within, and an orderly end."""
    verdict = Verdict(check="memory", evidence=evidence, trouble=trouble)
    assert verdict.outcome is outcome
    assert bool(verdict.reason) == (outcome is not Outcome.PASS)


@pytest.mark.parametrize(
    ("num_bytes", "amount"),
    [(512, "512 bytes"), (5 << 20, "5 MiB"), (2_869_043_445_760, "2.60938 TiB")],
)
def test_bytes_are_written_without_an_exponent(num_bytes: int, amount: str) -> None:
    """Whatever their number; so are other large numbers."""
    judge = judge_of(LIMITS, {}, shortage_serves=True)
    assert describe(judge("memory.available_bytes", num_bytes)).startswith(
        f"available_bytes {amount}, at least 2,048 MiB"
    )
    packets = Evidence(name="a.packets", value=2_736_130.0, unit="packets")
    assert describe(packets) == "packets 2,736,130 packets"


def test_advice_keeps_no_verdict_from_passing_of_which_anything_was_measured() -> None:
    """A shortage is reported beside PASS; a broken node fails all the same, and nothing measured stays unknown."""
    judge = judge_of(LIMITS, {}, shortage_serves=True)
    short = judge("memory.available_bytes", 5 << 20)
    verdict = Verdict(check="memory", evidence=(short, GOOD))
    assert (verdict.outcome, verdict.reason) == (Outcome.PASS, "")
    assert verdict.shortage == "available_bytes 5 MiB, at least 2,048 MiB: end other programs"
    broken = Verdict(check="memory", evidence=(short, judge("memory.wrong_bytes", 1)))
    assert broken.outcome is Outcome.FAIL
    assert "wrong_bytes" in broken.reason
    assert "available" not in broken.reason
    assert Verdict(check="memory", evidence=(short,), trouble="hung").outcome is Outcome.UNKNOWN
    unmeasured = judge("memory.available_bytes", None)
    assert Verdict(check="memory", evidence=(unmeasured,)).outcome is Outcome.UNKNOWN
    assert Verdict(check="memory", evidence=(unmeasured, GOOD)).outcome is Outcome.PASS
    strict = judge_of(LIMITS, {})("memory.available_bytes", 5 << 20)
    assert Verdict(check="memory", evidence=(strict, GOOD)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("slots", "num_gpus", "threads"), [(1, 0, 128), (4, 0, 512), (8, 8, 4096), (1, 8, 4096)]
)
def test_limits_follow_what_the_node_is(slots: int, num_gpus: int, threads: int) -> None:
    """More ranks need more threads, those with GPUs more than those without; an override wins."""
    node, name = NodeFacts(slots=slots, num_gpus=num_gpus), "processes.free_threads"
    evidence = judge_of(LIMITS, {}, node=node)(name, threads)
    assert (evidence.limit, evidence.outcome) == (threads, Outcome.PASS)
    assert evidence.source.startswith("chosen")
    assert judge_of(LIMITS, {name: 7}, node=node)(name, 7).limit == 7


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_passes_no_limit(value: float) -> None:
    """NaN and infinities are unknown under either rule, however they compare."""
    for name in ("memory.available_bytes", "memory.swap_used_ratio"):
        assert judge_of(LIMITS, {})(name, value).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_can_pass_and_fail(name: str) -> None:
    """The limit itself passes, a little beyond it fails, and both the limit and its range are sane numbers with a source."""
    limit, judge = LIMITS[name], judge_of(LIMITS, {})
    beyond = -1e-6 if limit.rule == "at least" else 1e-6
    assert judge(name, limit.value).outcome is Outcome.PASS
    assert judge(name, limit.value + beyond * max(1.0, abs(limit.value))).outcome is Outcome.FAIL
    assert limit.least <= limit.value <= limit.most
    assert limit.unit
    assert limit.source
    assert name.partition(".")[0] in CHECKS


def test_a_limit_may_be_replaced() -> None:
    """An override takes effect, and the evidence names its source."""
    evidence = judge_of(LIMITS, parse_overrides(["memory.available_bytes=1e3"], LIMITS))(
        "memory.available_bytes", 2000
    )
    assert (evidence.outcome, evidence.limit) == (Outcome.PASS, 1000)
    assert evidence.source == "command line"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("memory.availble_bytes=5", "did you mean 'memory.available_bytes'?"),
        ("memory.available_bytes", "NAME=NUMBER"),
        ("memory.available_bytes=lots", "'lots'"),
        ("memory.available_bytes=nan", "means nothing"),
        ("memory.available_bytes=0", "means nothing"),
        ("disk_space.wrong_bytes=5", "means nothing"),
    ],
)
def test_a_senseless_limit_is_refused(text: str, word: str) -> None:
    """Unknown names, no numbers, and values that would make a dead rule are refused with the way out."""
    with pytest.raises(UserError, match=re.escape(word)):
        parse_overrides([text], LIMITS)


def test_a_verdict_survives_its_journey() -> None:
    """A verdict is the same after JSON, even one with NaN, which arrives as not measured."""
    verdict = Verdict(check="memory", evidence=(GOOD, UNMEASURED, INFORMATIVE), trouble="odd")
    assert from_plain(json.loads(json.dumps(to_plain(verdict))), check="memory") == verdict
    nan = Verdict(check="memory", evidence=(judge_of(LIMITS, {})("memory.wrong_bytes", math.nan),))
    there = from_plain(json.loads(json.dumps(to_plain(nan), allow_nan=False)), check="memory")
    assert there.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("evidence", "trouble", "is_busy"),
    [
        ((GOOD, BUSY), "", True),
        ((BUSY, UNMEASURED), "", False),
        ((BUSY, BAD), "", False),
        ((BUSY,), "hung", False),
        ((GOOD,), "", False),
        ((UNMEASURED,), "", False),
        ((), "", False),
    ],
)
def test_a_verdict_is_of_a_busy_machine_if_nothing_else_keeps_it_from_passing(
    evidence: tuple[Evidence, ...], trouble: str, is_busy: bool
) -> None:
    """What is unknown for another reason, hung or failed would be so on an idle machine as well."""
    verdict = Verdict(check="memory", evidence=evidence, trouble=trouble)
    there = from_plain(json.loads(json.dumps(to_plain(verdict))), check="memory")
    assert (verdict.is_busy, there.is_busy) == (is_busy, is_busy)


def test_a_verdict_is_recomputed_by_its_reader() -> None:
    """A PASS that its own evidence does not bear out is rejected."""
    plain = to_plain(Verdict(check="memory", evidence=(BAD,)))
    plain["outcome"] = plain["evidence"][0]["outcome"] = "PASS"
    assert from_plain(plain, check="memory").outcome is Outcome.FAIL


@pytest.mark.parametrize("plain", [None, [], {}, {"check": "memory"}, {"check": "clock"}, "PASS"])
def test_what_is_no_verdict_is_refused(plain: object) -> None:
    """Anything but a verdict on the requested check raises ValueError."""
    with pytest.raises(ValueError, match="verdict"):
        from_plain(plain, check="memory")


def verdicts(**outcomes: Evidence) -> list[Verdict]:
    """Make one verdict per check."""
    return [Verdict(check=name, evidence=(evidence,)) for name, evidence in outcomes.items()]


def test_a_node_passes_with_all_required_checks_only() -> None:
    """Every required check has to have run and passed; one that was not run or does not know is not enough."""
    every = dict.fromkeys(REQUIRED, GOOD)
    assert overall(verdicts(**every), required=REQUIRED, node=NODE)["outcome"] == "PASS"
    for name in REQUIRED:
        without = {other: GOOD for other in REQUIRED if other != name}
        total = overall(verdicts(**without), required=REQUIRED, node=NODE)
        assert (total["outcome"], total["not_run"]) == ("UNKNOWN", [name])
        total = overall(verdicts(**without, **{name: UNMEASURED}), required=REQUIRED, node=NODE)
        assert (total["outcome"], total["unknown"]) == ("UNKNOWN", [name])
    assert overall([], required=(), node=NODE)["outcome"] == "UNKNOWN"


def test_a_check_that_is_not_required_still_counts() -> None:
    """The kernel log may stay unknown, but its FAIL fails the node."""
    every = dict.fromkeys(REQUIRED, GOOD)
    unknown = overall(verdicts(**every, kernel_log=UNMEASURED), required=REQUIRED, node=NODE)
    assert (unknown["outcome"], unknown["unknown"]) == ("PASS", ["kernel_log"])
    assert (
        overall(verdicts(**every, kernel_log=BAD), required=REQUIRED, node=NODE)["outcome"]
        == "FAIL"
    )


def test_a_named_check_is_required() -> None:
    """Asking for some checks requires these, and the total names the required ones that were left out."""
    assert pick([], NODE) == (checks_of(NODE), REQUIRED)
    names, required = pick(["kernel_log", "clock"], NODE)
    assert names == required == ("clock", "kernel_log")
    total = overall(verdicts(clock=GOOD, kernel_log=UNMEASURED), required=required, node=NODE)
    assert total["outcome"] == "UNKNOWN"
    assert total["left_out"] == [name for name in REQUIRED if name != "clock"]
    with pytest.raises(UserError, match="did you mean 'clock'"):
        pick(["clok"], NODE)


def test_every_check_declares_itself() -> None:
    """A declaration bears its module's name, limits of that name, and needs facts that there are; positions differ."""
    assert sorted(CHECKS) == list(check_names())
    known = {field.name for field in dataclasses.fields(NodeFacts)}
    for name, check in CHECKS.items():
        assert check is load(name)
        assert check.name == name
        assert all(limit.startswith(f"{name}.") for limit in check.limits)
        assert set(check.needs) <= known
    assert {field for check in CHECKS.values() for field in check.needs} == known - set(ALWAYS)
    positions = [check.position for check in CHECKS.values()]
    assert positions == sorted(set(positions))
    assert positions[-1] < LAST


def test_the_usual_minimum() -> None:
    """All are required but three: many users may not read the kernel's log, a machine may lack a card to look at, or torch."""
    assert set(checks_of(NODE)) - set(REQUIRED) == {"interconnect", "kernel_log", "versions"}


def test_a_check_that_cannot_be_imported_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs last, is required, and takes no other check with it."""
    (tmp_path / "broken.py").write_text("raise ImportError('no such driver')\n")
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(tmp_path)])
    all_checks.cache_clear()
    try:
        assert list(all_checks()) == [*CHECKS, "broken"]
        assert "broken" in required_checks(NODE)
        verdict = run("broken", {"node": {}, "limits": {}})
        assert (verdict.outcome, verdict.reason) == (
            Outcome.UNKNOWN,
            "raised ImportError: no such driver",
        )
    finally:
        all_checks.cache_clear()


def test_the_checks_of_a_level_fit_its_budget() -> None:
    """Each level runs what the cheaper ones run, and the times that its checks declare are within its budget."""
    names: set[str] = set()
    for level in LEVELS:
        lower, names = names, set()
        for vendor in VENDORS:
            own = set(checks_of(NodeFacts(level=level, num_gpus=1, gpu_vendor=vendor)))
            seconds = [seconds_at(CHECKS[name].seconds, level) or 0.0 for name in own]
            assert 0 < sum(seconds) <= BUDGET_SECONDS[level]
            names |= own
        assert lower <= names


def test_a_check_of_gpus_is_not_missed_on_a_node_without_any() -> None:
    """It is left out, and what it would cover is reported as not covered; with a GPU it runs."""
    without = NodeFacts(level="deep")
    for vendor in VENDORS:
        with_gpu = NodeFacts(level="deep", num_gpus=8, gpu_vendor=vendor)
        assert set(checks_of(with_gpu)) - set(checks_of(without)) == {
            name
            for name, check in CHECKS.items()
            if check.needs_gpu and check.gpu_vendor in ("", vendor)
        }
    # Where nothing says whose they are, the usual vendor's checks report why they see none.
    assert "gpu" in checks_of(NodeFacts(num_gpus=8))
    total = overall(verdicts(clock=GOOD), required=("clock",), node=without)
    assert GPUS in total["not_covered"]
