"""The pages for people who begin: what they quote is printed, what they name exists, what they call readable is read."""

import re
from functools import cache
from pathlib import Path

import pytest

from runner.cli.main import COMMANDS
from runner.collect.step_formats.formats import MetricLines
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec

ROOT = Path(__file__).parents[2]
PAGES = (
    "coming_from_torchrun",
    "what_you_get",
    "troubleshooting",
    "checkpoints",
    "watch_only",
    "client",
    "web",
)
# Not of Stoker's own code.
OF_OTHERS = ("No module named torch", "input()", "-")
NUMBERS = re.compile(r"\d+")


def page(name: str) -> str:
    """Return a page."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@cache
def source() -> str:
    """Return all code of the control plane, with literals that follow each other joined and what is filled in as one blank."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("runner/**/*.py"))]
    joined = re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts))
    return re.sub(r"\{[^{}]*\}", " ", joined)


@pytest.mark.parametrize("name", PAGES)
def test_links_and_commands_of_a_page_lead_somewhere(name: str) -> None:
    """Each file that is linked is there, and each `stoker COMMAND`."""
    text = page(name)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (ROOT / "docs" / link).exists(), link
    for command in re.findall(r"`stoker ([a-z]+(?:-[a-z]+)*)", text):
        assert command in COMMANDS, command


@pytest.mark.parametrize("name", PAGES)
def test_settings_that_a_page_names_exist(name: str) -> None:
    """Of run.yaml or cluster.yaml, by their form."""
    known = {*RunSpec.__struct_fields__, *ClusterSpec.__struct_fields__}
    named = re.findall(r"`([a-z]+(?:_[a-z]+)+)(?::[^`]*)?`", page(name))
    assert {word for word in named if word.endswith(("_seconds", "_pattern", "_progress"))} <= known
    for field in ("preload", "environment", "python", "checkpoints"):
        assert field in known


def quoted_messages() -> list[str]:
    """Return what the first column of the page on trouble quotes."""
    rows = [line.split("|")[1] for line in page("troubleshooting").splitlines() if "|" in line]
    found = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    return [
        quote
        for quote in found
        if quote not in OF_OTHERS and not quote.startswith(("stoker ", "run is waiting"))
    ]


@pytest.mark.parametrize("quote", quoted_messages())
def test_a_message_that_the_page_quotes_is_one_that_the_code_prints(quote: str) -> None:
    """In its own words; numbers are filled in."""
    parts = [part.strip() for part in NUMBERS.split(quote)]
    assert all(part in source() for part in parts if len(part) > 2), quote


def test_the_page_quotes_many_messages() -> None:
    """The pattern above finds them."""
    assert len(quoted_messages()) >= 12


def test_lines_that_are_called_readable_are_read() -> None:
    """Those of the page, as the lines of one run each."""
    (line,) = [
        line for line in page("what_you_get").splitlines() if line.startswith("One line for")
    ]
    samples = re.findall(r"`([^`]+)`", line)
    assert len(samples) == 3
    for sample in samples:
        lines = MetricLines()
        read = lines.parse(sample)
        assert read is not None, sample
        assert read.numbers.get("loss") == 3.1, sample
