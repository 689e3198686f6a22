"""The program of a rank when recall is measured: it injects one planned fault after the other, and compares replicas after each.

Started by the fork server in place of `trainer.cli`. Each fault is undone before the next one comes. The variable FLIPS is the
number of flips for each site, spread over all bits; with none, it reports the cost of comparisons.
"""

import json
import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch
import torch.distributed as dist

from stoker.channel import Channel
from trainer.checkpoint import PARTS
from trainer.config.settings import load_settings
from trainer.data.batches import open_data
from trainer.faults.injection import Injection
from trainer.faults.injection_plan import Fault
from trainer.integrity.replicas import GRADIENTS_EVERY, ReplicaCheck
from trainer.parallel.engine import Engine, MicroBatch
from trainer.parallel.world import World

SEED = 20240607
# steps and comparisons timed
TIMED = 20
# a number of steps done after which weights are compared and gradients are not
PLAIN = 11
# ranks that were named; None: nothing was seen
Watermarks = set[int] | None


class Ground:
    """One rank of a gang in which bits are flipped. Replicas are compared after every step."""

    def __init__(self, settings_json: str) -> None:
        self.settings = load_settings({**json.loads(settings_json), "sdc_every": 1})
        self.data = open_data(self.settings)
        self.world = World(self.settings)
        self.engine = Engine(self.settings, self.world)
        self.engine.init_parameters()
        # moments that are not zero
        self.train()

    def batch(self, *, shared: bool) -> list[MicroBatch]:
        """Read this replica's rows of the first batch, or the first micro-batch, the same for all."""
        if not self.engine.reads_data:
            return []
        size = self.settings.batch.micro_batch
        rows = size if shared else size * self.settings.num_micro_batches
        first = 0 if shared else self.world.coords.data * rows
        parts = self.data.batch(1, rows=slice(first, first + rows))
        tokens, targets = map(torch.from_numpy, parts)
        return [(tokens[i : i + size], targets[i : i + size]) for i in range(0, rows, size)]

    def train(self) -> float:
        """Train one step; returns this rank's own gradient norm."""
        return self.engine.train_step(self.batch(shared=False), lr=1e-3).local_grad_norm

    def look(self, check: ReplicaCheck, *, gradients: bool = False) -> Watermarks:
        """Compare the replicas; return the named ranks."""
        done = GRADIENTS_EVERY if gradients else PLAIN
        found = check.compare(done, lambda: self.batch(shared=True))
        return {rank for finding in found for rank in finding.ranks} if found else None

    @contextmanager
    def fault(self, site: str, bit: int, draw: int) -> Iterator[None]:
        """Flip one bit on the rank whose turn it is; undone at the end."""
        state = [parameter.data for parameter in self.engine.parameters.values()]
        for parameter in self.engine.parameters.values():
            fragments = (self.engine.fragment(parameter, part) for part in PARTS)
            state += [fragment[1] for fragment in fragments if fragment is not None]
        kept = [tensor.clone() for tensor in state]
        rank = draw % self.settings.layout.world_size
        plan = {"kind": "flip", "site": site, "bit": bit, "rank": rank, "first": 1, "last": 1}
        fault = Fault(seed=SEED + draw, **plan)  # type: ignore[arg-type]
        Injection([fault], self.engine, self.data).before(1)
        yield
        self.engine.watch.on_gradient.clear()
        for tensor, before in zip(state, kept, strict=True):
            tensor.copy_(before)

    def at_once(self, site: str, bit: int, draw: int) -> Watermarks:
        """A comparison comes after the flip and before the next step."""
        check = ReplicaCheck(self.engine)
        with self.fault(site, bit, draw):
            return self.look(check, gradients=site == "gradient")

    def covered(self, site: str, bit: int, draw: int) -> Watermarks:
        """The flip comes after a step whose end was remembered; a comparison comes a step later."""
        return self._later(site, bit, draw, remembered=True)

    def uncovered(self, site: str, bit: int, draw: int) -> Watermarks:
        """The flip comes in a step that no comparison covers; one comes a step later."""
        return self._later(site, bit, draw, remembered=False)

    def _later(self, site: str, bit: int, draw: int, *, remembered: bool) -> Watermarks:
        check = ReplicaCheck(self.engine)
        if remembered:
            check.remember(PLAIN)
        with self.fault(site, bit, draw):
            self.train()
            return self.look(check)

    def norms(self, site: str, bit: int, draw: int) -> Watermarks:
        """Nothing is compared: the ranks whose own gradient norm is not finite in that step are named."""
        with self.fault(site, bit, draw):
            finite = math.isfinite(self.train())
        all_finite = [finite] * self.settings.layout.world_size
        if len(all_finite) > 1:
            dist.all_gather_object(all_finite, finite, group=self.world.side_group)
        return {rank for rank, finite in enumerate(all_finite) if not finite} or None

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the median wall time of a call."""
        times = []
        for _ in range(TIMED):
            started = perf_counter()
            call()
            times.append(perf_counter() - started)
        return statistics.median(times)


def main(arguments: Sequence[str]) -> int:
    """Report the result and cost of comparing healthy replicas, then flip bits at every site and report the findings."""
    ground = Ground(arguments[arguments.index("--settings-json") + 1])
    channel = Channel.from_environment()
    check = ReplicaCheck(ground.engine)
    alarms = [ground.look(check, gradients=gradients) for gradients in (False, True, True)]
    channel.report("healthy", findings=sum(alarm is not None for alarm in alarms))
    number = int(os.environ["FLIPS"])
    if not number:
        channel.report(
            "cost",
            step_seconds=ground.seconds(ground.train),
            weights_seconds=ground.seconds(lambda: ground.look(check)),
            owned_seconds=2 * ground.seconds(check._owned_digests),
            gradients_seconds=ground.seconds(lambda: ground.look(check, gradients=True)),
        )
    half = ground.settings.precision.dtype != "fp32"
    for site, trial in (
        ("weight", ground.at_once),
        ("master", ground.at_once),
        ("gradient", ground.at_once),
        ("master", ground.covered),
        ("exp_avg", ground.covered),
        ("exp_avg_sq", ground.covered),
        ("weight", ground.uncovered),
        ("master", ground.uncovered),
        ("exp_avg", ground.uncovered),
        ("exp_avg_sq", ground.uncovered),
        ("gradient", ground.norms),
    ):
        width = 16 if half and site == "weight" else 32
        bits = [width - 1 - i * width // number for i in range(number)]
        seen = [trial(site, bit, draw) for draw, bit in enumerate(bits)]
        turns = [{draw % ground.settings.layout.world_size} for draw in range(number)]
        channel.report(
            "recall",
            site=site,
            when=trial.__name__,
            flips=number,
            seen=sum(ranks is not None for ranks in seen),
            named=sum(ranks == turn for ranks, turn in zip(seen, turns, strict=True)),
            wrong=sum(
                bool((ranks or turn) - turn) for ranks, turn in zip(seen, turns, strict=True)
            ),
        )
    ground.world.leave()
    return 0
