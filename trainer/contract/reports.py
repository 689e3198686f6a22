"""A rank's reports on its steps: one per step on the channel, and a line every `log_every` steps for the operator."""

import resource
import statistics
import sys
from collections import deque
from time import thread_time
from typing import Any

import torch

from stoker.channel import Channel
from trainer.config.flops import model_flops_per_token, tokens_per_step
from trainer.config.settings import Settings
from trainer.parallel.engine import Engine, StepResult

# Steps whose loss and gradient norm go into a checkpoint's manifest, as evidence of its health.
EVIDENCE_STEPS = 20
TERA = 1e12
COST_STEPS = 1000
# The peak of memory is read once in so many reports: it hardly moves after the first step, and reading it costs half as much
# as a report. Chosen, not measured.
PEAK_STEPS = 10


class Reporter:
    """Turns step results into reports, and measures what that costs.

    `seconds` is CPU time of this thread, so a busy machine does not distort it.
    """

    def __init__(self, settings: Settings, engine: Engine, channel: Channel) -> None:
        self._settings = settings
        self._engine = engine
        self._channel = channel
        self._phase = ""
        self._tokens = tokens_per_step(settings)
        flops = model_flops_per_token(settings.model) * self._tokens
        self._tera_per_rank = flops / settings.layout.world_size / TERA
        self.recent: deque[dict[str, Any]] = deque(maxlen=EVIDENCE_STEPS)
        self.seconds = 0.0
        self._peak_memory_bytes = 0
        self._num_reports = 0
        self._costs: deque[float] = deque(maxlen=COST_STEPS)
        self._spent = 0.0

    def phase(self, name: str) -> None:
        """Report the phase when it changes."""
        if name != self._phase:
            self._phase = name
            self._channel.report("phase", phase=name)

    def step(
        self,
        step: int,
        result: StepResult,
        *,
        data_step: int,
        step_seconds: float,
        data_wait_seconds: float,
        nonfinite_layer: str | None,
    ) -> None:
        """Report one step that is done."""
        started = thread_time()
        lr = float(self._engine.param_groups[0]["lr"])
        rate = self._tera_per_rank / step_seconds
        if self._num_reports % PEAK_STEPS == 0:
            self._peak_memory_bytes = _peak_memory_bytes(self._engine.world.device)
        self._num_reports += 1
        fields: dict[str, Any] = {
            "step": step,
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "local_grad_norm": result.local_grad_norm,
            "compute_seconds": max(
                0.0, step_seconds - data_wait_seconds - result.communication_seconds
            ),
            "data_wait_seconds": data_wait_seconds,
            "step_seconds": step_seconds,
            "lr": lr,
            "loss_scale": result.loss_scale,
            "skipped": result.skipped,
            "data_step": data_step,
            "tokens_per_second": self._tokens / step_seconds,
            "model_tflops_per_second": rate,
            "peak_memory_bytes": self._peak_memory_bytes,
            "stage": self._engine.world.coords.pipeline,
        }
        if self._settings.peak_tflops:
            fields["mfu_ratio"] = rate / self._settings.peak_tflops
        if result.activation_norm is not None:
            fields["activation_norm"] = result.activation_norm
        if nonfinite_layer is not None:
            fields["first_nonfinite_layer"] = nonfinite_layer
        self._channel.report("step", **fields)
        self.recent.append({"step": step, "loss": result.loss, "grad_norm": result.grad_norm})
        self.seconds += thread_time() - started
        self._line(fields)

    def record_cost(self, agreement_seconds: float) -> None:
        """Record what supervision cost in this step: report, gradient watch, requests."""
        spent = self.seconds + self._engine.watch.seconds + agreement_seconds
        self._costs.append(spent - self._spent)
        self._spent = spent

    def cost_seconds(self) -> float:
        """Return the median of those costs over the last steps, CPU seconds of this thread."""
        return statistics.median(self._costs) if self._costs else 0.0

    def log_cost(self) -> None:
        """Log that median."""
        us = 1e6 * self.cost_seconds()
        self.log(f"supervision took {us:.0f} us of CPU a step on this rank")

    def _line(self, fields: dict[str, Any]) -> None:
        every = self._settings.log_every
        step = fields["step"]
        last = step == self._settings.steps
        if self._engine.world.coords.rank != 0 or not every or (step % every and not last):
            return
        note = "  skipped" if fields["skipped"] else ""
        self.log(
            f"step {step}/{self._settings.steps}  loss {fields['loss']:.4f}  "
            f"grad norm {fields['grad_norm']:.3f}  lr {fields['lr']:.3e}  "
            f"{fields['tokens_per_second']:.0f} tokens/s{note}"
        )

    def log(self, text: str) -> None:
        """Write a line to rank 0's output; other ranks write none."""
        if self._engine.world.coords.rank == 0:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


def _peak_memory_bytes(device: torch.device) -> int:
    """Peak of the device's allocator on a GPU, of the process's resident set on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
