"""Remedies in the built-in trainer: in effect after a resume, as read back from optimizer, scaler and data, and in its steps."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given  # noqa: E402  torch is optional
from hypothesis import strategies as st  # noqa: E402

from runner import checkpoints  # noqa: E402
from runner.errors import SpecError  # noqa: E402
from runner.facts.remedies import disagreement  # noqa: E402
from tests.trainer.gangs import Ended, Gangs, Layout  # noqa: E402
from trainer.checkpoint_metadata import read_state  # noqa: E402
from trainer.contract.remedies import read_remedies  # noqa: E402
from trainer.parallel.optimizer import SwitchableAdamW  # noqa: E402
from trainer.resume import DataOrder, StartPoint  # noqa: E402

pytestmark = pytest.mark.trainer

SAVED, STEPS = 4, 8
SETTINGS: dict[str, Any] = {
    "recipe": "tiny_cpu",
    "model": {"width": 32, "ffn_width": 88, "sequence": 32, "layers": 2},
    "optimizer": {"warmup_steps": 2, "decay_steps": 100},
    "steps": STEPS,
    "checkpoint_every": SAVED,
    "validate_every": 0,
}
LAYOUT = Layout(pipeline=2)
REMEDIES: dict[str, Any] = {
    "lr": 2e-4,
    "skip_steps": [[2, 3], [6, 6], [8, 9]],
    "clip": 0.01,
    "betas": [0.8, 0.9],
    "optimizer": [["sgd", 5, 6]],
    "optimizer_reset": ["1.r7"],
}


def run(
    gangs: Gangs,
    folder: Path,
    attempt: str,
    *,
    resume: Path | None = None,
    remedies: dict[str, Any] | None = None,
    expect: int = 0,
    **settings: Any,
) -> Ended:
    """Run to the goal, with checkpoints in a folder."""
    environment = {"STOKER_CHECKPOINTS": str(folder), "STOKER_ATTEMPT": attempt}
    if resume is not None:
        environment["STOKER_RESUME"] = str(resume)
    environment["STOKER_REMEDIES"] = json.dumps(remedies or {})
    given = {**SETTINGS, **settings}
    return gangs.run(given, layout=LAYOUT, environment=environment, expect=expect)


def moments(folder: Path) -> tuple[Any, Any]:
    """Return both moments of one layer's norm, from a checkpoint's file."""
    names = [f"{part}/blocks.0.attention_norm.weight" for part in ("exp_avg", "exp_avg_sq")]
    state = {name: torch.zeros(SETTINGS["model"]["width"]) for name in names}
    read_state(folder, checkpoints.read_manifest(folder).files, state)
    first, second = (state[name].double() for name in names)
    return first, second


def adam_steps(folder: Path) -> float:
    """Return how many steps AdamW's state has seen, from a checkpoint's file."""
    state = {"counters": torch.zeros(6, dtype=torch.float64)}
    read_state(folder, checkpoints.read_manifest(folder).files, state)
    return float(state["counters"][1])


def test_remedies_are_in_effect_after_a_resume_and_resets_happen_once(
    gangs: Gangs, tmp_path: Path
) -> None:
    """Betas, clip, one rate, SGD, skipped data and a reset; what follows a second resume repeats no reset and reads on."""
    whole = run(gangs, tmp_path, "1.1.0")
    saved = checkpoints.checkpoint_folder(tmp_path, "1.1.0", SAVED)
    ended = run(gangs, tmp_path, "1.2.0", resume=saved, remedies=REMEDIES)
    (report,) = ended.of_kind("settings")
    assert disagreement(REMEDIES, report["values"]) == {}
    assert ended.values("lr") == [2e-4] * (STEPS - SAVED)
    # What lies before the checkpoint is trained, and is not left out any more.
    assert ended.values("data_step") == [5, 7, 10, 11]
    assert ended.values("loss")[0] == whole.values("loss")[SAVED]
    assert ended.values("loss")[1] != whole.values("loss")[SAVED + 1]
    # Two of the four steps were SGD's, after the reset.
    again = checkpoints.checkpoint_folder(tmp_path, "1.2.0", STEPS)
    assert adam_steps(again) == 2
    assert checkpoints.read_manifest(again).data["position"] == 11
    ended = run(gangs, tmp_path, "1.2.1", resume=again, remedies=REMEDIES, steps=10)
    (report,) = ended.of_kind("settings")
    assert disagreement(REMEDIES, report["values"]) == {}
    assert report["values"]["data_position"] == 11
    assert ended.values("data_step") == [12, 13]
    assert adam_steps(checkpoints.checkpoint_folder(tmp_path, "1.2.1", 10)) == 4


def test_betas_overridden_on_resume_decay_the_moments_that_were_loaded(
    gangs: Gangs, tmp_path: Path
) -> None:
    """Of the same step under old and new betas, one moment gives the gradient, and the other is what it must make of it.

    OPT-175B's run 12.35 was invalid: reloading the optimizer had restored the old betas.
    """
    run(gangs, tmp_path, "1.1.0", steps=SAVED)
    saved = checkpoints.checkpoint_folder(tmp_path, "1.1.0", SAVED)
    after = []
    for number, remedies in ((2, {}), (3, {"betas": [0.5, 0.6]})):
        attempt = f"1.{number}.0"
        run(gangs, tmp_path, attempt, resume=saved, remedies=remedies, steps=SAVED + 1)
        after.append(moments(checkpoints.checkpoint_folder(tmp_path, attempt, SAVED + 1)))
    # Of the recipe.
    for part, old, new in ((0, 0.9, 0.5), (1, 0.95, 0.6)):
        before, usual, changed = moments(saved)[part], after[0][part], after[1][part]
        # The gradient, or its square.
        fresh = (usual - old * before) / (1 - old)
        assert fresh.abs().max() > 0
        due = new * before + (1 - new) * fresh
        assert torch.allclose(changed, due, rtol=1e-3, atol=1e-9)
        assert not torch.allclose(changed, usual, rtol=0.05)


def test_precision_and_loss_scale_are_read_back_from_the_model_and_its_scaler(
    gangs: Gangs, tmp_path: Path
) -> None:
    """A checkpoint of fp32 goes on in fp16; the scale begins again; where there is no scale, its reset has not happened."""
    run(gangs, tmp_path, "1.1.0", steps=SAVED)
    saved = checkpoints.checkpoint_folder(tmp_path, "1.1.0", SAVED)
    remedies = {"precision": "fp16", "loss_scale_reset": ["1.r2"]}
    precision = {"initial_scale_power": 4, "scale_window": 2}
    ended = run(gangs, tmp_path, "1.2.0", resume=saved, remedies=remedies, precision=precision)
    (report,) = ended.of_kind("settings")
    assert disagreement(remedies, report["values"]) == {}
    assert report["values"]["loss_scale"] == 16.0
    assert ended.values("loss_scale")[-1] > 16.0
    grown = checkpoints.checkpoint_folder(tmp_path, "1.2.0", STEPS)
    second = {**remedies, "loss_scale_reset": ["1.r2", "1.r3"]}
    ended = run(
        gangs, tmp_path, "1.3.0", resume=grown, remedies=second, precision=precision, steps=9
    )
    (report,) = ended.of_kind("settings")
    assert (report["values"]["loss_scale"], disagreement(second, report["values"])) == (16.0, {})
    ended = run(
        gangs, tmp_path, "1.4.0", resume=grown, remedies={"loss_scale_reset": ["1.r9"]}, steps=9
    )
    (report,) = ended.of_kind("settings")
    assert (
        "1.r9 was to happen"
        in disagreement({"loss_scale_reset": ["1.r9"]}, report["values"])["loss_scale_reset"]
    )


def test_the_stage_with_the_head_reports_how_large_activations_are(
    gangs: Gangs, tmp_path: Path
) -> None:
    """The last stage alone: a positive number in every step, which validation does not change."""
    ended = run(gangs, tmp_path, "1.1.0", steps=3, validate_every=1)
    assert all("activation_norm" not in report for report in ended.of_kind("step", rank=0))
    norms = ended.values("activation_norm", rank=1)
    assert len(norms) == 3
    assert all(0 < norm < 100 for norm in norms)


def test_steps_of_sgd_leave_adamw_s_state_alone() -> None:
    """W - lr x gradient, after the decay; then AdamW goes on with its step count and moments."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    adam = SwitchableAdamW([weight], lr=0.1, weight_decay=0.5)
    weight.grad = torch.tensor([0.5, 1.0])
    adam.step()
    before, state = weight.detach().clone(), {k: v.clone() for k, v in adam.state[weight].items()}
    adam.uses_sgd = True
    adam.step()
    assert torch.allclose(weight, before * 0.95 - 0.1 * weight.grad)
    assert all(torch.equal(state[name], value) for name, value in adam.state[weight].items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "cannot be read"),
        ("{", "cannot be read"),
        ('{"lr": -1}', "lr = -1"),
        ('{"skip_steps": [[3, 2]]}', "no list of ranges"),
        ('{"betas": [0.9]}', "betas"),
        ('{"optimizer": ["sgd", 1, 2]}', "sgd"),
        ('{"optimizer_reset": "1.r1"}', "must be a list"),
    ],
)
def test_remedies_that_cannot_be_are_refused(text: str, words: str) -> None:
    """The error names the variable and the value."""
    with pytest.raises(SpecError, match=r"STOKER_REMEDIES") as caught:
        read_remedies(text)
    assert words in str(caught.value)


def test_the_product_of_factors_may_exceed_one_request_s_bound() -> None:
    """Two requests for x2 are x4."""
    assert read_remedies('{"lr_factor": 4.0, "later": 1}').lr_factor == 4.0


stretch = st.tuples(st.integers(1, 9), st.tuples(st.integers(1, 40), st.integers(0, 6)))


@given(st.lists(stretch, min_size=1, max_size=6), st.data())
def test_however_often_a_run_resumes_it_reads_each_step_that_is_not_left_out_once(
    stretches: list[tuple[int, tuple[int, int]]], data: st.DataObject
) -> None:
    """Skips that come and go between attempts change what is read from then on; nothing is read twice or left out by mistake."""
    start, read, left_out = StartPoint(), list[int](), set[int]()
    ranges: list[tuple[int, int]] = []
    for num_steps, (first, length) in stretches:
        ranges = [*ranges, (first, first + length)]
        if data.draw(st.booleans()):
            ranges = ranges[1:]
        order = DataOrder(start=start, skipped=tuple(ranges))
        steps = range(start.done + 1, start.done + num_steps + 1)
        here = [order.position(step) for step in steps]
        now_out = {step for begin, end in ranges for step in range(begin, end + 1)}
        left_out |= {step for step in now_out if start.read < step <= here[-1]}
        read += here
        start = StartPoint(done=steps[-1], read=order.position(steps[-1]))
    assert read == [step for step in range(1, read[-1] + 1) if step not in left_out]
