"""The form of the code: folders, circles of imports, names of classes, widths. `python -m tests.measures` prints all measures."""

import ast

import pytest

from tests import measures

# A folder that outgrows a dozen files wants a second look; beyond this it wants rooms.
MAX_FILES = 15


def test_no_folder_is_without_rooms() -> None:
    """No folder of the shipped packages or of their tests has more modules than can be kept in mind."""
    counts = measures.files_per_folder(("runner", "trainer", "healthchecks", "runbooks", "tests"))
    assert {folder: n for folder, n in counts.items() if n > MAX_FILES} == {}


def test_rooms_import_in_no_circle() -> None:
    """No room of runner/ reaches itself by imports through another one."""
    assert measures.circles(measures.imports_between_rooms()) == []


def test_no_public_class_name_means_two_things() -> None:
    """A second class of the same name in runner/ gets another one."""
    assert measures.classes_defined_twice() == {}


def test_comments_are_above_their_lines() -> None:
    """Only directives of tools, and comments in tables of numbers, are behind code."""
    assert measures.trailing_comments() == []


def test_code_is_a_hundred_columns_wide() -> None:
    """Texts and comments may be wider."""
    assert measures.wide_lines() == []


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ([("a", "b"), ("b", "c")], []),
        ([("a", "b"), ("b", "a"), ("b", "c")], [["a", "b"]]),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")], [["a", "b", "c"]]),
        ([("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")], [["a", "b"], ["c", "d"]]),
    ],
)
def test_a_circle_is_found(edges: list[tuple[str, str]], found: list[list[str]]) -> None:
    """Circles of two and of more rooms, and only rooms that are in one."""
    assert measures.circles(edges) == found


def test_a_trailing_comment_and_a_wide_line_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directive, a comment above, and a comment in a table of numbers are not."""
    wide = f"total = {' + '.join(['value'] * 20)}"
    code = (
        f"a = 1  # so\n# above\nb = 2  # noqa: S101\n# fmt: off\nc = 3  # row\n# fmt: on\n{wide}\n"
    )
    source = measures.Source("x.py", code, ast.parse(code))
    monkeypatch.setattr(measures, "sources", lambda: (source,))
    assert [place.line for place in measures.trailing_comments()] == [1]
    assert [place.line for place in measures.wide_lines()] == [7]


def test_percentiles() -> None:
    """The smallest value that so many percent do not exceed."""
    values = list(range(1, 11))
    assert [measures.percentile(values, percent) for percent in (10, 50, 90, 100)] == [1, 5, 9, 10]
