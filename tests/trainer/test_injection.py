"""Planned faults happen as planned, and only the trainer knows of them."""

import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from runner.errors import SpecError
from tests.trainer.gangs import ROOT, SMALL, Ended, Gangs, Layout
from trainer.faults.injection_plan import KINDS, VARIABLE, Fault, read_plan

HOARD_BYTES = 96 * 1024**2
NAMES = re.compile(rf"{VARIABLE}|injection|fault_plan", re.IGNORECASE)


def planned(folder: Path, *faults: dict[str, Any]) -> dict[str, str]:
    """Write a plan; return the environment that names it."""
    path = folder / "plan.json"
    path.write_text(json.dumps({"faults": list(faults)}))
    return {VARIABLE: str(path)}


def output_of(ended: Ended) -> str:
    """All output and reports of a gang."""
    texts = [path.read_text() for path in sorted(ended.output.glob("rank*"))]
    return "\n".join([*texts, json.dumps(ended.reports)])


def test_runner_knows_no_planned_fault() -> None:
    """No file of the control plane, its runbooks or its checks knows the variable or the names of the hooks."""
    files = [
        path
        for name in ("runner", "runbooks", "healthchecks")
        for path in (ROOT / name).rglob("*.*")
    ]
    sources = [path for path in files if path.suffix in (".py", ".md")]
    assert len(sources) > 100
    assert [str(path) for path in sources if NAMES.search(path.read_text())] == []


def test_every_kind_has_its_fields() -> None:
    """The table of kinds knows each kind of a fault, and each of its fields exists."""
    assert set(KINDS) == set(get_args(get_type_hints(Fault)["kind"]))
    named = {name for fields in KINDS.values() for group in fields for name in group}
    assert named <= set(Fault.__dataclass_fields__)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "slep", "rank": 0, "step": 1}, "did you mean sleep"),
        ({"rank": 0, "step": 1}, "no kind; known: poison"),
        ({"kind": "sleep", "rank": 0, "step": 1}, "sleep needs seconds"),
        ({"kind": "kill", "rank": 2, "step": 1}, "rank = 2: there are ranks 0 to 1"),
        ({"kind": "kill", "step": 1}, "rank = None: there are ranks 0 to 1"),
        ({"kind": "kill", "rank": 0}, "give step, or first and last"),
        ({"kind": "kill", "rank": 0, "first": 5, "last": 4}, "steps 5 to 4"),
        ({"kind": "kill", "rank": 0, "step": 1, "bit": 3}, "bit = 3 means nothing to kill"),
        ({"kind": "poison", "rank": 0, "step": 1}, "rank = 0 means nothing to poison"),
        ({"kind": "flip", "rank": 0, "step": 1, "site": "weight", "bit": 32}, "at most 31"),
        ({"kind": "flip", "rank": 0, "step": 1, "site": "weight", "bit": 16}, "have 16 bits"),
        (
            {"kind": "flip", "rank": 0, "step": 1, "site": "bias", "bit": 1},
            "expected one of weight",
        ),
    ],
)
def test_plans_that_cannot_be_followed(tmp_path: Path, fault: dict[str, Any], words: str) -> None:
    """A plan with a mistake is refused with its file, the value and the remedy."""
    environment = planned(tmp_path, fault)
    with pytest.raises(SpecError) as caught:
        read_plan(environment, 2, half=True)
    text = str(caught.value)
    assert words in text
    assert environment[VARIABLE] in text
    assert text.endswith("correct the plan, or unset the variable")


def test_plans_that_cannot_be_read(tmp_path: Path) -> None:
    """No variable is no plan; a file that is missing, no JSON or of another shape is refused."""
    assert read_plan({}, 1, half=False) == []
    path = tmp_path / "plan.json"
    for content in (None, "{", "[]", '{"faults": 3}', '{"faults": [3]}'):
        if content is not None:
            path.write_text(content)
        with pytest.raises(SpecError, match=re.escape(str(path))):
            read_plan({VARIABLE: str(path)}, 1, half=False)


@pytest.mark.trainer
def test_faults_of_data_gradients_and_time(gangs: Gangs, tmp_path: Path) -> None:
    """Noise raises the loss, a scaled gradient shows on its own rank, so does NaN, and a sleep is that rank's computing."""
    environment = planned(
        tmp_path,
        {"kind": "poison", "step": 5, "seed": 1},
        {"kind": "scale", "rank": 1, "step": 6, "factor": 1000.0},
        {"kind": "nan", "rank": 1, "step": 7},
        {"kind": "sleep", "rank": 0, "first": 8, "last": 9, "seconds": 0.5},
        {"kind": "hoard", "rank": 1, "step": 9, "most_bytes": HOARD_BYTES},
    )
    settings = {**SMALL, "steps": 11, "data": {"source": "stdlib"}}
    layout = Layout(data=2)
    sick = gangs.run(settings, layout=layout, environment=environment)
    sound = gangs.run(settings, layout=layout)
    losses, before = sick.values("loss"), sound.values("loss")
    assert losses[:4] == before[:4]
    assert losses[4] > before[4] + 0.05
    norms = [sick.values("local_grad_norm", rank) for rank in (0, 1)]
    assert norms[1][5] > 100 * norms[0][5]
    assert math.isnan(norms[1][6])
    assert math.isfinite(norms[0][6])
    assert [step["skipped"] for step in sick.steps().values()] == [n == 7 for n in range(1, 12)]
    compute = [sick.values("compute_seconds", rank) for rank in (0, 1)]
    assert min(compute[0][7:9]) > 0.5
    assert max(compute[1][7:9]) < 0.5
    memory = [sick.values("peak_memory_bytes", rank) for rank in (0, 1)]
    assert memory[1][10] - memory[1][0] > 0.9 * HOARD_BYTES
    assert memory[0][10] - memory[0][0] < 0.5 * HOARD_BYTES
    assert not NAMES.search(output_of(sick))


@pytest.mark.trainer
def test_origin_of_nan_on_two_axes(gangs: Gangs, tmp_path: Path) -> None:
    """NaN in one rank's gradient shows in its own norm before reduction, on no rank of its tensor group or pipeline."""
    environment = planned(tmp_path, {"kind": "nan", "rank": 2, "step": 2})
    settings = {**SMALL, "steps": 3}
    ended = gangs.run(settings, layout=Layout(tensor=2, pipeline=2), environment=environment)
    bad = [rank for rank in range(4) if math.isnan(ended.values("local_grad_norm", rank)[1])]
    assert bad == [2]
    assert all(ended.steps(rank)[2]["skipped"] for rank in range(4))
    assert all(
        math.isfinite(v) for rank in range(4) for v in ended.values("local_grad_norm", rank)[2:]
    )


@pytest.mark.trainer
def test_a_rank_kills_itself_once(gangs: Gangs, tmp_path: Path) -> None:
    """A fault that is to happen once happens in the first start and in no other."""
    fault = {"kind": "kill", "rank": 1, "step": 3, "once": str(tmp_path / "mark")}
    environment = planned(tmp_path, fault)
    settings = {**SMALL, "steps": 4}
    killed = gangs.run(settings, layout=Layout(data=2), environment=environment, expect=None)
    assert killed.exit_codes[1] == -9
    assert list(killed.steps(1)) == [1, 2]
    again = gangs.run(settings, layout=Layout(data=2), environment=environment)
    assert list(again.steps(1)) == [1, 2, 3, 4]


@pytest.mark.trainer
def test_a_loader_dies(gangs: Gangs, tmp_path: Path) -> None:
    """The read fails with the exact message of a data loader whose worker is gone, without a frame of a hook."""
    environment = planned(tmp_path, {"kind": "loader", "rank": 0, "step": 2})
    ended = gangs.run({**SMALL, "steps": 4}, layout=Layout(), environment=environment, expect=1)
    assert re.search(r"RuntimeError: DataLoader worker \(pid(\(s\))? \d+\) exited", ended.errors())
    assert list(ended.steps()) == [1]
    assert not NAMES.search(output_of(ended))


@pytest.mark.trainer
def test_a_shard_is_cut_off(gangs: Gangs, tmp_path: Path) -> None:
    """The reader's own error comes out of the worker, without a frame of a hook."""
    environment = planned(tmp_path, {"kind": "shard", "rank": 0, "step": 2})
    ended = gangs.run({**SMALL, "steps": 4}, layout=Layout(), environment=environment, expect=1)
    assert "EOFError: Caught EOFError in DataLoader worker process 0." in ended.errors()
    assert list(ended.steps()) == [1]
    assert not NAMES.search(output_of(ended))


@contextmanager
def states_of(gangs: Gangs) -> Iterator[list[str]]:
    """Note the states of the ranks of a gang of four, in their order, ten times a second."""
    seen: list[str] = []
    over = threading.Event()
    children = Path(f"/proc/{gangs.server.pid}/task/{gangs.server.pid}/children")

    def look() -> None:
        while not over.wait(0.1):
            try:
                pids = sorted(map(int, children.read_text().split()))
                stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
            except OSError:
                continue
            seen.append("".join(stat.rpartition(")")[2].split()[0] for stat in stats))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


@pytest.mark.trainer
def test_ranks_that_stop_spin_or_stay_away(gangs: Gangs, tmp_path: Path) -> None:
    """A stopped rank, one that spins and one that waits elsewhere never end by themselves; the one that waits for them does."""
    environment = planned(
        tmp_path,
        {"kind": "stop", "rank": 1, "step": 3},
        {"kind": "spin", "rank": 2, "step": 3},
        {"kind": "absent", "rank": 3, "step": 3},
    )
    settings = {**SMALL, "batch": {"global_batch": 8, "micro_batch": 2}, "group_timeout_seconds": 3}
    started = time.monotonic()
    with states_of(gangs) as states:
        ended = gangs.run(
            {**settings, "steps": 5}, layout=Layout(data=4), environment=environment, expect=None
        )
    assert ended.exit_codes == [1, -9, -9, -9]
    assert [max(ended.steps(rank)) for rank in range(4)] == [2, 2, 2, 2]
    assert "STRS" in states, states
    assert time.monotonic() - started < 30
