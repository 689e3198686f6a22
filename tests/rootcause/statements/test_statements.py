"""Statements in plain words, of programs without a list of their own: where they end a log they name its fault."""

import pytest

from runner.collect.catalogues.cache import FOLDER
from runner.collect.catalogues.files import paths_in, read_catalogue
from runner.facts.faults import FAULTS
from runner.rootcause.statements import STATEMENTS, Statement, statement_of
from tests.collect.diagnosed_logs import verdicts_of

START = "2026-05-01 10:00:00 the run starts with 128 ranks\n"
STEPS = "step 3 loss 2.25\nstep 4 loss 2.125\n"
AT = "2026-05-01 11:12:13 "


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: f"{one.fault}: {one.sample[:40]}")
def test_a_statement_names_its_fault_and_what_is_near_it_is_none(statement: Statement) -> None:
    """After the start of a log, and after steps; what is only near it says nothing."""
    assert statement_of(statement.sample) is statement
    assert statement_of(statement.near) is None
    for before in (START, STEPS):
        (verdict, *_) = verdicts_of(f"{before}{AT}{statement.sample}\n")
        assert verdict.cause.fault == statement.fault
        assert verdict.evidence[0].line == before.count("\n") + 1
        assert verdicts_of(f"{before}{AT}{statement.near}\n") == []


def test_every_row_names_a_fault_of_the_list() -> None:
    """A name that docs/faults.md does not have is a mistake."""
    assert {one.fault for one in STATEMENTS} <= set(FAULTS)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("coordinator: only 16 of 16 workers registered", ""),
        ("coordinator: only 12 of 16 workers registered", "rendezvous"),
        ("watch: step time 3.4 s, usually 3.1 s", ""),
        ("watch: step time 6.4 s, usually 3.1 s", "throughput_drop"),
        ("link test: pair (n3,n9) achieved 390 Gb/s of 400", ""),
        ("link test: pair (n3,n9) achieved 90 Gb/s of 400", "nccl_network"),
        ("amp: 2 consecutive steps were skipped", ""),
        ("amp: 12 consecutive steps were skipped", "skipped_steps"),
    ],
)
def test_the_numbers_of_a_sentence_must_bear_it_out(line: str, fault: str) -> None:
    """All of them came, nearly as fast as ever, only twice: nothing is wrong."""
    stated = statement_of(line)
    assert (stated.fault if stated is not None else "") == fault


@pytest.mark.parametrize(
    "sentence",
    [
        "if the loss is nan, stopping is what --on-nan chooses",
        "checking whether accelerator 3 has stopped responding",
        "accelerator 3 has stopped responding and has recovered",
        "the storage is read-only by default",
        "may be killed by the OOM killer",
        "was the checkpoint damaged?",
        "GPU %d is missing",
        "dropped 14 examples, which could not be decoded",
    ],
)
def test_what_is_asked_supposed_or_over_is_not_stated(sentence: str) -> None:
    """Settings, checks, questions, formats, and what a program dealt with."""
    assert statement_of(sentence) is None


def test_what_steps_follow_or_a_good_end_was_survived() -> None:
    """Only what nothing follows has ended the run."""
    sentence = f"{AT}supervisor: 12 consecutive steps were skipped\n"
    assert verdicts_of(STEPS + sentence + "step 5 loss 2.0\nstep 6 loss 2.0\n") == []
    assert verdicts_of(STEPS + sentence + "Training finished successfully.\n") == []


@pytest.mark.parametrize("level", ["INFO", "DEBUG", "WARNING"])
def test_a_line_below_the_level_of_errors_states_nothing(level: str) -> None:
    """Its emitter knows better."""
    assert verdicts_of(f"{STEPS}{AT}{level} agent: accelerator 3 has stopped responding\n") == []


@pytest.mark.costly
def test_the_lines_of_known_emitters_are_read_as_their_sources_mean_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Few formats of all catalogues below the level of errors state a fault; of errors, nine of ten state the right one."""
    num_lower = num_stated = num_errors = num_right = 0
    for path in paths_in(FOLDER):
        for row in read_catalogue(path).rows:
            stated = statement_of(row.format)
            if row.level != "error":
                num_lower += 1
                num_stated += stated is not None
            elif stated is not None and row.fault:
                num_errors += 1
                num_right += stated.fault == row.fault
    with capsys.disabled():
        print(
            f"\nplain statements: {num_stated} of {num_lower} formats of lower levels state a fault;"
            f" of {num_errors} errors that state one, {num_right} name that of their catalogue"
        )
    assert num_stated <= 0.005 * num_lower
    assert num_right >= 0.9 * num_errors
