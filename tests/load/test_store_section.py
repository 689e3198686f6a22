"""The `store` section of cluster.yaml: what is accepted, what is refused, and with which errors."""

from pathlib import Path

import pytest

from runner.errors import SpecError
from runner.facts.specs.cluster import StoreSpec, split_address
from runner.load.specs import load_cluster


def files(folder: Path) -> None:
    """Make the files that the settings below name."""
    for name, mode in (("secret", 0o600), ("open", 0o644), ("ca", 0o644), ("crt", 0o644)):
        (folder / name).write_text("x\n")
        (folder / name).chmod(mode)


def loaded(folder: Path, section: str) -> StoreSpec:
    """Load a cluster.yaml with this `store` section."""
    files(folder)
    (folder / "cluster.yaml").write_text(f"name: c\nstore: {section}\n")
    return load_cluster(folder / "cluster.yaml").store


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """All that can be reply of a server is taken, with absolute paths."""
    spec = loaded(
        tmp_path,
        "{address: 'redis.example:6379', database: 3, user: stoker, password_file: secret, tls: true, ca_file: ca, "
        "certificate_file: crt, key_file: secret}",
    )
    assert (spec.address, spec.database, spec.user, spec.tls) == (
        "redis.example:6379",
        3,
        "stoker",
        True,
    )
    assert (spec.password_file, spec.ca_file) == (f"{tmp_path}/secret", f"{tmp_path}/ca")
    assert (spec.certificate_file, spec.key_file) == (f"{tmp_path}/crt", f"{tmp_path}/secret")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{address: redis}", "store.address.*not HOST:PORT"),
        ("{address: 'redis:70000'}", "store.address.*not HOST:PORT"),
        ("{address: '::1:6379'}", "store.address.*not HOST:PORT"),
        ("{address: 'a:1', password_file: none}", "store.password_file.*cannot be read"),
        ("{address: 'a:1', password_file: .}", "store.password_file.*not a readable file"),
        ("{address: 'a:1', password_file: open}", "store.password_file.*mode 644.*chmod 600"),
        ("{address: 'a:1', tls: true, certificate_file: crt, key_file: open}", "key_file.*mode 644"),
        ("{address: 'a:1', tls: true, key_file: secret}", "key_file.*without store.certificate_file"),
        ("{address: 'a:1', ca_file: ca}", "store.ca_file.*without `tls: true`"),
        ("{password_file: secret}", "store.password_file.*without store.address"),
        ("{address: 'a:1', pasword_file: secret}", "unknown field 'pasword_file'.*password_file"),
    ],
)  # fmt: skip
def test_an_invalid_section_is_named(tmp_path: Path, section: str, words: str) -> None:
    """The field, its value and the way out."""
    with pytest.raises(SpecError, match=words):
        loaded(tmp_path, section)


def test_addresses() -> None:
    """Host and port; IPv6 in brackets."""
    assert split_address("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert split_address("[::1]:6379") == ("::1", 6379)
    for wrong in ("", ":1", "a:", "a:0", "a:x", "a b:1", "a:²"):
        assert split_address(wrong) is None
