"""docs/design/lifecycles.md shows the life cycles that the code runs."""

from pathlib import Path

from runner.facts import lifecycles

PAGE = Path(__file__).parent.parent / "docs" / "design" / "lifecycles.md"
START, END = "<!-- lifecycles -->\n", "<!-- /lifecycles -->"


def drawn() -> str:
    """Print all life cycles as the page shows them."""
    tables = {
        "run": lifecycles.RUN,
        "attempt": lifecycles.ATTEMPT,
        "incident": lifecycles.INCIDENT,
        "action": lifecycles.ACTION,
    }
    lines = ["node:"]
    for why, sources, targets in lifecycles.NODE_MOVES:
        lines += [f"  {why}:", f"    {', '.join(sources)} -> {', '.join(targets)}"]
    for name, table in tables.items():
        moves = [f"  {state:<10} -> {', '.join(to) or '(end)'}" for state, to in table.items()]
        lines += [f"{name}:", *moves]
    return "```\n" + "\n".join(lines) + "\n```\n"


def test_life_cycles_on_the_page_are_those_in_the_code() -> None:
    """The page's life cycles are printed from the tables; run this file as a script to rewrite them."""
    text = PAGE.read_text()
    assert text[text.index(START) + len(START) : text.index(END)] == drawn()


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(START) + len(START)] + drawn() + page[page.index(END) :])
