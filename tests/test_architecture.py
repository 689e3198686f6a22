"""docs/design/lifecycles.md shows the life cycles that the code runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.decide.nodes import lifecycle
from runner.decide.runs import attempts, reconcile
from runner.facts import actions, incidents

PAGE = Path(__file__).parent.parent / "docs" / "design" / "lifecycles.md"
START, END = "<!-- lifecycles -->\n", "<!-- /lifecycles -->"


def drawn() -> str:
    """Print all life cycles as the page shows them."""
    tables: dict[str, Mapping[Any, tuple[Any, ...]]] = {
        "node": lifecycle.TRANSITIONS,
        "run": reconcile.TRANSITIONS,
        "attempt": attempts.TRANSITIONS,
        "incident": incidents.TRANSITIONS,
        "action": actions.TRANSITIONS,
    }
    lines = []
    for name, table in tables.items():
        lines += [
            f"{name}:",
            *(
                f"  {state!s:<10} -> {', '.join(map(str, to)) or '(end)'}"
                for state, to in table.items()
            ),
        ]
    return "```\n" + "\n".join(lines) + "\n```\n"


def test_life_cycles_on_the_page_are_those_in_the_code() -> None:
    """The page's life cycles are printed from the tables; run this file as a script to rewrite them."""
    text = PAGE.read_text()
    assert text[text.index(START) + len(START) : text.index(END)] == drawn()


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(START) + len(START)] + drawn() + page[page.index(END) :])
