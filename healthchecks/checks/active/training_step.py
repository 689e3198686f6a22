"""training_step: a small training computes the same weights, bit for bit, each time on each device, and learns.

Once more on the same device is no golden result: a fault that repeats shows only beside other nodes. So the hash of the weights
is reported as a number, too (`training_step.fingerprint`), which is the same on all nodes with this kind of device and this torch.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_most
from healthchecks.probe import devices_of, judge_answers, run_probes

NAME = "training_step"
# Of the hash: a float holds 12 hexadecimal digits exactly.
FINGERPRINT_DIGITS = 12


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Train on all devices at the same time."""
    devices = devices_of(node)
    answers = run_probes(NAME, node, [{"device": device} for device in devices])
    evidence = judge_answers(
        zip(devices, answers, strict=True),
        lambda numbers: judge_numbers(numbers, judge),
        lambda device, why: judge(
            "training_step.differing_repetitions", None, subject=device, note=why
        ),
    )
    return Verdict(check=NAME, evidence=evidence)


def judge_numbers(numbers: Mapping[str, Any], judge: Judge) -> Iterator[Evidence]:
    """Judge one device, and report its fingerprint."""
    device, hashes, losses = str(numbers["device"]), numbers["hashes"], numbers["losses"]
    differing = sum(each != hashes[0] for each in hashes)
    finite = [loss for loss in losses if math.isfinite(loss)]
    ratio = losses[-1] / losses[0] if len(finite) == len(losses) else None
    # One alone was compared with none.
    value, note = (differing, f"of {len(hashes)}") if len(hashes) > 1 else (None, "done once only")
    yield judge("training_step.differing_repetitions", value, subject=device, note=note)
    yield judge("training_step.not_numbers", len(losses) - len(finite), subject=device)
    yield judge("training_step.loss_ratio", ratio, subject=device)
    yield Evidence(
        name="training_step.fingerprint",
        value=float(int(hashes[0][:FINGERPRINT_DIGITS], 16)),
        unit="hash",
        subject=f"{device}, torch {numbers['torch']}",
        better="same",
        note=f"{hashes[0]} on {numbers['kind']}",
    )


CHECK = HealthCheck(
    name=NAME,
    position=240,
    run=check,
    needs=("num_gpus", "python"),
    seconds={"quick": 5.0, "standard": 8.0, "deep": 120.0},
    limits={
        "training_step.differing_repetitions": at_most(0, "repetitions", DEFINED, most=0),
        "training_step.not_numbers": at_most(0, "losses", DEFINED, most=0),
        # The same batch in each step.
        "training_step.loss_ratio": at_most(0.99, "ratio", CHOSEN, least=0.01, most=1),
    },
)
