"""training_step: a few steps of a small transformer, twice and more often, and a hash of all weights at the end of each time.

Weights, data and order are fixed, and every kernel is a deterministic one, so the hash is the same each time, and on every node
with the same kind of device and the same torch. A CPU computes with one thread: the number of cores has no part in it.

Faults for the self test: {"kind": "flip", "repetition": R} flips a bit of one weight during repetition R, counted from 0; without
"repetition", during each one. {"kind": "nan"} makes a weight NaN likewise; with {"kind": "frozen"} no weight ever changes.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any

# cuBLAS is deterministic with a workspace of fixed size only; it reads this once.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch.nn import functional

SEED = 20_24
# Of the model: small enough for ten steps in a tenth of a second on one core. Chosen.
VOCABULARY, LENGTH, WIDTH, HEADS, BATCH = 256, 32, 64, 4, 4
NUM_LAYERS, NUM_STEPS, RATE = 2, 4, 0.002
# The first time is compared with others, so there are two at least.
LEAST_REPETITIONS = 2


def weights_of(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the weights at the start: they come from the CPU's generator, so that they are the same on every device."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = {"embedding": (VOCABULARY, WIDTH), "position": (LENGTH, WIDTH)}
    for layer in range(NUM_LAYERS):
        shapes[f"{layer}.in"] = (WIDTH, 3 * WIDTH)
        shapes[f"{layer}.out"] = (WIDTH, WIDTH)
        shapes[f"{layer}.up"] = (WIDTH, 4 * WIDTH)
        shapes[f"{layer}.down"] = (4 * WIDTH, WIDTH)
    return {
        name: (torch.randn(*shape, generator=generator) * 0.05).to(device).requires_grad_()
        for name, shape in shapes.items()
    }


def loss_of(weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of predicting each token from those before it."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    one_hot = functional.one_hot(inputs, VOCABULARY).to(weights["embedding"].dtype)
    # A product instead of a lookup, whose gradient is not deterministic on every device.
    x = one_hot @ weights["embedding"] + weights["position"]
    mask = torch.full((LENGTH, LENGTH), float("-inf"), device=tokens.device).triu(1)
    for layer in range(NUM_LAYERS):
        normal = functional.layer_norm(x, (WIDTH,))
        heads = (normal @ weights[f"{layer}.in"]).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + mixed @ weights[f"{layer}.out"]
        up = functional.gelu(functional.layer_norm(x, (WIDTH,)) @ weights[f"{layer}.up"])
        x = x + up @ weights[f"{layer}.down"]
    log_ratios = (x @ weights["embedding"].T).log_softmax(-1)
    targets_one_hot = functional.one_hot(targets, VOCABULARY).to(log_ratios.dtype)
    return -(log_ratios * targets_one_hot).sum(-1).mean()


def train(
    device: torch.device, faults: list[dict[str, Any]], number: int
) -> tuple[str, list[float]]:
    """Train from the start; return the hash of the weights at the end, and the loss of each step."""
    weights = weights_of(device)
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    generator = torch.Generator().manual_seed(SEED + 1)
    # The same in each step, so that the loss must fall.
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator).to(device)
    losses = []
    for _ in range(NUM_STEPS):
        loss = loss_of(weights, tokens)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        losses.append(float(loss.detach()))
        if any(fault["kind"] == "frozen" for fault in faults):
            continue
        with torch.no_grad():
            for name, gradient in zip(weights, gradients, strict=True):
                squares[name].mul_(0.9).addcmul_(gradient, gradient, value=0.1)
                weights[name].addcdiv_(gradient, squares[name].sqrt().add_(1e-6), value=-RATE)
        damage(weights["0.up"], faults, number)
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(bytes(weights[name].detach().cpu().view(torch.uint8).flatten().tolist()))
    return digest.hexdigest(), losses


def damage(weight: torch.Tensor, faults: list[dict[str, Any]], number: int) -> None:
    """Change a weight as the faults ask."""
    for fault in faults:
        if fault.get("repetition", number) != number:
            continue
        with torch.no_grad():
            if fault["kind"] == "nan":
                weight[3, 5] = float("nan")
            elif fault["kind"] == "flip":
                weight.view(torch.int32)[3, 5] ^= 1


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Train again and again on `asked["device"]` until the time is over."""
    device = torch.device(asked["device"])
    torch.set_num_threads(1)
    # Unlike `use_deterministic_algorithms`, which does the same, it imports no compiler.
    torch.set_deterministic_debug_mode("error")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
    hashes: list[str] = []
    losses: list[float] = []
    while len(hashes) < LEAST_REPETITIONS or time.monotonic() < asked["until"]:
        found, losses = train(device, faults, len(hashes))
        hashes.append(found)
    is_gpu = device.type == "cuda"
    kind = torch.cuda.get_device_name(device) if is_gpu else torch.backends.cpu.get_cpu_capability()
    return {
        "device": asked["device"],
        "kind": kind,
        "torch": torch.__version__,
        "hashes": hashes,
        "losses": losses,
    }
