"""A line is of the row that explains most of it; errors of a class are matches, harmless rows keep their lines from being one."""

import pytest

from runner.collect import engines
from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.diagnosis import Diagnosis
from runner.collect.scan import MAX_MATCHES, Scan
from tests.collect.catalogues.samples import catalogued, engine, matches

GAVE_UP = "port 3 of mlx5_0: link training gave up after 12 tries"


def test_an_error_of_a_class_is_a_match_with_its_rank_and_place(fabric: Catalogues) -> None:
    """Wrappings are removed, and case and spaces do not matter."""
    log = f"one\n[rank5]: {GAVE_UP}\ntwo\nPORT  0 of a b: Link Training gave up after 1 tries"
    first, second = catalogued(log, fabric)
    assert (first.fault, first.layer, first.scope) == ("nccl_network", "network", "fabric")
    assert (first.line, first.rank, first.text, first.file) == (2, 5, GAVE_UP, "log")
    assert first.weight == "primary"
    assert first.signature.startswith("fabric:port.c:")
    assert second.line == 4


def test_an_error_without_a_class_is_unknown_and_stays_in_the_last_layer(
    fabric: Catalogues,
) -> None:
    """It is evidence that something failed, whatever its emitter."""
    (match,) = catalogued("queue pair 1f3 entered an unforeseen state, error 3", fabric)
    assert (match.fault, match.layer, match.weight) == ("unknown", "other", "primary")


def test_the_row_that_explains_more_of_a_line_makes_it_harmless(fabric: Catalogues) -> None:
    """The emitter goes on after the words of an error: it recovered."""
    assert not catalogued(f"{GAVE_UP}, trained at half width", fabric)


def test_a_warning_with_a_class_supports_and_other_levels_are_nothing(fabric: Catalogues) -> None:
    """A warning names no fault alone."""
    (match,) = catalogued("warning: port 3 is congested, pausing senders", fabric)
    assert (match.fault, match.weight) == ("nccl_network", "supporting")
    assert not catalogued("error: polling port counters of mlx5_0 every 20 ms", fabric)


@pytest.mark.parametrize(
    "line",
    ["port x of mlx5_0: link training gave up after 12 tries", "flush failed", "disk: error",
     "sport 3 of m: link training gave up after 12 tries", GAVE_UP.replace("tries", "triesome")],
)  # fmt: skip
def test_near_misses_are_nothing(line: str, fabric: Catalogues) -> None:
    """A number is a number, words end where they end, and a row of too common words needs the word that it requires."""
    assert not catalogued(line, fabric)


def test_a_required_word_may_be_anywhere_in_the_line(fabric: Catalogues) -> None:
    """In the wrapping, too."""
    assert len(catalogued("FabricD[33]: flush failed", fabric)) == 1


def test_a_signature_that_names_a_fault_wins(fabric: Catalogues) -> None:
    """A line has one match that names its fault; a signature that knows no more than an exception does not count."""
    both = matches(f"CUDA out of memory. {GAVE_UP}", fabric)
    assert [match.known_by for match in both] == ["signature"]
    raised = matches(f"RuntimeError: {GAVE_UP}", fabric)
    assert [match.known_by for match in raised if match.fault == "nccl_network"] == ["catalogue"]
    unknown = matches("RuntimeError: queue pair 1f3 entered an unforeseen state", fabric)
    assert [match.known_by for match in unknown if match.fault] == ["signature"] * 2


def test_a_match_becomes_a_verdict(fabric: Catalogues) -> None:
    """Like the match of a signature."""
    diagnosis = Diagnosis(engine=engine(engines.version()), catalogues=fabric)
    log = diagnosis.log("rank0.log")
    log.feed(f"step 1\n{GAVE_UP}\n".encode())
    log.finish()
    (verdict,) = diagnosis.verdicts()
    assert verdict.cause.fault == "nccl_network"
    assert verdict.cause.lines == (f"rank0.log:2: {GAVE_UP}",)


def test_blocks_make_no_difference(fabric: Catalogues) -> None:
    """However a log is cut, each line is matched once."""
    data = f"a\n{GAVE_UP}\nb\nqueue pair 1f3 entered an unforeseen state, error\n".encode() * 3
    for size in (1, 7, 50, len(data)):
        scan = Scan("log", engine=engine(engines.version()), catalogues=fabric)
        found = [
            one.line
            for at in range(0, len(data), size)
            for one in scan.feed(data[at : at + size])
            if one.match is not None and one.match.known_by == "catalogue"
        ]
        assert found == [2, 4, 6, 8, 10, 12]


def test_an_unfinished_line_is_searched_and_matched_once(fabric: Catalogues) -> None:
    """A line that is flushed before its end is not reported again with its end."""
    scan = Scan("log", engine=engine(engines.version()), catalogues=fabric)
    found = [*scan.feed(GAVE_UP.encode()), *scan.flush(), *scan.feed(b" in all\n")]
    assert [one.line for one in found if one.match is not None] == [1]


def test_a_flood_of_one_row_is_counted_and_hides_no_other(fabric: Catalogues) -> None:
    """The first ones matter."""
    log = f"{GAVE_UP}\n" * (MAX_MATCHES + 500) + "queue pair 1f entered an unforeseen state, error"
    scan = Scan("log", engine=engine(engines.version()), catalogues=fabric)
    found = [*scan.feed(log.encode()), *scan.finish()]
    faults = [one.match.fault for one in found if one.match is not None]
    assert faults.count("nccl_network") == MAX_MATCHES
    assert faults[-1] == "unknown"
    assert scan.num_folded >= 500


@pytest.mark.costly
def test_hostile_lines_cost_no_more_than_their_length(fabric: Catalogues) -> None:
    """Long lines, words that repeat a format's beginning, bytes that are no text."""
    for line in (
        "port 3 of " * 10_000,
        "link training gave up after " * 3_000,
        "port 3 of mlx5_0: link training gave up after " + "9" * 2000,
        "\x00\xff" * 1000 + "port 1 of",
        " ".join(f"port{number} error" for number in range(5_000)),
    ):
        assert not catalogued(line, fabric)
