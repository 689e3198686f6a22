"""What the page is sent: the state and what changes in it, what a visitor opens, and how hostile or old data end."""

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.errors import UserError
from runner.facts import wire
from runner.facts.causes import Cause, Culprit
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    DrainStatus,
    HoldStatus,
    IncidentStatus,
    NodeStatus,
    PagesStatus,
    ProposalStatus,
    RunStatus,
)
from runner.facts.messages.requests import Answer
from runner.journal.archive import archive_of
from runner.serve.web import page_state
from runner.serve.web.app import HEADERS
from runner.serve.web.changes import PageContent
from runner.serve.web.feed import MAX_PENDING, PageReader
from runner.serve.web.records import MAX_BUCKETS
from runner.serve.web.server import WebServer
from runner.steps import RunFiles, StepRow, folder_beside
from tests.cli.conftest import Cluster, example_view, stoker
from tests.serve.web.conftest import Site, is_harmless, texts

ROOT = Path(__file__).parents[3]
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m\x07\r\n\u202egnp.exe",
    "</li></ul>{{7*7}}${7*7}&lt;b&gt;'\"`",
    "A" * 600_000,
)


def until(events: Iterator[dict[str, Any]], *, has: str) -> dict[str, Any]:
    """Return the first event that has a member which is not empty."""
    return next(event for event in events if event.get(has))


def test_the_first_event_has_everything_and_later_ones_what_changed(site: Site) -> None:
    """One node of three changes: its item is sent, and no other's."""
    view = example_view()
    site.cluster.publish(view)
    events = site.viewer().events()
    first = next(events)
    assert first["whole"]
    assert first["led"] is False
    assert set(first["set"]["nodes"]) == {"n1", "n2", "n3"}
    assert first["set"]["runs"]["2"]["state"] == "running"
    assert first["set"]["runs"]["2"]["restarted"]["why"] == (
        "rank_crash on n1 rank 1: rank 1 on n1 ended with signal 9"
    )
    assert first["set"]["incidents"]["i1"]["done"] == ["restart"]
    later = replace(view.nodes[0], last_heartbeat_seconds_ago=1.9), *view.nodes[1:]
    lost = (*later[:1], replace(view.nodes[1], state="lost", reason="no heartbeat"))
    runs = tuple(run for run in view.runs if run.run == 2)
    site.cluster.publish(replace(view, nodes=lost, runs=runs))
    change = until(events, has="set")
    events.close()
    assert not change.get("whole")
    assert change["set"]["nodes"] == {
        "n2": {
            **first["set"]["nodes"]["n2"],
            "state": "lost",
            "health": "out",
            "why": "no heartbeat",
        }
    }
    assert change["drop"] == {"runs": ["1"], "nodes": ["n3"]}


def test_a_reader_that_goes_away_costs_the_others_nothing(site: Site) -> None:
    """Ten readers get the same change; one of them broke off in the middle of its state."""
    readers = [site.viewer().events() for _ in range(10)]
    assert all(next(reader)["whole"] for reader in readers)
    with socket.create_connection(("127.0.0.1", site.server.port)) as broken:
        token = site.token("viewer")
        broken.sendall(
            f"GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        assert broken.recv(10)
    readers.pop().close()
    site.cluster.publish(example_view(closing=True))
    heads = [until(reader, has="head")["head"] for reader in readers]
    assert all(head["closing"] for head in heads)
    for reader in readers:
        reader.close()


def test_a_reader_that_does_not_keep_up_gets_the_whole_state_instead() -> None:
    """So much waits for it at most."""
    reader = PageReader()
    reader.needs_all = False
    for _ in range(MAX_PENDING):
        reader.add(b"change")
    assert len(reader.pending) == MAX_PENDING
    reader.add(b"one more")
    assert reader.needs_all
    assert not reader.pending


def test_pages_that_do_not_get_through_are_above_all() -> None:
    """With the reason, and how many wait; with each incident, how far its page got."""
    pages = PagesStatus(addresses=("oncall/1",), waiting=2, problem="oncall/1: HTTP 500")
    incident = replace(example_view().incidents[0], page="waits for oncall/1: HTTP 500")
    view = example_view(pages=pages, incidents=(incident,))
    assert page_state.head(view)["notes"] == [
        "pages do not get through: 2 wait; oncall/1: HTTP 500"
    ]
    item = page_state.sections(view)["incidents"].make("i1")
    assert item["page"] == "waits for oncall/1: HTTP 500"


def test_a_fleet_at_rest_changes_nothing() -> None:
    """Heartbeats and memory of 2,000 nodes are no news; a node that was silent for long is, once."""
    nodes = tuple(NodeStatus(node=f"n{i}", state="active") for i in range(2000))
    content = PageContent()
    content.update(example_view(nodes=nodes))
    beating = tuple(
        replace(node, last_heartbeat_seconds_ago=i % 9 / 3, agent_resident_bytes=i)
        for i, node in enumerate(nodes)
    )
    still = json.loads(b"{" + content.update(example_view(nodes=beating)) + b"}")
    assert "nodes" not in still.get("set", {})
    silent = replace(nodes[7], last_heartbeat_seconds_ago=page_state.SILENT_SECONDS + 1)
    changed = json.loads(
        b"{" + content.update(example_view(nodes=(*nodes[:7], silent, *nodes[8:]))) + b"}"
    )
    assert list(changed["set"]["nodes"]) == ["n7"]
    assert changed["set"]["nodes"]["n7"]["health"] == "notice"


def test_nodes_tell_what_is_unusual_about_them() -> None:
    """In service with a note, on the way in or out, and out; for each the reason in words."""
    drain = DrainStatus(to="maintenance", since=1.0, reason="fan")
    cases = {
        "ok": NodeStatus(node="a", state="spare"),
        "notice": NodeStatus(node="b", state="active", pending_drain=drain, hardware_faults=2),
        "passing": NodeStatus(node="c", state="checking"),
        "out": NodeStatus(node="d", state="quarantined", reason="3 faults", domain_down="rack r2"),
    }
    found = page_state.sections(example_view(nodes=tuple(cases.values())))["nodes"]
    made = {item["health"]: item["why"] for item in map(found.make, found.keys)}
    assert list(made) == list(cases)
    assert made["notice"] == "leaves for maintenance: fan; 2 hardware faults"
    assert made["out"] == "down with rack r2; 3 faults"


def test_an_incident_opens_with_cause_evidence_and_story(site: Site) -> None:
    """They are those of `stoker explain` and `stoker story`; an unknown one is refused with the known."""
    cause = Cause(
        fault="cuda_oom",
        scope="rank",
        culprit=Culprit(kind="rank", id="1"),
        node="n1",
        confidence=0.85,
        action_class="page",
        lines=("n1 rank1.err:3: CUDA out of memory",),
    )
    incident = replace(example_view().incidents[0], cause=cause)
    site.cluster.publish(example_view(incidents=(incident,)))
    detail = site.viewer().ask("/api/incidents/i1").plain
    assert detail["cause"] == "cuda_oom, rank 1 on n1, 85% sure"
    assert detail["lines"] == ["n1 rank1.err:3: CUDA out of memory"]
    assert detail["evidence"] == ["rank 1 on n1 ended with signal 9"]
    decided = [text for line in detail["story"] for text in line["decided"]]
    assert decided[0].startswith("incident i1: rank_crash on n1, rank 1")
    assert decided[-1] == "i1 is resolved: new step reached"
    printed = stoker("story", "i1").stdout
    assert all(text in printed for text in decided)
    refused = site.viewer().ask("/api/incidents/i9")
    assert refused.code == 400
    assert "known: i1" in refused.plain["error"]


def test_a_run_s_lineage_is_that_of_the_command(site: Site) -> None:
    """Attempts, newest first, with what each began with."""
    site.cluster.publish(example_view(runs=(replace(example_view().runs[1], run=1),)))
    found = site.viewer().ask("/api/runs/1/lineage").plain
    assert [row["attempt"] for row in found["attempts"]] == ["1.1.1", "1.1.0"]
    assert found["attempts"][0]["from"] == "1.1.0"
    assert found["attempts"][0]["cause"] == "after i1"
    assert site.viewer().ask("/api/runs/7/lineage").code == 400


def test_curves_keep_their_peaks_and_the_steps_that_count(site: Site) -> None:
    """Of 20,000 steps as many as a screen shows; the loss spike and the last step are among them, and a loss of NaN is a gap."""
    archive = archive_of(site.cluster.spec)
    archive.prepare()
    files = RunFiles(
        folder_beside(archive.folder), run=2, run_name="tiny", admitted_at=1.0, token=1
    )
    attempt = AttemptId(2, 1, 0)
    losses = {7_777: 9.5, 11_000: math.nan}
    files.append(
        [
            StepRow(step, 1.0 + step, attempt, loss=losses.get(step, 2.0))
            for step in range(1, 20_001)
        ]
    )
    files.append(
        [StepRow(step, 1e6 + step, AttemptId(2, 1, 1), loss=1.0) for step in (19_001, 19_002)]
    )
    found = site.viewer().ask("/api/runs/2/curves").plain
    assert len(found["step"]) <= 3 * (MAX_BUCKETS + 1)
    assert found["loss"][found["step"].index(7_777)] == 9.5
    assert found["loss"][found["step"].index(11_000)] is None
    assert found["step"][-1] == 19_002
    assert found["step"] == sorted(found["step"])
    assert found["missing"] == ""


def test_curves_without_a_step_history_are_the_newest_losses(site: Site) -> None:
    """On a machine that does not see the journal's folder, with the reason."""
    found = site.viewer().ask("/api/runs/2/curves").plain
    assert found["step"] == [48, 49, 50, 51]
    assert found["loss"] == [5.0, 4.0, 3.0, 2.5]
    assert "cannot be seen from here" in found["missing"]


def test_every_answer_closes_the_browser_to_other_sites(site: Site) -> None:
    """Scripts of the page alone, no frame around it, no sniffing; on pages, errors, files and streams."""
    visit = site.viewer()
    for path in ("/", "/login", "/static/page.js", "/api/session", "/no/such", "/runbooks/hang"):
        answer = visit.ask(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("text", HOSTILE, ids=("markup", "terminal", "braces", "long"))
def test_hostile_text_goes_out_short_and_printable(site: Site, text: str) -> None:
    """In every field that a rank, a node's name or a request can fill."""
    site.cluster.publish(hostile_view(text))
    events = site.viewer().events()
    first = next(events)
    events.close()
    names = {name for section in first["set"].values() for name in section}
    assert all(is_harmless(each) for each in texts(first) if each not in names)
    detail = site.viewer().ask("/api/incidents/i1")
    assert all(map(is_harmless, texts(detail.plain)))
    lineage = site.viewer().ask("/api/runs/1/lineage")
    assert all(map(is_harmless, texts(lineage.plain)))


def hostile_view(text: str) -> ClusterStatus:
    """Make a status with this text wherever text from outside may be."""
    # No store has a longer or an unprintable name.
    name = "".join(ch for ch in text if ch.isprintable())[:150]
    cause = Cause(
        fault="unknown_error",
        scope="rank",
        culprit=Culprit(kind="node", id=text),
        node=text,
        confidence=0.5,
        action_class="page",
        lines=(text,),
    )
    incident = IncidentStatus(
        incident="i1",
        state="open",
        fault="rank_crash",
        run=1,
        node=name,
        rank=0,
        cause=cause,
        rungs=("restart",),
        evidence=(text, text),
        reason=text,
        events=(text,),
        acknowledged_by=text,
    )
    run = RunStatus(
        run=1,
        name="tiny",
        state="waiting",
        reason=text,
        phase=text,
        metric_notes=(text,),
        open_requests=(text,),
        hold=HoldStatus(hold="paused", since=1.0, reason=text, by=text),
    )
    node = NodeStatus(
        node=name,
        state="lost",
        reason=text,
        domain=text,
        domain_down=text,
        shortage=text,
        pending_drain=DrainStatus(to="maintenance", since=1.0, reason=text),
    )
    proposal = ProposalStatus(action="a1", run=1, incident="i1", text=text, since=1.0, reason=text)
    return example_view(
        nodes=(node,),
        runs=(run,),
        incidents=(incident,),
        proposals=(proposal,),
        store_note=text,
        domains_down={text: (text,)},
    )


def test_the_status_of_an_older_release_is_shown(site: Site) -> None:
    """It lacks what came later; what it has is there."""
    runs = [{"run": 1, "name": "tiny", "state": "active", "step": 5}]
    old = {"v": 1, "kind": "status", "cluster": "tiny", "now": 1.0, "wall": 1.0, "runs": runs}
    site.cluster.store.put("status", json.dumps(old).encode())
    events = site.viewer().events()
    first = next(events)
    events.close()
    assert first["set"]["runs"]["1"]["step"] == 5
    assert first["problem"] == ""


def test_a_status_that_cannot_be_read_is_named_and_replaced_by_the_next(site: Site) -> None:
    """The page keeps what it has, with the reason, until a status comes that it can read."""
    events = site.viewer().events()
    assert next(events)["problem"] == ""
    site.cluster.store.put("status", wire.encode(Answer(id="q", state="done")))
    assert "holds a Answer, not a status" in until(events, has="problem")["problem"]
    site.cluster.publish(example_view(closing=True))
    assert until(events, has="head")["problem"] == ""
    events.close()


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"{", 400, "cannot be read"),
        (b'{"do":"pause"}', 400, "cannot be read"),
        (b'{"do":"shutdown","about":"x"}', 400, "'shutdown' cannot be asked here"),
        (b'{"do":"pause","about":"2","by":"root"}', 400, "unknown field"),
        (b'{"do":"pause","about":"2","reason":"a\\nb"}', 400, "write one line"),
        (b"x" * 100_000, 413, "more than 16384 bytes"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(
    site: Site, body: bytes, code: int, reason: str
) -> None:
    """And nothing of it reaches the store."""
    site.cluster.lead()
    program = site.visit(authorization=f"Bearer {site.token('operator')}")
    answer = program.ask("/api/requests", body)
    assert answer.code == code
    assert reason in answer.plain["error"]
    assert site.cluster.requests() == []


def test_runbooks_are_rendered_and_found_by_their_faults(site: Site) -> None:
    """The list has all, a fault leads to its page, and an unknown name is a 404."""
    visit = site.viewer()
    assert b"/runbooks/hang" in visit.ask("/runbooks").body
    page = visit.ask("/runbooks/no_progress").body.decode()
    assert "<h1>The gang makes no step</h1>" in page
    assert "answers: no_progress" in page
    assert visit.ask("/runbooks/nothing").code == 404


def test_html_in_a_page_of_the_site_stays_text(cluster: Cluster) -> None:
    """A page of the site may hold anything; links to what is not served are no links."""
    folder = Path(cluster.spec.state, "site")
    spec = replace(cluster.spec, runbooks_folder=str(folder))
    page = (
        '---\nby_hand: true\ntitle: "<b>x</b>"\n---\n# X\n<script>alert(1)</script>\n'
        "[a](javascript:alert(1)) [b](../../etc/passwd) [c](hang.md)\n"
    )
    folder.mkdir()
    (folder / "mine.md").write_text(page)
    with WebServer(cluster.store, spec, address="127.0.0.1") as server:
        text = Site(cluster, server).viewer().ask("/runbooks/mine").body.decode()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<title>&lt;b&gt;x" in text
    assert 'javascript:alert(1)"' not in text
    assert "passwd" not in text
    assert '<a href="/runbooks/hang">c</a>' in text


def test_without_its_packages_the_command_names_what_to_install(cluster: Cluster) -> None:
    """A cluster without the extra has every other command."""
    script = (
        "import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None; sys.argv = ['stoker', 'web'];"
        "from runner.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install 'stoker[web]'" in done.stderr


def test_a_port_in_use_and_an_address_elsewhere_are_refused_by_name(cluster: Cluster) -> None:
    """The message names the port, the process that uses it, and the way out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"web_port: {port} is in use by .*; give another port"
        ):
            WebServer(cluster.store, cluster.spec, port=port, address="127.0.0.1")
        refused = stoker("web", "--port", str(port))
        assert refused.exit_code == 2
        assert str(port) in refused.stderr
    with pytest.raises(UserError, match=r"web_address: 192.0.2.1 is no address of this machine"):
        WebServer(cluster.store, cluster.spec, address="192.0.2.1")
    with pytest.raises(UserError, match=r"web_address: nowhere\.invalid is no address"):
        WebServer(cluster.store, cluster.spec, address="nowhere.invalid")
