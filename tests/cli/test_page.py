"""`stoker page`: how far pages got, a test of every address, and what `stoker status` says of pages that wait."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from runner.cli.main import cli
from runner.cli.reports.tables import explanation, page_notes
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, PagesStatus
from tests.act.webhook import Webhook


@pytest.fixture
def server() -> Iterator[Webhook]:
    """A webhook that accepts pages."""
    with Webhook() as made:
        yield made


def page_test(folder: Path, addresses: str, *words: str, mode: int = 0o600) -> Result:
    """Run `stoker page --test` with these addresses."""
    path = folder / "pages.addresses"
    path.write_text(addresses)
    path.chmod(mode)
    cluster = folder / "cluster.yaml"
    cluster.write_text("name: c\npages: {addresses_file: pages.addresses, send_seconds: 20}\n")
    return CliRunner().invoke(cli, ["page", "--test", "--cluster", str(cluster), *words])


def test_a_test_says_of_each_address_what_happened(tmp_path: Path, server: Webhook) -> None:
    """It needs no supervisor; one address that fails makes the exit code 1, and no address is printed."""
    gone = Webhook()
    gone.close()
    addresses = (
        f"oncall http://{server.place}/S3CRET\noncall http://{gone.place}/S3CRET\n"
        f"heartbeat http://{server.place}/S3CRET\n"
    )
    result = page_test(tmp_path, addresses)
    assert result.exit_code == 1
    rows = [line.split(maxsplit=2) for line in result.output.splitlines()]
    assert rows == [
        ["address", "kind", "outcome"],
        ["oncall/1", "http", "accepted"],
        ["oncall/2", "http", "Connection refused"],
        ["heartbeat/1", "http", "accepted"],
    ]
    assert "S3CRET" not in result.output
    (page,) = [body for body in server.accepted if body is not None]
    assert "nothing is wrong" in page["text"]
    assert None in server.accepted


def test_programs_read_it_as_json(tmp_path: Path, server: Webhook) -> None:
    """An error is empty where the address accepted the page; the exit code is 0 then."""
    result = page_test(tmp_path, f"oncall http://{server.place}/\n", "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == [{"address": "oncall/1", "kind": "http", "error": ""}]


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """With the command that mends it, before anything is sent."""
    result = page_test(tmp_path, "oncall https://S3CRET\n", mode=0o644)
    assert result.exit_code == 2
    assert "chmod 600" in result.output
    assert "S3CRET" not in result.output


def test_without_addresses_the_way_to_them_is_named(tmp_path: Path) -> None:
    """A cluster has none by default."""
    (tmp_path / "cluster.yaml").write_text("name: c\n")
    result = CliRunner().invoke(cli, ["page", "--test", "--cluster", str(tmp_path)])
    assert result.exit_code == 2
    assert "pages.addresses_file of cluster.yaml" in result.output


def test_the_status_says_what_waits_and_why() -> None:
    """And nothing where all is well."""
    fields = {"cluster": "c", "now": 0.0, "wall": 0.0}
    assert not page_notes(ClusterStatus(**fields))  # type: ignore[arg-type]
    well = PagesStatus(addresses=("oncall/1 slack",), sent=9, due_later=1)
    assert not page_notes(ClusterStatus(**fields, pages=well))  # type: ignore[arg-type]
    bad = PagesStatus(
        waiting=2, waiting_since=0.0, dropped=1, problem="oncall/1: \x1b[31mit answered HTTP 500"
    )
    notes = page_notes(ClusterStatus(**fields, pages=bad))  # type: ignore[arg-type]
    assert "pages: 2 pages not delivered, the oldest since 1970-01-01" in notes
    assert "it answered HTTP 500; see `stoker page --test`" in notes
    assert "pages: 1 given up" in notes
    assert "\x1b" not in notes
    incident = IncidentStatus(incident="i1", state="open", fault="hang", page="waits for oncall/1")
    assert "page: waits for oncall/1" in explanation(incident)
