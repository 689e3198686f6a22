"""The table of faults is the one place that names them."""

import ast
from pathlib import Path
from typing import get_args

from runner.facts.faults import FAULTS, ActionClass
from runner.load.fault_meanings import ACTION_MEANINGS, MEANINGS
from runner.load.runbooks import load_runbooks

RUNNER = Path(__file__).parent.parent.parent / "runner"
ROOMS = ("decide", "detect", "rootcause", "facts", "collect")
# Calls whose first argument is a fault.
NAMING = ("note", "incident", "recovery", "open_incident", "fingerprint")


def _names(file: Path) -> list[str]:
    """Return every fault that a file names as a literal."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            given = [word.value for word in node.keywords if word.arg == "fault"]
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = called.id if isinstance(called, ast.Name) else called
            given += node.args[:1] if name in NAMING else []
            found += [
                one.value
                for one in given
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    return [name for name in found if name]


def test_every_fault_named_in_the_code_has_a_row() -> None:
    """A misspelt fault would have no page and no answer."""
    named = {
        name: str(file)
        for room in ROOMS
        for file in (RUNNER / room).rglob("*.py")
        for name in _names(file)
    }
    assert len(named) > 30
    drills = ("kill", "die")
    assert {name: file for name, file in named.items() if name not in (*FAULTS, *drills)} == {}


def test_one_page_answers_each_fault() -> None:
    """Whether it opens an incident or explains one: each cause has exactly one page."""
    answered = sorted(fault for book in load_runbooks().values() for fault in book.faults)
    assert answered == sorted(FAULTS)


def test_what_lines_explain_is_fatal_unless_a_page_answers_it() -> None:
    """A cause without a page is only ever found when a gang has died."""
    assert all(kind.is_fatal for kind in FAULTS.values() if not kind.opens_incident)


def test_each_name_and_each_class_of_action_has_a_meaning_for_people() -> None:
    """`stoker diagnose` prints it, and docs/faults.md has it; a name without one would be no help at night."""
    assert list(MEANINGS) == list(FAULTS)
    assert set(ACTION_MEANINGS) == set(get_args(ActionClass))
    for meaning in MEANINGS.values():
        assert 10 < len(meaning.what) < 110
        assert 10 < len(meaning.advice) < 110
