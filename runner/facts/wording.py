"""Lists and suggestions for messages that people read."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

# Of one list in one sentence. Chosen, not measured.
MAX_WORDS = 16
# Characters of one piece of text from outside. Chosen, not measured.
MAX_TEXT = 240


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """Make text from outside harmless on a terminal, and at most `limit` characters long."""
    cut = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return "".join(ch if ch.isprintable() else " " for ch in cut).strip()


def visible(text: str) -> str:
    """Replace what a terminal would obey or turn around (control and bidirectional characters); the ends of lines stay."""
    if text.isprintable():
        return text
    return "".join(
        ch if ch.isprintable() or ch == "\n" else "\N{REPLACEMENT CHARACTER}" for ch in text
    )


def printable_words(words: Sequence[str]) -> str:
    """List words from outside, the first few of many: `n1, n2, n3 and 1997 more`."""
    return join_words([printable(word, 60) for word in words])


def setting(value: object) -> str:
    """Write a setting's value, floats with six digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(values: Mapping[str, object], names: Iterable[str]) -> str:
    """List the settings of these names that have a value, each once; "" for none. An empty list is no value: nothing is skipped."""
    shown = [name for name in dict.fromkeys(names) if values.get(name) not in (None, [], ())]
    return ", ".join(f"{name} {setting(values[name])}" for name in shown)


def join_words(words: Sequence[object], *, most: int = MAX_WORDS) -> str:
    """List the first few of many: `n1, n2, n3 and 1997 more`; "" for none."""
    more = len(words) - most
    shown = ", ".join(str(word) for word in words[:most])
    return f"{shown} and {more} more" if more > 0 else shown


def counted(num: int, noun: str) -> str:
    """Write how many there are: `1 node`, `3 nodes`."""
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant; "" when none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def known_words(
    word: str, known: Iterable[str], *, label: str = "known", most: int = MAX_WORDS
) -> str:
    """Write which word was meant, if that is clear, and which are known: `did you mean 'n1'? known: n1, n2`."""
    unique = list(dict.fromkeys(known))
    near = closest(word, unique)
    hint = f"did you mean {near!r}? " if near else ""
    return f"{hint}{label}: {join_words(unique, most=most) or 'none'}"


def valid_text(text: str) -> str:
    r"""Escape lone surrogates, which JSON can hold as `"\ud800"` and no message can, as `\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode()
