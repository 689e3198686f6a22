"""The code uses the field's language: words, names of modules, the glossary. `python -m tests.measures` lists every place."""

import ast

import pytest

from tests import measures


def test_no_identifier_has_a_forbidden_word() -> None:
    """Functions, classes, parameters, variables, attributes and modules are named by standard words."""
    assert measures.forbidden_identifiers() == {}


def test_no_sentence_lacks_its_subject() -> None:
    """Comments, docstrings, messages and pages name who acts."""
    assert measures.forbidden_prose() == {}


def test_no_module_is_a_gerund() -> None:
    """Modules are nouns, and stages verbs."""
    assert measures.gerund_modules() == []


def test_the_glossary_has_one_entry_for_each_word() -> None:
    """A second entry is a second meaning."""
    assert measures.glossary_twice() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("num_lost_bytes", ["num", "lost", "bytes"]),
        ("numLostBytes", ["num", "lost", "bytes"]),
        ("XIDEvent2", ["xid", "event"]),
        ("_HEARD", ["heard"]),
    ],
)
def test_a_name_is_split_at_its_joints(name: str, words: list[str]) -> None:
    """Snake case, camel case and capitals."""
    assert measures.joints(name) == words


def test_every_kind_of_name_is_checked() -> None:
    """Functions, parameters, variables, attributes, aliases, classes; names that are only used are not."""
    code = (
        "import os as a\nclass B:\n  c: int\n  def d(self, e, *f, **g): self.h = used.i\n"
        "try: pass\nexcept E as j: pass\nfor k in used: pass\nwith used as l: pass\nm = [n for n in used]\n"
    )
    source = measures.Source("x.py", code, ast.parse(code))
    names = {place.text for place in measures.identifiers(source)}
    assert names - {"self"} == set("aBcdefghjklmn")
