"""Training, from the first collective to the exit code. Read it from top to bottom."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter

import torch

from stoker.channel import Channel
from trainer.checkpoint import Checkpoints, Evidence, Origin
from trainer.config.settings import Settings
from trainer.contract.launch import Launch
from trainer.contract.reports import Reporter
from trainer.contract.request_agreement import Agreement, Decision
from trainer.data.batches import Batch, Corpus, open_data
from trainer.data.sample_record import SampleRecord
from trainer.faults.drills import Drills
from trainer.faults.injection import Injection
from trainer.faults.injection_plan import read_plan
from trainer.faults.left_behind import free_disk, poisoned_positions
from trainer.integrity.replicas import ReplicaCheck
from trainer.parallel.engine import Engine, MicroBatch
from trainer.parallel.world import World
from trainer.resume import (
    DataOrder,
    StartPoint,
    carry_out_resets,
    refuse_other_data,
    refuse_other_model,
    refuse_unwritable,
    start_point,
)
from trainer.schedule import learning_rate

GOAL_REACHED = 0
STOPPED = 75


def train(settings: Settings, launch: Launch, channel: Channel) -> int:
    """Train until the goal or until asked to stop; returns the exit code of the contract.

    Raises SpecError for what no restart can repair: data other than the checkpoint's, a folder that
    cannot be written, a layout that does not fit the number of ranks.
    """
    timings = Timings(channel)
    settings = launch.remedies.changed(settings)
    half = settings.precision.dtype != "fp32"
    planned = read_plan(os.environ, settings.layout.world_size, half=half)
    data = open_data(settings)
    channel.report("data", fingerprint=data.fingerprint)
    manifest = refuse_other_model(launch.resume, settings) if launch.resume is not None else None
    start = start_point(manifest) if manifest is not None else StartPoint()
    if launch.rank == 0:
        refuse_other_data(manifest, data, approved=launch.data)
    if launch.checkpoints is not None:
        free_disk(launch.checkpoints)
        refuse_unwritable(launch.checkpoints, launch.rank)
    timings.hold()

    world = World(settings)
    # Rank 0 has reported its data by now: the supervisor learns that it is another before other ranks end for it.
    refuse_other_data(manifest, data, approved=launch.data)
    timings.lap("connect")
    engine = Engine(settings, world)
    timings.lap("build")

    drills = Drills(launch.rank, settings, root=launch.checkpoints)
    checkpoints = Checkpoints(
        engine,
        world,
        root=launch.checkpoints,
        origin=Origin(run=launch.run, attempt=launch.attempt, generation=launch.generation),
        drills=drills,
    )
    done = 0
    if launch.resume is not None:
        done = checkpoints.load(launch.resume)
    else:
        engine.init_parameters()
    resets = carry_out_resets(engine, launch.remedies, start)
    engine.sgd_stretches = launch.remedies.sgd
    timings.lap("load")

    order = DataOrder(start=start, skipped=launch.remedies.skip_steps)
    loop = Loop(
        settings,
        launch,
        channel,
        engine=engine,
        data=data,
        order=order,
        checkpoints=checkpoints,
        resets=resets,
    )
    loop.report_settings(done)
    injection = Injection([*planned, *poisoned_positions(launch.checkpoints)], engine, data)
    agreement = Agreement(channel, world.side_group, settings.layout.world_size)
    exit_code = GOAL_REACHED
    for step in range(done + 1, settings.steps + 1):
        agreement.begin()
        injection.before(step)
        # Not before the first step: what was loaded has been verified, and a comparison would delay the start.
        if step > done + 1:
            loop.compare_replicas(step - 1)
        injection.before_training()
        loop.step(step, timings if step == done + 1 else None)
        decision = agreement.end(step)
        loop.record_cost(agreement.seconds)
        for drill, agreed in decision.drills:
            injection.add(drills.begin(drill, agreed, position=order.position(agreed + 1)))
        if settings.validate_every and step % settings.validate_every == 0:
            loop.validate(step)
        if loop.wants_checkpoint(step, decision):
            loop.save(step)
        if decision.stop:
            exit_code = STOPPED
            break
    loop.finish()
    world.leave()
    return exit_code


class Loop:
    """The parts of one iteration of the loop."""

    def __init__(  # noqa: PLR0913 - all that a step needs
        self,
        settings: Settings,
        launch: Launch,
        channel: Channel,
        *,
        engine: Engine,
        data: Corpus,
        order: DataOrder,
        checkpoints: Checkpoints,
        resets: Mapping[str, Sequence[str]],
    ) -> None:
        self._settings = settings
        self._remedies = launch.remedies
        self._saves = launch.checkpoints is not None
        self._channel = channel
        self._engine = engine
        self._data = data
        self._order = order
        self._resets = resets
        self._checkpoints = checkpoints
        self._replicas = ReplicaCheck(engine, agreed_step=order.start.done)
        self._reporter = Reporter(settings, engine, channel)
        self._samples: SampleRecord | None = None
        if settings.data.record_samples and engine.reads_data:
            self._samples = SampleRecord(settings.data.record_samples, launch)
        self._is_rank_0 = engine.world.coords.rank == 0

    def step(self, step: int, timings: "Timings | None" = None) -> None:
        """Train one step and report it; `timings` is given for the first one."""
        self._reporter.phase("step")
        position = self._order.position(step)
        started = perf_counter()
        batch = self._micro_batches(partial(self._data.batch, position))
        if self._samples is not None:
            self._samples.add(step, position, self._data.last_windows)
        data_wait_seconds = perf_counter() - started
        result = self._engine.train_step(batch, step=step, lr=self._lr(step))
        step_seconds = perf_counter() - started
        # Before the step's report, with which the agent considers the start complete.
        if timings is not None:
            timings.lap("first_step")
        nonfinite_layer = None
        if result.skipped or not math.isfinite(result.loss):
            nonfinite_layer = self._engine.locate_nonfinite(result, batch)
        self._reporter.step(
            step,
            result,
            data_step=position,
            step_seconds=step_seconds,
            data_wait_seconds=data_wait_seconds,
            nonfinite_layer=nonfinite_layer,
        )
        self._replicas.remember(step)

    def compare_replicas(self, done: int) -> None:
        """After `done` steps, before the next one: compare the replicas if that is due, and report what differs."""
        if not self._replicas.due(done):
            return
        read = partial(self._data.batch, self._order.position(done + 1))
        for finding in self._replicas.compare(done, partial(self._shared_micro_batch, read)):
            if self._is_rank_0:
                fields = dataclasses.asdict(finding)
                agreed = self._replicas.agreed_step
                self._channel.report("replicas", step=done, agreed_step=agreed, **fields)
                ranks = ", ".join(map(str, finding.ranks)) or "unknown"
                self._reporter.log(
                    f"step {done}  replicas disagree: {finding.what} of rank {ranks}, {finding.detail}"
                )

    def validate(self, step: int) -> None:
        """Report the loss on held-out text, the same windows each time."""
        self._reporter.phase("evaluate")
        batches: list[MicroBatch] = []
        for index in range(self._settings.validation_batches):
            batches += self._micro_batches(partial(self._data.validation_batch, index))
        num_micro_batches = self._settings.validation_batches * self._settings.num_micro_batches
        loss = self._engine.validate(batches, num_micro_batches=num_micro_batches)
        if self._is_rank_0:
            self._channel.report("validation", step=step, loss=loss)
            self._reporter.log(f"step {step}  validation loss {loss:.4f}")

    def wants_checkpoint(self, step: int, decision: Decision) -> bool:
        """Whether a checkpoint is due after this step: by request, by the interval, or at the goal."""
        every = self._settings.checkpoint_every
        due = bool(every) and (step % every == 0 or step == self._settings.steps)
        return self._saves and (due or decision.checkpoint)

    def save(self, step: int) -> None:
        """Write, seal and report a checkpoint."""
        self._reporter.phase("checkpoint")
        evidence = Evidence(
            data={
                "fingerprint": self._data.fingerprint,
                "position": self._order.position(step),
            },
            metrics=list(self._reporter.recent),
            settings={**dataclasses.asdict(self._settings), "resets": dict(self._resets)},
        )
        folder = self._checkpoints.save(step, evidence)
        if self._is_rank_0 and folder is not None:
            self._channel.report("checkpoint", step=step, path=str(folder))
            self._reporter.log(f"step {step}  checkpoint {folder.name}")

    def report_settings(self, done: int) -> None:
        """Report the settings in effect, as read back from the optimizer and the order of the data, not as requested."""
        for group in self._engine.param_groups:
            group["lr"] = self._lr(min(done + 1, self._settings.steps))
        decayed = self._engine.param_groups[0]
        values = {
            "lr": decayed["lr"],
            "lr_peak": self._lr_peak,
            "lr_factor": self._remedies.lr_factor,
            "lr_floor": self._settings.optimizer.lr * self._settings.optimizer.min_lr_ratio,
            "betas": list(decayed["betas"]),
            "eps": decayed["eps"],
            "weight_decay": decayed["weight_decay"],
            "clip": self._engine.clip,
            "optimizer": [["sgd", *stretch] for stretch in self._engine.sgd_stretches],
            "skip_steps": [list(skipped) for skipped in self._order.skipped],
            "data_position": self._order.position(done),
            "loss_scale": self._engine.loss_scale,
            **self._resets,
            "steps": self._settings.steps,
            "precision": self._engine.precision,
            "layout": dataclasses.asdict(self._settings.layout),
        }
        if self._is_rank_0:
            self._channel.report("settings", step=done, values=values)

    def record_cost(self, agreement_seconds: float) -> None:
        """Record what supervision cost in this step."""
        self._reporter.record_cost(agreement_seconds)

    def finish(self) -> None:
        """Log what supervision cost."""
        self._reporter.log_cost()

    @property
    def _lr_peak(self) -> float:
        peak = self._remedies.lr_peak
        return self._settings.optimizer.lr if peak is None else peak

    def _lr(self, step: int) -> float:
        if self._remedies.lr is not None:
            return self._remedies.lr
        factor = self._remedies.lr_factor
        return learning_rate(self._settings, step, peak=self._lr_peak, factor=factor)

    def _micro_batches(self, read: Callable[..., Batch]) -> list[MicroBatch]:
        """Read this replica's rows of a global batch as micro-batches; tokens and targets (B, T) each.

        Stages in the middle of the pipeline read nothing.
        """
        if not self._engine.reads_data:
            return []
        size = self._settings.batch.micro_batch
        share = size * self._settings.num_micro_batches
        first = self._engine.world.coords.data * share
        tokens, targets = (
            torch.from_numpy(part) for part in read(rows=slice(first, first + share))
        )
        return [(tokens[i : i + size], targets[i : i + size]) for i in range(0, share, size)]

    def _shared_micro_batch(self, read: Callable[..., Batch]) -> list[MicroBatch]:
        """Read the first micro-batch of a global batch, the same on every replica."""
        if not self._engine.reads_data:
            return []
        tokens, targets = read(rows=slice(0, self._settings.batch.micro_batch))
        return [(torch.from_numpy(tokens), torch.from_numpy(targets))]


class Timings:
    """How long each part of a start took; every part is reported once."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last = perf_counter()
        self._held = 0.0

    def hold(self) -> None:
        """Add the seconds so far, in which the data was opened, to the lap called `load`."""
        now = perf_counter()
        self._held, self._last = now - self._last, now

    def lap(self, name: str) -> None:
        """Report the seconds since the last lap."""
        now = perf_counter()
        seconds, self._last = now - self._last, now
        if name == "load":
            seconds += self._held
        self._channel.report("timing", name=name, seconds=seconds)
