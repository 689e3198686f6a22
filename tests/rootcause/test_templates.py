"""Templates recognise an unknown fault with another name in it, and separate two that only begin alike."""

import pytest

from runner.rootcause import templates
from runner.rootcause.templates import MAX_KNOWN, last_alike

LEASE = "RuntimeError: worker {} lost its lease on shard {} of the corpus"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            LEASE.format("alpha", "train"),
            "i3",
            # The same words; newer similar ones come second.
        ),
        (LEASE.format("gamma", "train"), "i5"),
        (LEASE.format("gamma", "test"), "i5"),
        # One of two words is equal.
        ("KeyError: 'weights'", ""),
        ("RuntimeError: worker alpha lost its way on shard train", ""),
        ("", ""),
    ],
)
def test_the_newest_similar_template_wins(line: str, name: str) -> None:
    """Words are compared position by position."""
    known = {
        "i1": LEASE.format("beta", "train"),
        "i2": "KeyError: 'bias'",
        "i3": LEASE.format("alpha", "train"),
        "i4": "OSError: the reader of shard train has gone",
        "i5": LEASE.format("beta", "dev"),
    }
    assert last_alike(line, known) == name


def test_no_template_matches_in_an_empty_history() -> None:
    """The first unknown fault of a cluster has no similar one."""
    assert last_alike("Error: a", {}) == ""


def test_only_the_newest_templates_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may run for years."""
    monkeypatch.setattr(templates, "MAX_KNOWN", 2)
    known = {f"i{number}": f"Error: {'abc'[number]} happened to all of us" for number in range(3)}
    assert last_alike("Error: a happened to all of us", known) == "i2"
    assert last_alike("Error: a happened to all of us", {"i0": known["i0"]}) == "i0"
    assert MAX_KNOWN > 2


def test_lines_may_hold_anything() -> None:
    """Ranks write arbitrary text."""
    templates = {"i1": "<*> <*> <*>", "i2": "%s {} \x00 \ud800", "i3": "x" * 5000, "i4": " "}
    for line in (*templates.values(), "<*> a b", "\n\t"):
        last_alike(line, templates)
