"""The file of addresses: what is read from it, and that no mistake in it is answered with a part of an address."""

from pathlib import Path

import pytest

from runner.act.pager.addresses import MAX_ADDRESSES, Address, read_addresses
from runner.errors import UserError

SECRET = "T0KEN"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file of addresses."""
    path = folder / "pages.addresses"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_addresses_have_a_name_and_a_number(tmp_path: Path) -> None:
    """Empty lines and comments count for nothing."""
    path = written(
        tmp_path,
        "# on call\noncall  https://a/x\n\nsecond\tslack://T/K\noncall alertmanagers://am:9093/p\nheartbeat http://h\n",
    )
    assert read_addresses(path) == (
        Address("oncall", 1, "https://a/x"),
        Address("second", 1, "slack://T/K"),
        Address("oncall", 2, "alertmanagers://am:9093/p"),
        Address("heartbeat", 1, "http://h"),
    )
    kinds = [(x.id, x.scheme, x.is_webhook, x.is_alertmanager) for x in read_addresses(path)]
    assert kinds[1:3] == [
        ("second/1", "slack", False, False),
        ("oncall/2", "alertmanagers", False, True),
    ]


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("oncall https://a\n", 0o644, "has mode 644: others may use it; `chmod 600 "),
        ("oncall https://a\n", 0o640, "has mode 640"),
        ("", 0o600, "has 0 addresses"),
        ("# nothing\n", 0o600, "has 0 addresses"),
        (f"oncall https://a\nslack://{SECRET}\n", 0o600, "line 2 is not NAME ADDRESS"),
        (f"oncall {SECRET}\n", 0o600, "line 1 is not NAME ADDRESS"),
        (f"On call https://{SECRET}\n", 0o600, "line 1 is not NAME ADDRESS"),
        (f"heartbeat slack://{SECRET}\n", 0o600, "heartbeat/1 is no http"),
        ("oncall https://a\n" * (MAX_ADDRESSES + 1), 0o600, "33 addresses; give 1 to 32"),
        ("#" * 100_000, 0o600, "is no file of addresses"),
    ],
)
def test_a_wrong_file_is_refused_without_a_part_of_it(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    """The message names file, line and the way out."""
    with pytest.raises(UserError, match=r"pages\.addresses_file: ") as refused:
        read_addresses(written(tmp_path, text, mode))
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    """So is a folder; the bytes of a file that is no text are not quoted."""
    with pytest.raises(UserError, match=r"No such file.*stoker docs paging"):
        read_addresses(tmp_path / "none")
    with pytest.raises(UserError, match="directory"):
        read_addresses(tmp_path)
    path = written(tmp_path, "")
    path.write_bytes(b"oncall \xff\xfe\n")
    with pytest.raises(UserError, match="cannot be read: it is no text"):
        read_addresses(path)
