"""Literals are searched for by prefixes, and found where they are: all of them, nothing else, and each once."""

import random
from collections.abc import Sequence

from runner.collect.catalogues.literals import ENDING, MOST_HARMLESS, grouped

ENDS_ALIKE = ("failed to read the index", "cannot open: failed to read page 3", "disk")
LITERALS = (
    *ENDS_ALIKE,
    *("failed to read the table", "failed to read", "failed to", "unable to failed to readable"),
    *("größe of the queue is negative", "größe of the queue is odd", "a failed to read"),
)


def found(literals: Sequence[str], block: bytes) -> list[tuple[int, int]]:
    """Return the numbers and ends of literals in a block, as an engine that finds their prefixes leads to them."""
    prefixes, groups = grouped(literals, ())
    lowered = block.lower()
    return sorted(
        place
        for prefix, group in zip(prefixes, groups, strict=True)
        for end in range(len(block) + 1)
        if lowered[:end].endswith(prefix.encode())
        for place in group.literals_at(block, end)
    )


def numbers(literals: Sequence[str]) -> dict[bytes, int]:
    """Return the number of each literal."""
    prefixes, groups = grouped(literals, ())
    return {
        prefix.encode() + rest: number
        for prefix, group in zip(prefixes, groups, strict=True)
        for number, rest in enumerate(group.rests, group.first)
    }


def test_each_literal_has_a_number_of_its_own() -> None:
    """Literals with the same prefix, too; one that comes twice has one number."""
    known = numbers([*LITERALS, LITERALS[0]])
    assert set(known) == {literal.encode() for literal in LITERALS}
    assert sorted(known.values()) == list(range(len(LITERALS)))


def test_literals_are_found_by_their_prefixes_where_they_are() -> None:
    """In any case of letters, cut off by the end of a block, and mixed with parts of others."""
    known, dice = numbers(LITERALS), random.Random(1)
    parts = [literal[: dice.randrange(5, 40)] for literal in LITERALS for _ in range(3)]
    for _ in range(50):
        chosen = dice.choices([*parts, *LITERALS, "FAILED TO READ THE INDEX", "\n"], k=12)
        block = " ".join(chosen).encode()[: dice.randrange(50, 400)]
        lowered = block.lower()
        expected = sorted(
            (number, end)
            for literal, number in known.items()
            for end in range(len(block) + 1)
            if lowered[:end].endswith(literal)
        )
        assert found(LITERALS, block) == expected


def test_prefixes_end_alike() -> None:
    """Where many literals have the same characters; short ones are not cut."""
    prefixes, _ = grouped(ENDS_ALIKE, ())
    assert prefixes == ["cannot open: failed to re", "disk", "failed to re"]


def test_prefixes_do_not_end_as_lines_of_healthy_logs_do() -> None:
    """An ending that many harmless literals have would be found in most lines."""
    harmless = [f"{number} to read data" for number in range(MOST_HARMLESS + 1)]
    prefixes, _ = grouped(ENDS_ALIKE, harmless)
    endings = [prefix[-ENDING:] for prefix in prefixes]
    assert not any(ending in harmless[0] for ending in endings)
    assert len(grouped(ENDS_ALIKE, harmless[1:])[0]) == len(ENDS_ALIKE)
