"""DeepSpeed: the pipeline, ZeRO-1, one training step. No other module imports it.

What this module takes care of, because DeepSpeed does not:
- no compilation at run time and no file left in /dev/shm: the shared-memory all-reduce (used by
  inference alone) is not built, and AdamW is torch's own;
- every process group has the run's time-out instead of the library's half hour;
- ZeRO stage 1 always, also without data parallelism: stage 0 clips by a norm that leaves out the
  later pipeline stages;
- what a step report needs and the engine does not report: the seconds inside collectives, this
  rank's own gradients (`trainer.parallel.gradient_watch`), and the layer where numbers stopped being finite.

The imports below are all that a rank ever needs from DeepSpeed. Building an engine would import the
marked ones anyway, seconds later; a process that forks ranks has them ready.
"""

import contextlib
import io
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

# The first optimizer imports it.
import torch._dynamo
import torch.distributed as dist

from trainer.parallel.device import has_gpu

# Otherwise DeepSpeed calls the driver to find the accelerator.
if has_gpu():
    os.environ.setdefault("DS_ACCELERATOR", "cuda")
else:
    os.environ["DS_ACCELERATOR"] = "cpu"
os.environ.setdefault("DS_LOG_LEVEL", "warning")

import deepspeed

# The first engine imports it, and the next.
import deepspeed.comm.mori
import deepspeed.module_inject.auto_ep_layer

# ZeRO imports it when it is built.
import deepspeed.runtime.zero.muon.muon_optimizer
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

from trainer.config.settings import Settings
from trainer.model.gpt import layers
from trainer.model.loss import CrossEntropy
from trainer.parallel.activation_watch import ActivationWatch
from trainer.parallel.gradient_watch import GradientWatch
from trainer.parallel.layout import layer_name, stage_bounds
from trainer.parallel.optimizer import SwitchableAdamW
from trainer.parallel.parameters import Sharding, full_shape, initial_values, kind_of, local_part
from trainer.parallel.world import World

# DeepSpeed gathers by a name that torch will drop one day; both versions are pinned.
warnings.filterwarnings("ignore", message=".*all_gather_into_tensor.*", category=FutureWarning)
# `import deepspeed.comm.torch` would give torch itself, for that package has an attribute of the
# name; the module is reached through sys.modules only.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
# The bf16 optimizer collects garbage, a tenth of a second each time, to print memory figures.
sys.modules[BF16_Optimizer.__module__].see_memory_usage = lambda *_, **__: None  # type: ignore[attr-defined]

T = TypeVar("T")
MicroBatch = tuple[torch.Tensor, torch.Tensor]

# Gradients are reduced in buckets of at most this many elements (256 MiB in fp32), chosen, not measured.
BUCKET_ELEMENTS = 64 * 1024 * 1024
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# Calls of DeepSpeed's communication layer that are metered; all others happen outside steps.
METERED_CALLS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "barrier",
    "broadcast",
    "recv",
    "reduce",
    "send",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of one training step.

    loss: mean over the global batch, nats per token, known on every rank. grad_norm: of the whole
    model, before clipping; infinite on a skipped step. local_grad_norm: of the gradients this rank
    holds, mean over its own micro-batches, before they are reduced. loss_scale: in effect for the
    next step. activation_norm: of what the head gets, root mean square, the largest of its own
    micro-batches; None on ranks without the head.
    """

    loss: float
    grad_norm: float
    local_grad_norm: float
    loss_scale: float
    skipped: bool
    communication_seconds: float
    activation_norm: float | None = None


class Engine:
    """One rank's part of the model, its optimizer, and the pipeline that drives them."""

    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        # DeepSpeed prints its topology and memory figures while it is built; rank 0's output is for
        # the operator.
        with contextlib.redirect_stdout(io.StringIO()):
            _join(world)
            self._module = self._build_module()
            self._engine = self._build_engine()
        self._optimizer: Any = self._engine.optimizer
        if self.loss_scaler is not None:
            # At its floor the scale stays, and further steps are skipped and reported: one rank does
            # not decide whether that ends the run.
            self.loss_scaler.raise_error_at_min_scale = False
        # First and last training step of stretches that are made by plain SGD.
        self.sgd_stretches: Sequence[tuple[int, int]] = ()
        self._make_adam_states()
        layers_of = {id(p): self._layer_of(name) for name, p in self.parameters.items()}
        self.watch = GradientWatch(self._engine, layers_of)
        self.activations = ActivationWatch(self._module)

    # ---- the model ----------------------------------------------------------------------------

    def _build_module(self) -> Any:
        model, layout = self.settings.model, self.world.layout
        axis = self.world.tensor_axis
        recipes = layers(model, axis, recompute=self.settings.activation_checkpointing)
        module = PipelineModule(
            layers=[LayerSpec(r.kind, *r.arguments, **r.options) for r in recipes],
            topology=PipeModelDataParallelTopology(
                num_pp=layout.pipeline, num_mp=layout.tensor, num_dp=layout.data
            ),
            loss_fn=CrossEntropy(axis),
            partition_method="type:Block",
        )
        bounds = [int(bound) for bound in module.parts]
        expected = stage_bounds(model.layers, layout.pipeline)
        assert bounds == expected, f"pipeline stages at {bounds}, the layout has {expected}"
        self.parameters = dict(self._named_parameters(module))
        for name, parameter in self.parameters.items():
            # DeepSpeed counts a parameter without this mark once per tensor group, one with it on
            # every rank: the norm is right only if the mark agrees with the table.
            split = axis.size > 1 and kind_of(name).sharding is not Sharding.REPLICATED
            parameter.tensor_model_parallel = split  # type: ignore[attr-defined]
            parameter.data.zero_()
        return module

    def _named_parameters(self, module: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in module.named_parameters():
            index, _, rest = name.partition(".")
            yield f"{layer_name(int(index), self.settings.model.layers)}.{rest}", parameter

    def init_parameters(self) -> None:
        """Give every parameter its initial values; not called when a checkpoint is loaded.

        Done when the optimizer exists, so that its fp32 master weights are exact also where the
        model itself is rounded to half precision.
        """
        axis = self.world.tensor_axis
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                sharding = kind_of(name).sharding
                full = initial_values(
                    name,
                    full_shape(parameter.shape, sharding, size=axis.size),
                    model=self.settings.model,
                    seed=self.settings.seed,
                )
                local = local_part(full, sharding, rank=axis.rank, size=axis.size)
                parameter.copy_(local)
                self.set_fragment(parameter, None, local)

    # ---- DeepSpeed ----------------------------------------------------------------------------

    def _build_engine(self) -> Any:
        options = self.settings.optimizer
        decayed = [p for n, p in self.parameters.items() if kind_of(n).decays]
        others = [p for n, p in self.parameters.items() if not kind_of(n).decays]
        optimizer = SwitchableAdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=options.lr,
            betas=options.betas,
            eps=options.eps,
            fused=True,
        )
        if self.world.device.type == "cpu":
            _allow_half_precision_on_cpu()
        engine, *_ = deepspeed.initialize(
            model=self._module,
            optimizer=optimizer,
            model_parameters=list(self.parameters.values()),
            config=self._configuration(),
        )
        return engine

    def _configuration(self) -> dict[str, Any]:
        settings = self.settings
        local_elements = sum(p.numel() for p in self.parameters.values())
        configuration: dict[str, Any] = {
            "train_batch_size": settings.batch.global_batch,
            "train_micro_batch_size_per_gpu": settings.batch.micro_batch,
            "gradient_accumulation_steps": settings.num_micro_batches,
            "gradient_clipping": settings.optimizer.clip,
            "steps_per_print": None,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": 1,
                "reduce_bucket_size": min(local_elements, BUCKET_ELEMENTS),
            },
            # Whole activations between stages: cutting them over the tensor ranks costs a gather
            # at each end, which gains only where the links between nodes are the bottleneck.
            "pipeline": {"pipe_partitioned": False, "grad_partitioned": False},
        }
        if settings.precision.dtype != "fp32":
            configuration["data_types"] = {"grad_accum_dtype": "fp32"}
        if settings.precision.dtype == "bf16":
            configuration["bf16"] = {"enabled": True}
        if settings.precision.dtype == "fp16":
            configuration["fp16"] = {
                "enabled": True,
                "loss_scale": 0,
                "initial_scale_power": settings.precision.initial_scale_power,
                "loss_scale_window": settings.precision.scale_window,
                "min_loss_scale": settings.precision.min_scale,
                "hysteresis": settings.precision.hysteresis,
            }
        return configuration

    # ---- steps --------------------------------------------------------------------------------

    def train_step(
        self, micro_batches: Iterable[MicroBatch], *, lr: float, step: int = 0
    ) -> StepResult:
        """Run one step over this rank's micro-batches (first and last stage read them) at `lr`, by SGD if it is one of those."""
        adam: SwitchableAdamW = self._optimizer.optimizer
        adam.uses_sgd = any(first <= step <= last for first, last in self.sgd_stretches)
        self.activations.begin_step()
        for group in self.param_groups:
            group["lr"] = lr
        self.watch.begin_step()
        self.world.meter.pop_seconds()
        scale = self.loss_scale
        loss = float(self._engine.train_batch(iter(micro_batches)))
        norm = self._engine.get_global_grad_norm()
        return StepResult(
            loss=loss,
            grad_norm=math.inf if norm is None else float(norm),
            local_grad_norm=self.watch.local_norm() / scale,
            loss_scale=self.loss_scale,
            skipped=bool(self._optimizer.overflow),
            communication_seconds=self.world.meter.pop_seconds(),
            activation_norm=self.activations.norm(),
        )

    def validate(self, micro_batches: Iterable[MicroBatch], *, num_micro_batches: int) -> float:
        """Return the mean loss over this rank's micro-batches and all replicas, without training."""
        loss = self._engine.eval_batch(iter(micro_batches), num_micro_batches=num_micro_batches)
        self._module.train()
        return float(loss)

    def rehearse(
        self, micro_batch: Iterable[MicroBatch], inspect: Callable[[Mapping[str, torch.Tensor]], T]
    ) -> T:
        """Compute one micro-batch's gradients, pass them to `inspect` by name, and discard them; all ranks together.

        They are neither reduced over the replicas nor used: the training that follows is the same to the bit.
        """
        engine = self._engine
        engine.set_dataiterator(iter(micro_batch))
        engine.module.train()
        engine._compute_loss = True
        engine._exec_schedule(_Rehearsal(1, engine.num_stages, engine.stage_id))
        gradients = {name: self._gradient(p) for name, p in self.parameters.items()}
        for gradient in gradients.values():
            self.watch.notify(gradient.view(-1))
        result = inspect(gradients)
        self._optimizer.zero_grad(set_to_none=True)
        return result

    def _gradient(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Return a parameter's accumulated gradient, not reduced yet, in the format in which it is reduced."""
        if hasattr(self._optimizer, "get_gradient_for_reduction"):
            gradient: torch.Tensor = self._optimizer.get_gradient_for_reduction(parameter)
        else:
            gradient = parameter._hp_grad  # type: ignore[attr-defined]
        return gradient

    @property
    def reads_data(self) -> bool:
        """Whether this rank's stage takes tokens or targets."""
        stage = self.world.coords.pipeline
        return stage in (0, self.world.layout.pipeline - 1)

    # ---- state of the optimizer ---------------------------------------------------------------

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the AdamW in effect: decayed parameters, then the others."""
        groups: list[dict[str, Any]] = self._optimizer.optimizer.param_groups
        return groups

    @property
    def clip(self) -> float:
        """The norm at which the optimizer clips gradients; 0: it does not."""
        return float(self._optimizer.clip_grad)

    @property
    def precision(self) -> str:
        """The format in which the model computes, by its parameters."""
        return PRECISIONS[next(iter(self.parameters.values())).dtype]

    def reset_optimizer(self) -> bool:
        """Empty AdamW's moments and begin its step count at 0; returns whether its state shows that."""
        for state in self.adam_states:
            for tensor in state.values():
                tensor.zero_()
        return not any(bool(t.any()) for state in self.adam_states for t in state.values())

    def reset_loss_scale(self) -> bool:
        """Set the loss scale to its first value, as if no step had been made; returns whether there is one."""
        scaler, precision = self.loss_scaler, self.settings.precision
        if scaler is None:
            return False
        scaler.cur_scale = float(2**precision.initial_scale_power)
        scaler.cur_iter, scaler.last_overflow_iter = 0, -1
        scaler.cur_hysteresis = scaler.delayed_shift
        return True

    @property
    def loss_scale(self) -> float:
        """The factor on the loss in the next step; 1 unless precision is fp16."""
        scaler = getattr(self._optimizer, "loss_scaler", None)
        return 1.0 if scaler is None else float(scaler.cur_scale)

    @property
    def loss_scaler(self) -> Any | None:
        """DeepSpeed's dynamic loss scaler; None unless precision is fp16."""
        return self._optimizer.loss_scaler if self.settings.precision.dtype == "fp16" else None

    @property
    def adam_states(self) -> list[dict[str, torch.Tensor]]:
        """AdamW's state per group: `step`, and the two moments as flat fp32 tensors of this rank's part."""
        adam = self._optimizer.optimizer
        return [adam.state[group["params"][0]] for group in adam.param_groups]

    def _make_adam_states(self) -> None:
        """Make AdamW's state now instead of at its first step: a checkpoint is loaded before that.

        DeepSpeed links parameters to their moments after the first step of the first group, when those
        of the second do not exist yet: with two groups, the second would never be linked.
        """
        adam = self._optimizer.optimizer
        for group in adam.param_groups:
            flat = group["params"][0]
            adam.state[flat] = {
                "step": torch.zeros((), dtype=torch.float32, device=flat.device),
                "exp_avg": torch.zeros_like(flat),
                "exp_avg_sq": torch.zeros_like(flat),
            }
        # Private, and why the version of DeepSpeed is pinned.
        self._optimizer._lazy_init_hp_params_optimizer_state()

    def owned(self, key: str | None) -> list[torch.Tensor]:
        """Return all that this replica holds of the master weights, or of a moment: live, fp32, flat, one tensor per group."""
        if key is None:
            return [group["params"][0].detach() for group in self.param_groups]
        return [state[key] for state in self.adam_states]

    def fragment(
        self, parameter: torch.nn.Parameter, key: str | None
    ) -> tuple[int, torch.Tensor] | None:
        """Return where this replica's part of a parameter begins, and that part (fp32, flat, live).

        `key` is a name of AdamW's state, or None for the fp32 master weights. None is returned when
        other replicas hold all of it.
        """
        mapping = parameter._hp_mapping  # type: ignore[attr-defined]
        if mapping is None:
            return None
        return mapping.lp_fragment_address.start, mapping.get_hp_fragment(key).detach()

    def set_fragment(
        self, parameter: torch.nn.Parameter, key: str | None, whole: torch.Tensor
    ) -> None:
        """Copy from this rank's whole parameter (or moment) what this replica holds of it."""
        fragment = self.fragment(parameter, key)
        if fragment is not None:
            start, values = fragment
            values.copy_(whole.reshape(-1)[start : start + values.numel()])

    def sum_over_replicas(self, tensor: torch.Tensor) -> None:
        """Sum a tensor, in place, over the ranks that hold the same parameters."""
        if self.world.layout.data > 1:
            dist.all_reduce(tensor, group=self._module._grid.get_data_parallel_group())

    # ---- numbers that are not finite ----------------------------------------------------------

    def _layer_of(self, name: str) -> int:
        layer = name.partition(".")[0]
        num_blocks = self.settings.model.layers
        ends = {"embedding": 0, "head": num_blocks + 1}
        return ends[layer] if layer in ends else int(name.split(".")[1]) + 1

    def locate_nonfinite(
        self, result: StepResult, micro_batches: Iterable[MicroBatch]
    ) -> str | None:
        """Name the layer where a bad step's numbers first stopped being finite; all ranks together.

        With a loss that is not finite the forward pass is run again, without training, and the first
        layer whose output is not finite is it. Otherwise it was backward, which
        computes the last layer first. None when every number is finite after all.
        """
        none = self.settings.model.layers + 2
        if math.isfinite(result.loss):
            index = torch.tensor([max(self.watch.nonfinite_layers, default=-1)])
            dist.all_reduce(index, op=dist.ReduceOp.MAX, group=self.world.side_group)
        else:
            index = torch.tensor([min(self._nonfinite_outputs(micro_batches), default=none)])
            dist.all_reduce(index, op=dist.ReduceOp.MIN, group=self.world.side_group)
        layer = int(index)
        return layer_name(layer, none - 2) if 0 <= layer < none else None

    def _nonfinite_outputs(self, micro_batches: Iterable[MicroBatch]) -> set[int]:
        bad: set[int] = set()
        first = self._module._local_start

        def watch(index: int) -> Any:
            def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
                if not bool(torch.isfinite(output).all()):
                    bad.add(index)

            return hook

        hooks = [
            layer.register_forward_hook(watch(first + i))
            for i, layer in enumerate(self._module.forward_funcs)
        ]
        try:
            self.validate(micro_batches, num_micro_batches=self.settings.num_micro_batches)
        finally:
            for hook in hooks:
                hook.remove()
        return bad


class _Rehearsal(schedule.TrainSchedule):  # type: ignore[misc]
    """Forward and backward as in training, without its end: nothing is reduced, no weight changes."""

    END = (schedule.ReduceTiedGrads, schedule.ReduceGrads, schedule.OptimizerStep)

    def steps(self) -> Iterator[list[Any]]:
        for commands in super().steps():
            yield [command for command in commands if not isinstance(command, self.END)]


def _join(world: World) -> None:
    """Make DeepSpeed use the world's processes: its groups get the run's time-out, its collectives are metered."""
    deepspeed.init_distributed(dist_backend=world.backend, auto_mpi_discovery=False, verbose=False)
    backend = deepspeed.comm.comm.cdb

    def new_group(ranks: Iterable[int]) -> Any:
        return dist.new_group(list(ranks), timeout=world.timeout)

    backend.new_group = new_group
    for name in METERED_CALLS:
        setattr(backend, name, world.meter.wrap(getattr(backend, name)))


def _allow_half_precision_on_cpu() -> None:
    # DeepSpeed checks whether the CPU has instructions for these formats. Without them training is
    # slower, not wrong.
    kind = type(get_accelerator())
    kind.is_fp16_supported = lambda self: True
    kind.is_bf16_supported = lambda self: True
