"""The oracle: the same GPT on one process in plain PyTorch, without DeepSpeed, pipeline or tensor parallelism.

It shares with the trainer only initial values and data, which a layout must not change.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  the customary name

from trainer.config.settings import Settings
from trainer.data.batches import open_data
from trainer.parallel.parameters import initial_values

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ReferenceStep:
    """Loss (mean, nats per token) and gradient norm before clipping."""

    loss: float
    grad_norm: float


class Reference:
    """Weights, AdamW and the data of one run; each `step` trains on the whole global batch at once."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._data = open_data(settings)
        self.weights: Weights = {
            name: torch.nn.Parameter(
                initial_values(name, shape, model=settings.model, seed=settings.seed)
            )
            for name, shape in shapes(settings).items()
        }
        matrices = [w for w in self.weights.values() if w.dim() == 2]
        vectors = [w for w in self.weights.values() if w.dim() == 1]
        options = settings.optimizer
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": options.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            betas=options.betas,
            eps=options.eps,
            foreach=False,
        )

    def step(self, step: int) -> ReferenceStep:
        """Train step number `step`, from 1."""
        for group in self._adam.param_groups:
            group["lr"] = cosine(self._settings, step)
        self._adam.zero_grad()
        loss = self._loss(*self._data.batch(step))
        loss.backward()  # type: ignore[no-untyped-call]
        clip = self._settings.optimizer.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(list(self.weights.values()), clip)
        self._adam.step()
        return ReferenceStep(loss.item(), norm.item())

    @torch.no_grad()
    def loss_at(self, step: int) -> float:
        """Return the loss on a step's batch without training."""
        return float(self._loss(*self._data.batch(step)))

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Return the mean loss over the held-out batches."""
        count = self._settings.validation_batches
        return sum(float(self._loss(*self._data.validation_batch(i))) for i in range(count)) / count

    def _loss(self, tokens: object, targets: object) -> torch.Tensor:
        logits = gpt(self.weights, torch.as_tensor(tokens), self._settings)
        return F.cross_entropy(logits.flatten(0, 1), torch.as_tensor(targets).flatten())


def cosine(settings: Settings, step: int) -> float:
    """Return the learning rate of a step: linear rise, then half a cosine."""
    options, end = settings.optimizer, settings.decay_end
    if step <= options.warmup_steps:
        return options.lr * step / options.warmup_steps
    part = min(1.0, (step - options.warmup_steps) / (end - options.warmup_steps))
    low = options.lr * options.min_lr_ratio
    return low + (options.lr - low) * (1 + math.cos(math.pi * part)) / 2


def shapes(settings: Settings) -> dict[str, torch.Size]:
    """Return every parameter's name and whole shape."""
    model = settings.model
    width, inner = model.width, model.ffn_width
    found: dict[str, tuple[int, ...]] = {"embedding.tokens.weight": (model.vocabulary, width)}
    if model.positions == "learned":
        found["embedding.positions.weight"] = (model.sequence, width)
    linears = {"attention.qkv": (3 * width, width), "attention.output": (width, width)}
    if model.mlp == "swiglu":
        linears["mlp.gate"] = (inner, width)
    linears |= {"mlp.up": (inner, width), "mlp.down": (width, inner)}
    norms = [f"blocks.{i}.{n}" for i in range(model.layers) for n in ("attention_norm", "mlp_norm")]
    for norm in [*norms, "head.norm"]:
        found[f"{norm}.weight"] = (width,)
        if model.norm == "layernorm":
            found[f"{norm}.bias"] = (width,)
    for i in range(model.layers):
        for name, shape in linears.items():
            found[f"blocks.{i}.{name}.weight"] = shape
            if model.bias:
                found[f"blocks.{i}.{name}.bias"] = shape[:1]
    found["head.tokens.weight"] = (model.vocabulary, width)
    return {name: torch.Size(shape) for name, shape in found.items()}


def gpt(weights: Weights, tokens: torch.Tensor, settings: Settings) -> torch.Tensor:
    """Return logits (B, T, vocabulary) for tokens (B, T)."""
    model = settings.model
    x = weights["embedding.tokens.weight"][tokens]
    if model.positions == "learned":
        x = x + weights["embedding.positions.weight"][: tokens.shape[1]]
    for i in range(model.layers):
        block = f"blocks.{i}."
        x = x + attention(
            weights, block, norm(weights, f"{block}attention_norm", x, settings), settings
        )
        h = norm(weights, f"{block}mlp_norm", x, settings)
        up = linear(weights, f"{block}mlp.up", h)
        if model.mlp == "swiglu":
            gate = linear(weights, f"{block}mlp.gate", h)
            inner = gate * torch.sigmoid(gate) * up
        else:
            inner = 0.5 * up * (1 + torch.erf(up / math.sqrt(2)))
        x = x + linear(weights, f"{block}mlp.down", inner)
    return norm(weights, "head.norm", x, settings) @ weights["head.tokens.weight"].T


def attention(weights: Weights, block: str, x: torch.Tensor, settings: Settings) -> torch.Tensor:
    """Causal attention written out: scores, mask, softmax."""
    b, t, width = x.shape
    heads = settings.model.heads
    qkv = linear(weights, f"{block}attention.qkv", x).view(b, t, heads, 3, width // heads)
    q, k, v = (qkv[:, :, :, i].transpose(1, 2) for i in range(3))
    if settings.model.positions == "rotary":
        base = settings.model.rotary_base
        q, k = turned(q, base), turned(k, base)
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return linear(weights, f"{block}attention.output", mixed.transpose(1, 2).reshape(b, t, width))


def turned(x: torch.Tensor, base: float) -> torch.Tensor:
    """Rotate pairs (k, k + K/2) of (..., T, K) as complex numbers by position x base^(-2k/K)."""
    t, size = x.shape[-2:]
    rates = base ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(t)[:, None] * rates
    pairs = torch.complex(x[..., : size // 2], x[..., size // 2 :])
    pairs = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((pairs.real, pairs.imag), -1)


def norm(weights: Weights, name: str, x: torch.Tensor, settings: Settings) -> torch.Tensor:
    """RMSNorm or LayerNorm, written out."""
    eps = settings.model.norm_eps
    if settings.model.norm == "rmsnorm":
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weights[f"{name}.weight"]
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def linear(weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    """Return x W^T + b; not every linear has a bias."""
    y = x @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias
