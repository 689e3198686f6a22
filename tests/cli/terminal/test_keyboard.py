"""What a terminal sends, as keys."""

import pytest

from runner.cli.terminal.keyboard import keys_of


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA", ["up"]),
        ("\x1b[5~\x1b[6~", ["page up", "page down"]),
        ("\r \x1b", ["enter", "page down", "escape"]),
        # A mouse, a function key, a pasted control character: one key without a meaning each.
        ("\x1b[15~q", ["", "q"]),
        ("\x1b[<0;10;20M", [""]),
        ("\x00", [""]),
        ("é", ["é"]),
        ("", []),
    ],
)
def test_sequences_are_single_keys(sent: str, keys: list[str]) -> None:
    """No part of a sequence counts as a letter that a person pressed."""
    assert keys_of(sent) == keys
