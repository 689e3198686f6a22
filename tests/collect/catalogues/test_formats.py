"""A format string finds the lines that are printed with it, whatever its conversions print, and no line that is only alike."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.collect.catalogues.formats import Style, line_pattern
from tests.collect.catalogues.rendered import rendered


def is_found(text: str, style: Style, line: str) -> bool:
    """Whether a line has the words, the literal and the pattern of a format."""
    pattern = line_pattern(text, style)
    words = set(re.findall(r"\w+", line.lower()))
    found = re.search(pattern.regex, line, re.IGNORECASE)
    return found is not None and pattern.literal in line.lower() and words >= set(pattern.words)


@pytest.mark.parametrize(
    ("style", "text", "line"),
    [
        ("printf", "%s: lost %d of %5.1f%% in %pM", "eth0: lost 3 of  12.5% in b8:3f:d2:01:0a:0c"),
        ("printf", "nvme%d: I/O %d QID %u timeout", "nvme3: I/O 17 QID 4 timeout, aborting"),
        ("printf", "%-8s|%*d|%.3s| done with it", "ab      |  17|abc| done with it"),
        ("printf", "peer %pI4:%hu refused (%pe)", "peer 10.0.0.1:99 refused (-EIO)"),
        ("printf", "Failed\tto %(what)s: 100%  of it", "failed  to load: 100%  of it"),
        ("printf", "addr %#lx, errno %m, %v", "addr 0x7f00, errno No such file, {1 2}"),
        ("printf", "got %d\tmore\n\nthan two lines of it", "than two lines of it"),
        ("braces", "rank {rank} of {x['a']!r:>{w}} {{set}} ended", "rank 3 of   'b' {set} ended"),
        ("braces", "took {seconds:.2f} s, {size:,d} bytes: {} broke", "took 1.25 s, 3 bytes: x broke"),
        ("braces", "an open {brace", "an open anything"),
        ("plain", "100% of {all} that %s may be (a|b)*", "x 100% of {all} that %s may be (a|b)*"),
    ],
)  # fmt: skip
def test_conversions_of_each_style(style: Style, text: str, line: str) -> None:
    """As the emitters' languages print them."""
    assert is_found(text, style, line)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        (
            "command %s(0x%x) of the port failed, status %s(0x%x), err(%d)",
            "command QUERY(0x7) of the port failed, status busy(0x3)",
        ),
        (
            "the adapter reports bad alignment of link %d (fw %s)",
            "the adapter reports bad alignment of link 3",
        ),
    ],
)
def test_a_field_that_was_added_at_the_end_may_be_missing(newer: str, older: str) -> None:
    """Emitters add a number behind a sentence from one version to the next; a sentence's own last words must be there."""
    assert is_found(newer, "printf", older)
    assert not is_found("the adapter reports bad alignment of link %d tries", "printf", older)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("device %d failed", "device eth0 failed"),
        ("device %s failed", "device" + "x" * 300 + " failed"),
        ("device failed", "device failedness"),
        ("device failed", "subdevice failed"),
        ("at %x failed", "at xyz failed"),
    ],
)
def test_typed_gaps_words_and_bounds(text: str, line: str) -> None:
    """What a format cannot have printed is not found."""
    assert not is_found(text, "printf", line)


# A percent sign of a literal is written twice.
_LITERALS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"])).map(
    lambda literal: literal.replace("%", "%%")
)
_PIECES = st.one_of(
    st.sampled_from(["%s", "%d", "%5u", "%#x", "%.2f", "%pM", "%c", "%%", "%-*s"]), _LITERALS
)


@pytest.mark.costly
@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=8), st.integers(0, 1 << 32))
def test_any_format_finds_its_own_lines(pieces: list[str], seed: int) -> None:
    """For every literal: the pattern is valid, and its line matches as it is and in capital letters of ASCII."""
    text = "".join(pieces)
    line = rendered(text, "printf", random.Random(seed))
    pattern = line_pattern(text, "printf")
    assert re.search(pattern.regex, line, re.IGNORECASE) is not None


def test_a_format_of_many_gaps_has_a_bounded_cost() -> None:
    """A gap ends at the first place that fits, and no other is tried."""
    pattern = line_pattern("a %s " * 100 + "end of it", "printf")
    assert re.search(pattern.regex, "a b " * 5000, re.IGNORECASE) is not None
    pattern = line_pattern("x %s y %s y %s y %s y %s y %s y %s end", "printf")
    assert re.search(pattern.regex, "x " + "y " * 5000, re.IGNORECASE) is None
