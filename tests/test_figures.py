"""README's figures are those of the result files that it links to."""

import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\((bench/results/[\w-]+\.txt)\)")
MARKED = re.compile(r"<!-- figures -->\n(.*?)<!-- /figures -->", re.DOTALL)
FIGURE = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?) (s|ms|MB|of a core)(?!\w)")
# A line of a result file after its name: the value, perhaps its smallest and largest, and the unit.
VALUE = re.compile(
    r"(?P<value>[\d.]+)(?: \([\d.]+ to (?P<most>[\d.]+)\))? (?P<unit>s|ms|MB|cores)\b"
)

SCRIPT = "kill -9 of a rank, script, 2 ranks: "
BESIDE = f"{SCRIPT}resident beside the ranks, "
PEERS = (
    "nvidia-resiliency-ext 0.4.1 ft_launcher (torch 2.13.0+cpu)",
    "torchrun (torch 2.13.0+cpu)",
)
KILLED = tuple((f"{SCRIPT}{each} | ",) for each in ("Stoker", *PEERS))
# Row of the table -> for each launcher, the line of the result file behind each figure of its cell.
ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "kill -9 of a rank to the first new step": KILLED,
    "the slowest of ten such rounds": KILLED,
    "SIGSTOP of a rank to the first new step, script without a client": (
        ("SIGSTOP of a rank, script without a client, steps of 50 ms, 2 ranks | ",),
        *((f"SIGSTOP of a rank, {each}: no new step within ",) for each in PEERS),
    ),
    "a whole node killed, one spare (heartbeat timeout 1.5 s)": (
        ("whole node killed, a spare, script, 2 ranks | ",),
        (),
        (),
    ),
    "resident memory beside the ranks": (
        (
            f"{BESIDE}Stoker without its warm processes | ",
            f"{SCRIPT}resident, warm process of n1 | ",
            f"{SCRIPT}own share of it (pages shared by n count 1/n), n1 | ",
        ),
        *((f"{BESIDE}{each} | ",) for each in PEERS),
    ),
}
# Row of the table "tried on" -> the lines behind its figures, and what its words rest on.
TRIED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "2,000 nodes": (
        ("supervisor | ", "all 400 decisions, 99 % | "),
        {"2,000 nodes": "method: 2000 agents", "99 % of decisions": "all 400 decisions, 99 % |"},
    ),
    "one GPU": (
        (),
        {
            "one H100": "method: NVIDIA H100",
            "with one rank": "gpu: one rank on one GPU",
            "torch 2.11": "torch 2.11.",
            "four kills": "after 4 kills",
            "bit-identical": "difference of the last loss | 0 nats",
        },
    ),
}


def table(text: str) -> dict[str, list[str]]:
    """Return the rows of a Markdown table: first cell -> the others."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows if row[0]}


def measured(result: str, line: str, *, most: bool) -> tuple[str, str]:
    """Return value and unit of the one line of a result file that starts so; `most`: the largest of its rounds."""
    (rest,) = [
        each.strip().removeprefix(line)
        for each in result.splitlines()
        if each.strip().startswith(line)
    ]
    match = VALUE.match(rest)
    assert match is not None, rest
    value, unit = str(match["most" if most else "value"]), str(match["unit"])
    return value, unit.replace("cores", "of a core")


def rounded(value: str, figure: str) -> str:
    """Round a value to the decimals of a figure, half up."""
    return str(Decimal(value).quantize(Decimal(figure), ROUND_HALF_UP))


def wrong_figures(
    cell: str, lines: tuple[str, ...], result: str, *, most: bool = False
) -> list[str]:
    """Return what a cell says differently from the lines of the result file, in their order."""
    figures = FIGURE.findall(cell)
    if len(figures) != len(lines):
        return [f"{cell!r} has {len(figures)} figures, {len(lines)} lines are named for it"]
    found = [measured(result, line, most=most) for line in lines]
    return [
        f"{cell!r}: {figure} {unit}, measured {value} {measured_in}"
        for (figure, unit), (value, measured_in) in zip(figures, found, strict=True)
        if (rounded(value, figure), measured_in) != (figure, unit)
    ]


def linked(text: str) -> str:
    """Return the result file that a text links to."""
    (name,) = LINK.findall(text)
    return (ROOT / str(name)).read_text(encoding="utf-8")


def wrong_in_the_marked(readme: str) -> list[str]:
    """Return the figures between the marks that are not in the result file."""
    (marked,) = MARKED.findall(readme)
    rows, result = table(marked), linked(marked)
    assert list(rows) == list(ROWS)
    wrong: list[str] = []
    for name, cells in rows.items():
        for cell, lines in zip(cells, ROWS[name], strict=True):
            wrong += wrong_figures(cell, lines, result, most=name.startswith("the slowest"))
    return wrong


def test_figures_between_the_marks() -> None:
    """Each cell is the value of its line in the result file, rounded to the decimals shown."""
    assert wrong_in_the_marked(README) == []


def test_method_between_the_marks() -> None:
    """Rounds and versions are those of the result file."""
    (marked,) = MARKED.findall(README)
    method = {
        "medians of 10 rounds": "method: 10 rounds of each case",
        "NVRx 0.4.1": "nvidia-resiliency-ext 0.4.1",
        "torchrun 2.13": "torchrun (torch 2.13.",
        "two ranks": "two-rank DDP",
        "two shared cores": "2 cores",
    }
    assert [words for words in method if words not in marked] == []
    assert [words for words in method.values() if words not in linked(marked)] == []


def test_a_wrong_figure_is_found() -> None:
    """Another digit, another unit and one figure more are each reported."""
    for right, other in (
        ("| 2.46 s", "| 2.47 s"),
        ("540 MB", "540 ms"),
        ("120 MB", "120 MB, 1 MB"),
    ):
        assert README.count(right) == 1
        assert len(wrong_in_the_marked(README.replace(right, other))) == 1


@pytest.mark.parametrize("row", TRIED)
def test_figures_of_what_was_tried(row: str) -> None:
    """Figures and words of a row are in the result file that it links to."""
    (state,) = table(README)[row]
    lines, words = TRIED[row]
    result = linked(state)
    assert wrong_figures(state, lines, result) == []
    text = f"{row} {state}"
    assert [(ours, theirs) for ours, theirs in words.items() if ours not in text] == []
    assert [(ours, theirs) for ours, theirs in words.items() if theirs not in result] == []


def test_every_linked_row_is_compared() -> None:
    """No row of README's tables links to a result file without being compared with it."""
    rows = table(README)
    assert [name for name, cells in rows.items() if LINK.search(" ".join(cells))] == list(TRIED)
