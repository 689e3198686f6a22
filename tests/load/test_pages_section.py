"""The `pages` section of cluster.yaml: what is accepted, and that an address in the wrong place is not repeated in the error."""

from pathlib import Path

import pytest

from runner.errors import SpecError
from runner.facts.specs.pages import PagesSpec
from runner.load.specs import load_cluster


def loaded(folder: Path, section: str) -> PagesSpec:
    """Load a cluster.yaml with this `pages` section."""
    (folder / "cluster.yaml").write_text(f"name: c\npages: {section}\n")
    return load_cluster(folder / "cluster.yaml").pages


def test_the_path_is_relative_to_the_file(tmp_path: Path) -> None:
    """The file itself need not be there: pages wait for it."""
    spec = loaded(
        tmp_path,
        "{addresses_file: a, escalate_to: second, quiet_hours: '22:00-07:00', time_zone: Europe/Paris, every_rung: true}",
    )
    assert spec == PagesSpec(
        addresses_file=f"{tmp_path}/a",
        escalate_to="second",
        quiet_hours="22:00-07:00",
        time_zone="Europe/Paris",
        every_rung=True,
    )
    assert loaded(tmp_path, "{}") == PagesSpec()


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{quiet_hours: '22-7'}", "pages.quiet_hours.*not HH:MM-HH:MM"),
        ("{quiet_hours: '24:00-07:00'}", "pages.quiet_hours.*not HH:MM-HH:MM"),
        ("{time_zone: Mars/Phobos}", "pages.time_zone.*not a time zone"),
        ("{time_zone: ../../etc/passwd}", "pages.time_zone.*not a time zone"),
        ("{to: 'slack://S3CRET'}", "pages.to.*is no name.*addresses_file"),
        ("{escalate_to: 'On Call'}", "pages.escalate_to.*is no name"),
        ("{max_per_hour: 0}", "pages.max_per_hour"),
        ("{heartbeat_seconds: 0}", "pages.heartbeat_seconds"),
        ("{adresses_file: a}", "unknown field 'adresses_file'.*addresses_file"),
    ],
)
def test_an_invalid_section_is_named(tmp_path: Path, section: str, words: str) -> None:
    """The field and the way out, and no secret."""
    with pytest.raises(SpecError, match=words) as refused:
        loaded(tmp_path, section)
    assert "S3CRET" not in str(refused.value)
