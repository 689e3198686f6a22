"""memory_patterns: damaged bytes are found in every pattern, with their place, their bit, and what a second reading gave."""

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.active.memory_patterns import DEEP_PATTERNS, PATTERNS, judge_numbers
from tests.healthchecks.probes.probe_harness import Fault, judged, numbers_of, plant, real_verdict

pytestmark = pytest.mark.trainer

MIB = 1 << 20
# Of the third block.
WORD = 2 * 20 * 8192 + 17


def verdict_here(
    *faults: Fault,
    patterns: tuple[str, ...] = PATTERNS,
    seconds: float = 20.0,
    num_bytes: int = 18 * MIB,
) -> Verdict:
    """Test a few MiB in this process."""
    asked = {"device": "cpu", "patterns": patterns, "repeats": False, "seed": 7}
    asked |= {"first_bytes": num_bytes, "most_bytes": num_bytes, "num_workers": 2}
    numbers = numbers_of("memory_patterns", asked, seconds=seconds, faults=faults)
    return judged("memory_patterns", lambda judge: judge_numbers(numbers, patterns, judge))


def wrong(verdict: Verdict) -> dict[str, float | None]:
    """Return the number of wrong words of each pattern that has any."""
    return {
        each.subject.removeprefix("cpu "): each.value
        for each in verdict.evidence
        if each.name == "memory_patterns.wrong_words" and each.value != 0
    }


def test_sound_memory_passes_every_pattern() -> None:
    """Bit fade included."""
    verdict = verdict_here(patterns=DEEP_PATTERNS, seconds=2.0)
    assert verdict.outcome is Outcome.PASS, verdict.reason


@pytest.mark.proves("memory_patterns.wrong_words")
def test_a_flipped_bit_is_found_in_every_pattern() -> None:
    """Word, bit and number are right, and a second reading that gives the same points to a cell."""
    flips = [
        {"kind": "flip", "pattern": name, "word": WORD + i, "bit": (5 * i) % 64}
        for i, name in enumerate(PATTERNS)
    ]
    verdict = verdict_here(*flips)
    assert verdict.outcome is Outcome.FAIL
    # A block move copies the damage of a first half once more.
    assert wrong(verdict) == {name: 2 if name == "block move" else 1 for name in PATTERNS}
    note = next(each.note for each in verdict.evidence if each.subject == "cpu own address")
    at = PATTERNS.index("own address")
    assert f"word {WORD + at} xor {1 << 5 * at:016x}" in note
    assert f"{5 * at}: 1; read again: 1 with the same value" in note


def test_a_word_that_reads_right_again_points_to_the_path() -> None:
    """It is counted all the same."""
    verdict = verdict_here(
        {"kind": "path", "pattern": "random", "word": WORD, "bit": 63}, patterns=("random",)
    )
    assert wrong(verdict) == {"random": 1}
    assert "0 with the same value, which points to cells, 1 with another" in verdict.reason


def test_a_bit_that_sticks_is_found_where_it_should_be_zero() -> None:
    """Words that have it set by themselves do not show it; moving inversions do."""
    patterns = ("solid 00", "solid ff", "moving inversions")
    verdict = verdict_here({"kind": "stuck", "word": WORD, "bit": 40}, patterns=patterns)
    assert set(wrong(verdict)) == {"solid 00", "moving inversions"}


def test_an_address_line_that_sticks_is_found_by_addresses_only() -> None:
    """Blocks of the same words hide it."""
    patterns = ("solid 55", "own address")
    aliases = [{"kind": "alias", "pattern": name} for name in patterns]
    assert set(wrong(verdict_here(*aliases, patterns=patterns))) == {"own address"}


def test_patterns_for_which_there_was_no_time_are_unknown() -> None:
    """The first one runs in any case; what did not run has not passed."""
    verdict = verdict_here(seconds=0.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert set(wrong(verdict)) == set(PATTERNS[1:])
    assert "no time left" in verdict.reason


def test_hardly_any_memory_is_unknown() -> None:
    """A machine that could give no more has not passed."""
    verdict = verdict_here(num_bytes=8 * MIB, patterns=("solid 00",))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "bytes could be tested" in verdict.reason


def test_the_check_runs_its_probe_in_the_interpreter_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From end to end: one flipped bit of the host's memory fails the check, and nothing else in it does."""
    plant(
        monkeypatch,
        {"probe": "memory_patterns", "kind": "flip", "pattern": "solid 00", "word": 9, "bit": 9},
        {"probe": "compute_exact", "kind": "nan", "dtype": "float32"},
    )
    verdict = real_verdict("memory_patterns")
    assert verdict.outcome is Outcome.FAIL
    # Of patterns that come later, a busy machine leaves some out.
    assert {name: value for name, value in wrong(verdict).items() if value} == {"solid 00": 1}
    assert "word 9 xor 0000000000000200" in verdict.reason
