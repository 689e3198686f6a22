"""What code of Python writes is read as formats with braces, with level and exception."""

from textwrap import dedent

import pytest

from tools.catalogues.python.statements import Statement, statements


def _read(source: str) -> list[tuple[str, str, str]]:
    return [(one.format, one.level, one.exception) for one in statements(dedent(source))]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('"no field"', "no field"),
        ('"a literal {brace}"', "a literal {{brace}}"),
        ('f"loss {loss:.3f} of rank {rank!r}"', "loss {} of rank {}"),
        ('f"{{literal}} {x}"', "{{literal}} {}"),
        ('"loss %.3f of %d %%" % (loss, rank)', "loss {} of {} %"),
        ('"%(name)s is gone" % names', "{} is gone"),
        ('"loss {:.3f} of {rank}".format(loss, rank=rank)', "loss {} of {}"),
        ('"first " + name + " last"', "first {} last"),
        ('"joined " "strings"', "joined strings"),
        ('("%s" + " of %s") % (a, b)', "{} of {}"),
        ('f"{a}{b} of two"', "{} of two"),
        ('textwrap.dedent("""indented""")', "indented"),
    ],
)
def test_an_expression_becomes_a_format_with_a_field_for_what_varies(
    expression: str, expected: str
) -> None:
    """Every way to build a string gives the same kind of format."""
    assert _read(f"raise ValueError({expression})") == [(expected, "error", "ValueError")]


def test_each_kind_of_statement_has_its_level() -> None:
    """Loggers, warnings, asserts, exits, prints of one rank and argument parsers are read."""
    source = """
        logger.error("reading %s failed", path)
        self._log.exception("gone")
        LOG.critical("the end is near")
        logger.warning("a warning"); warnings.warn("another", UserWarning)
        rank_zero_info("one rank logs"); logging.debug("a detail")
        log_dist("all ranks log", ranks=[0], level=logging.ERROR)
        print(f"ERROR: {name} is not there"); print("a note", 3)
        assert size > 0, f"size {size} is not positive"
        parser.error("an argument is missing")
        sys.exit("bad settings")
        torch._check(x > 0, lambda: f"x is {x}")
        math.log(3); figure.error("no logger")
    """
    assert _read(source) == [
        ("reading {} failed", "error", ""),
        ("gone", "error", ""),
        ("the end is near", "error", ""),
        ("a warning", "warning", ""),
        ("another", "warning", ""),
        ("one rank logs", "info", ""),
        ("a detail", "debug", ""),
        ("all ranks log", "error", ""),
        ("ERROR: {} is not there", "error", ""),
        ("a note {}", "info", ""),
        ("size {} is not positive", "error", "AssertionError"),
        ("an argument is missing", "error", "SystemExit"),
        ("bad settings", "error", "SystemExit"),
        ("x is {}", "error", "RuntimeError"),
    ]


def test_a_name_is_followed_to_the_texts_that_it_is_assigned() -> None:
    """A message that is built above its exception counts, with each of its alternatives."""
    source = """
        PREFIX = "shard "
        def read(path):
            message = PREFIX + f"{path} is empty" if path else "no path"
            def other():
                message = "of another function"
            raise OSError(message)
    """
    assert _read(source) == [
        ("shard {} is empty", "error", "OSError"),
        ("no path", "error", "OSError"),
    ]


def test_the_text_of_an_exception_is_read_from_its_class() -> None:
    """What a class formats, and what its constructor hands to its base, is a message of this class."""
    source = """
        class NoCredentialsError(BotoError):
            fmt = "Unable to locate {what}"
        class ShardError(Exception):
            def __init__(self, path):
                super().__init__(f"shard {path} is broken")
    """
    assert _read(source) == [
        ("Unable to locate {}", "error", "NoCredentialsError"),
        ("shard {} is broken", "error", "ShardError"),
    ]


def test_what_has_no_constant_words_is_left_out() -> None:
    """An exception that wraps another one has no words of its own."""
    assert (
        _read(
            "raise ValueError(error)\nraise ValueError(a if b else False)\nraise\nraise error\nlogger.error(e)"
        )
        == []
    )


def test_a_module_that_refers_to_itself_is_read_to_an_end() -> None:
    """Names that refer to each other end after a few steps."""
    found = statements('def f():\n    a = b + "x"\n    b = a + "y"\n    raise ValueError(a)')
    assert all(isinstance(one, Statement) for one in found)
