"""The answer of `trainer --check` to each recipe, beside counts of real layers and published figures."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bench.report import Report
from trainer.config.settings import load_settings, recipe_names

# Dash et al. 2023 (Frontier), recomputed: 12 L d^2 parameters, 20 bytes each, a bubble of 15 in 640 and in 655.
PUBLISHED: dict[str, dict[str, tuple[float, str, Callable[[dict[str, Any]], float]]]] = {
    "gpt_175b_frontier": {
        "parameters of blocks": (173.9, "e9", lambda a: a["parameters"]["blocks"] / 1e9),
        "bytes per parameter": (
            20.0,
            "bytes",
            lambda a: states(a) / a["parameters"]["largest_rank"],
        ),
        "bubble of ideal time": (2.34, "%", lambda a: 100 * a["bubble"]["of_ideal_ratio"]),
        "bubble of total time": (2.29, "%", lambda a: 100 * a["bubble"]["of_total_ratio"]),
        "states per rank": (54.7, "GB, mean rank", lambda a: 20 * a["parameters"]["blocks"] / 64e9),
    }
}
# Parameters may differ by one in a hundred; the published figures are rounded to three digits.
MAX_DEVIATION_PERCENT = 1.0


def states(answer: dict[str, Any]) -> int:
    """Add up what a rank holds between steps, gradients included."""
    held = answer["bytes_per_rank"]
    return int(held["parameters"] + held["gradients"] + held["optimizer"])


def check(name: str) -> dict[str, Any]:
    """Ask the trainer, as a supervisor does: a child that answers in JSON."""
    command = [sys.executable, "-P", "-m", "trainer", "--check", "--recipe", name, "--ranks-here=0"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def count_layers(name: str) -> int:
    """Count the parameters of the layers the trainer really builds, made on no device."""
    import torch

    from trainer.model.gpt import layers
    from trainer.parallel.collectives import Meter, TensorAxis

    axis = TensorAxis(None, rank=0, size=1, meter=Meter(torch.device("cpu")))
    with torch.device("meta"):
        built = [
            recipe.kind(*recipe.arguments, **recipe.options)
            for recipe in layers(load_settings(name).model, axis, recompute=False)
        ]
    return sum(weight.numel() for layer in built for weight in layer.parameters())


def deviation_percent(value: float, expected: float) -> float:
    """Return how far a value lies from what was expected."""
    return 100 * abs(value / expected - 1)


def main() -> int:
    """Print every recipe's figures; return 1 when one is further from its counterpart than allowed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    missed = 0
    for name in recipe_names():
        answer = check(name)
        report = Report(
            f"recipe {name}: {answer['world_size']} ranks",
            "`trainer --check` without torch; parameters against the layers built on torch's meta device",
        )
        total, held = answer["parameters"]["total"], answer["bytes_per_rank"]
        report.figure("parameters", total / 1e6, "million")
        report.figure(
            "  off the count of real layers",
            deviation_percent(total, count_layers(name)),
            "%",
            at_most=MAX_DEVIATION_PERCENT,
        )
        for part in ("parameters", "gradients", "optimizer", "activations", "total"):
            report.figure(f"bytes per rank, stage {held['stage']}: {part}", held[part] / 1e9, "GB")
        report.figure("bubble of ideal time", 100 * answer["bubble"]["of_ideal_ratio"], "%")
        report.figure("bubble of total time", 100 * answer["bubble"]["of_total_ratio"], "%")
        report.figure("model FLOPs per step", answer["model_flops_per_step"] / 1e12, "TFLOP")
        for what, (expected, unit, read) in PUBLISHED.get(name, {}).items():
            value = read(answer)
            report.figure(f"{what} (published: {expected} {unit})", value, unit)
            off = deviation_percent(value, expected)
            report.figure("  off the published", off, "%", at_most=MAX_DEVIATION_PERCENT)
        missed += report.num_missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
