"""Replicas that disagree are found, named where that can be done, and healthy ones are left alone."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.agent.ranks.reports import MAX_DETAIL, MAX_MINORITY_RANKS, ReplicasReport, read_packet
from tests.trainer.gangs import SMALL, Gangs, Layout
from trainer.faults.injection import flip_bit
from trainer.faults.injection_plan import VARIABLE
from trainer.integrity.digests import CHUNK_WORDS, WORD_BYTES, digest

pytestmark = pytest.mark.trainer

# More of them, spread over all bits, for the table in docs/replicas.md.
FLIPS = int(os.environ.get("STOKER_RECALL_FLIPS", "4"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_digests_see_every_bit_and_place(dtype: torch.dtype) -> None:
    """Each single bit, a swap and a change across chunks give another digest; equal bits give the same one."""
    tensor = torch.linspace(-1.0, 1.0, 501).to(dtype)
    whole = int(digest(tensor))
    assert int(digest(tensor.clone().view(3, 167))) == whole
    elsewhere = torch.cat((torch.ones(3, dtype=dtype), tensor))[3:]
    assert int(digest(elsewhere)) == whole
    seen = {whole}
    for bit in range(8 * tensor.element_size()):
        # the last one fills no word
        for place in (37, 500):
            changed = tensor.clone()
            flip_bit(changed, place, bit)
            seen.add(int(digest(changed)))
            flip_bit(changed, place, bit)
            assert int(digest(changed)) == whole
    changed = tensor.clone()
    changed[[3, 4]] = changed[[4, 3]]
    seen.add(int(digest(changed)))
    assert len(seen) == 16 * tensor.element_size() + 2
    chunk = CHUNK_WORDS * WORD_BYTES // tensor.element_size()
    long = torch.zeros(2 * chunk, dtype=dtype)
    long[0] = 1.0
    first = int(digest(long))
    assert int(digest(long.roll(chunk))) != first


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (Layout(data=3), "fp32"),
        (Layout(data=2), "bf16"),
        (Layout(tensor=2), "fp32"),
    ],
    ids=str,
)
def test_recall(gangs: Gangs, layout: Layout, dtype: str) -> None:
    """A covered flip is found at every site, with the right rank; one that no comparison covers is confirmed as undetected.

    Never is a wrong rank named. A bf16 copy cannot show what is below its own precision in the master; the owner can.
    """
    batch = {"global_batch": 2 * layout.data, "micro_batch": 2}
    settings = {**SMALL, "batch": batch, "precision": {"dtype": dtype}}
    environment = {"FLIPS": str(FLIPS)}
    ended = gangs.run(settings, layout=layout, environment=environment, body="tests.trainer.recall")
    table = {(row["site"], row["when"]): row for row in ended.of_kind("recall")}
    for (site, when), row in table.items():
        print(
            f"{layout} {dtype} {site} {when}: {row['seen']} of {row['flips']} seen, {row['named']} named"
        )
    assert ended.of_kind("healthy")[0]["findings"] == 0
    assert all(row["wrong"] == 0 and row["named"] == row["seen"] for row in table.values())
    certain = [
        ("weight", "at_once"),
        *((s, "covered") for s in ("master", "exp_avg", "exp_avg_sq")),
    ]
    certain += [("gradient", "at_once")] if layout.data > 1 else []
    certain += [("master", "at_once")] if dtype == "fp32" else []
    assert {key: row["seen"] for key, row in table.items() if key in certain} == dict.fromkeys(
        certain, FLIPS
    )
    if dtype == "bf16":
        assert 0 < table["master", "at_once"]["seen"] < FLIPS
    # ZeRO-1 gathers the weights again from the master: a step later all replicas agree on what is wrong.
    for site in ("master", "exp_avg", "exp_avg_sq"):
        assert table[site, "uncovered"]["seen"] == 0


def test_comparing_changes_no_number(gangs: Gangs) -> None:
    """A run of stages and replicas that compares after every step, gradients included, has the bits of one that never does."""
    settings, layout = {**SMALL, "steps": 12}, Layout(pipeline=2, data=2)
    quiet = gangs.run({**settings, "sdc_every": 0}, layout=layout)
    watched = gangs.run({**settings, "sdc_every": 1}, layout=layout)
    for name in ("loss", "grad_norm"):
        assert watched.values(name) == quiet.values(name)
    assert not any(watched.of_kind("replicas", rank) for rank in range(4))


def test_a_finding_is_reported_once(gangs: Gangs, tmp_path: Path) -> None:
    """A weight that flips again and again is reported once, by rank 0, in a report that the agent reads; training goes on."""
    plan = tmp_path / "plan.json"
    flip = {"kind": "flip", "rank": 3, "first": 3, "last": 6, "site": "weight", "bit": 20}
    plan.write_text(json.dumps({"faults": [flip]}))
    settings = {**SMALL, "steps": 8, "sdc_every": 1}
    ended = gangs.run(
        settings, layout=Layout(pipeline=2, data=2), environment={VARIABLE: str(plan)}
    )
    (replicas,) = ended.of_kind("replicas")
    assert (replicas["step"], replicas["what"], replicas["ranks"]) == (2, "weight", [3])
    assert not any(ended.of_kind("replicas", rank) for rank in (1, 2, 3))
    (report,), malformed = read_packet(json.dumps(replicas).encode())
    assert not malformed
    assert isinstance(report, ReplicasReport)
    assert report.ranks == (3,)
    output = (ended.output / "rank0.out").read_text()
    assert f"step 2  replicas disagree: weight of rank 3, {report.detail}" in output


@pytest.mark.parametrize(
    "wrong",
    [
        {"what": "activation"},
        {"ranks": [-1]},
        {"ranks": [0] * (MAX_MINORITY_RANKS + 1)},
        {"detail": "x" * (MAX_DETAIL + 1)},
        {"step": -1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_reports_beyond_their_bounds_are_refused(wrong: dict[str, Any]) -> None:
    """The agent refuses a report of replicas that is out of bounds."""
    sound = {"kind": "replicas", "step": 2, "what": "weight", "ranks": [1], "detail": "head"}
    assert read_packet(json.dumps(sound).encode())[1] == []
    reports, malformed = read_packet(json.dumps({**sound, **wrong}).encode())
    assert reports == []
    assert len(malformed) == 1
