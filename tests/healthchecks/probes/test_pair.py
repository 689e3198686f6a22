"""A pair of nodes: both ends measure, and each failure has the end that it belongs to, or none where that does not show."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from healthchecks.check import NodeFacts
from healthchecks.pair import interface_towards, judge_end, main
from healthchecks.probe import Answer as ProbeAnswer
from healthchecks.probe import run_probes
from tests.healthchecks.probes.pair_harness import (
    LOOPBACK,
    answer_of,
    both_ends,
    free_port,
    start_end,
    trouble_of,
    without_torch,
)
from tests.healthchecks.probes.probe_harness import plant

pytestmark = pytest.mark.trainer

MIB = 1 << 20


def test_both_ends_measure_a_rate_and_each_rail(
    monkeypatch: pytest.MonkeyPatch, preloaded_python: str
) -> None:
    """Four ranks, two an end, reduce together; then each rail alone, with a rate of its own."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface_towards(LOOPBACK, 1)[0])
    port = free_port()
    answers = {}

    def measure(end: int) -> None:
        node = NodeFacts(python=preloaded_python, seconds=1.0, deadline_seconds=60.0)
        common = {
            "end": end,
            "num_local": 2,
            "device": "cpu",
            "backend": "gloo",
            "address": LOOPBACK,
            "port": port,
            "is_loopback": True,
            "bytes": MIB,
            "measure_seconds": 0.2,
            "meet_seconds": 40.0,
            "end_seconds": 50.0,
        }
        ranks = [{**common, "local": local} for local in range(2)]
        answers[end] = judge_end(run_probes("pair", node, ranks), "")

    ends = [threading.Thread(target=measure, args=(end,)) for end in (0, 1)]
    for end in ends:
        end.start()
    for end in ends:
        end.join()
    for answer in answers.values():
        assert answer["trouble"] == ""
        assert answer["rate"] > 0.001
        assert len(answer["rails"]) == 2
        assert set(answer["others"]) == {"all_gather", "reduce_scatter", "all_to_all"}
        assert min(answer["others"].values()) > 0
        assert min(answer["rails"]) > 0.001


def test_wrong_values_are_trouble_at_both_ends(
    monkeypatch: pytest.MonkeyPatch, preloaded_python: str
) -> None:
    """A word that one end got wrong leaves no rate at either; whose it was does not show."""
    plant(monkeypatch, {"probe": "pair", "kind": "flip", "rank": 1})
    answers = both_ends(free_port(), python=preloaded_python)
    assert [trouble_of(answer) for answer in answers] == [("", False)] * 2
    assert "words of results were wrong, 0 of them here" in answers[0]["trouble"]
    assert "words of results were wrong" in answers[1]["trouble"]


def test_ends_that_cannot_meet_by_their_addresses_measure_nothing(preloaded_python: str) -> None:
    """One that knows end 0 by a loopback address, where the other does not: gloo would try to reach it there."""
    port, options = free_port(), {"python": preloaded_python}
    here = start_end(0, port, **options)
    there = start_end(1, port, variable="GLOO_SOCKET_IFNAME=eth7", **options)
    for answer in (answer_of(here), answer_of(there)):
        assert trouble_of(answer) == ("", True)
        assert "cpu by loopback" in answer["trouble"]


@pytest.mark.parametrize("lost", [0, 1])
def test_an_end_that_is_lost_is_named_by_both(
    monkeypatch: pytest.MonkeyPatch, preloaded_python: str, lost: int
) -> None:
    """A rank that ends in the middle: its own end names itself, the other one its peer."""
    plant(monkeypatch, {"probe": "pair", "kind": "exit", "rank": lost, "after": 4})
    answers = both_ends(free_port(), python=preloaded_python, seconds=20, deadline=150)
    assert trouble_of(answers[lost]) == ("self", False)
    assert trouble_of(answers[1 - lost]) == ("peer", False)
    assert "at the measurement: the probe ended with code 3" in answers[lost]["trouble"]


def test_a_peer_that_never_comes_is_named(preloaded_python: str) -> None:
    """Either end waits for a part of its deadline, and then says what the other one did not come to."""
    options = {"python": preloaded_python, "deadline": 3}
    waiting = [start_end(end, free_port(), **options) for end in (0, 1)]
    first, second = map(answer_of, waiting)
    assert trouble_of(first) == trouble_of(second) == ("peer", False)
    assert "end 1 did not come to the store" in first["trouble"]
    assert "end 0 did not come to 127.0.0.1 port" in second["trouble"]
    assert "Connection refused" in second["trouble"]


def test_a_port_in_use_is_no_fault_of_hardware(preloaded_python: str) -> None:
    """The end that was to listen there says so."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        answer = answer_of(start_end(0, taken.getsockname()[1], python=preloaded_python))
    assert trouble_of(answer) == ("", True)
    assert "address already in use" in answer["trouble"]


def test_what_cannot_measure_is_no_fault_of_hardware(tmp_path: Path, preloaded_python: str) -> None:
    """No torch, no interpreter, one that ends by itself, no way to the address, or more ranks than GPUs: nothing is measured."""
    cases: dict[str, dict[str, Any]] = {
        "No module named 'torch'": {"python": without_torch(tmp_path)},
        "could not be started": {"python": str(tmp_path / "none")},
        "ended with code 1 and without an answer": {"python": "/bin/false"},
        "no way to nowhere.invalid": {"address": "nowhere.invalid"},
        "sees no cuda:0": {"python": preloaded_python, "gpus": 1},
    }
    for text, options in cases.items():
        answer = answer_of(start_end(0, free_port(), **options))
        assert trouble_of(answer) == ("", True), text
        assert text in answer["trouble"]


def test_a_busy_node_has_no_rate() -> None:
    """What others took of the processors is the reason, and no trouble; wrong values are trouble all the same."""
    numbers = {"at": "the end", "world": 2, "size": MIB, "times": [0.01], "rails": {}, "others": {}}
    right = ProbeAnswer(numbers={**numbers, "wrong_words": 0, "all_wrong_words": 0})
    wrong = ProbeAnswer(numbers={**numbers, "wrong_words": 0, "all_wrong_words": 3})
    quiet, busy = (judge_end([right], text) for text in ("", "busy with something else"))
    assert quiet["rate"] == pytest.approx(MIB / 0.01 / 1e9)
    assert (busy["rate"], busy["busy"], busy["trouble"]) == (None, "busy with something else", "")
    assert "3 words" in judge_end([wrong], "busy with something else")["trouble"]


def test_an_end_that_runs_out_of_time_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch, preloaded_python: str
) -> None:
    """Its peer finds the connection closed, and reads in the store that it ran out of time: neither end shows who is slow."""
    plant(monkeypatch, {"probe": "pair", "kind": "sleep", "rank": 0, "seconds": 2.5})
    port, options = free_port(), {"python": preloaded_python}
    slow = start_end(0, port, deadline=12, **options)
    waiting = start_end(1, port, deadline=3.4, **options)
    for answer, text in ((answer_of(waiting), "imed out"), (answer_of(slow), "closed")):
        assert trouble_of(answer) == ("", False)
        assert text in answer["trouble"]


def test_a_hang_is_laid_on_no_end() -> None:
    """A rank that does not come back in time, or an operation that runs out of it, may wait for any part of either node."""
    hung = ProbeAnswer(numbers={"at": "the measurement"}, trouble="the probe hung", ending="hung")
    late = ProbeAnswer(numbers={"at": "the measurement", "error": "Timed out", "at_fault": ""})
    for answers in ([hung], [late], [late, hung]):
        assert trouble_of(judge_end(answers, "")) == ("", False)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--end=2", "--address=a", "--port=1", "--python=p"],
        ["--end=0", "--address=a", "--port=0", "--python=p"],
        ["--end=0", "--address=a", "--port=1", "--python=p", "--seconds=-1"],
        ["--end=0", "--address=a", "--port=1", "--python=p", "--seconds=20", "--deadline=60"],
        ["--end=0", "--address=a", "--port=1", "--python=p", "--variable=PATH=/"],
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured, and the error names what was given."""
    assert main(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("healthchecks.pair: ")


def test_the_settings_of_the_run_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the run, or the agent, sets for gloo and NCCL is kept; what neither sets names the interface towards the peer."""
    seen = tmp_path / "seen"
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME" > {seen}\n')
    program.chmod(0o755)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    answer_of(start_end(0, free_port(), python=program))
    assert seen.read_text().split() == ["lo", "=lo"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "of-agent")
    answer_of(start_end(0, free_port(), python=program, variable="NCCL_SOCKET_IFNAME=of-run"))
    assert seen.read_text().split() == ["of-agent", "of-run"]


def test_the_answer_is_one_line_of_json() -> None:
    """Its fields are there whatever happened."""
    process = start_end(0, free_port(), python="/bin/false")
    out, _ = process.communicate(timeout=60)
    assert out.count("\n") == 1
    names = ["rate", "others", "rails", "unit", "trouble", "at_fault", "busy", "not_measured"]
    assert list(json.loads(out)) == names
