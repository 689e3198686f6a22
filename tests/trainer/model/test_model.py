"""The model's parts, on one process: counts, cuts and the loss."""

from dataclasses import replace

import pytest
import torch

from tests.trainer.reference import gpt, shapes
from trainer.config import estimate
from trainer.config.flops import matrix_parameters
from trainer.config.settings import Layout, Model, Settings
from trainer.model.block import make_norm, rotary_table
from trainer.model.gpt import layers
from trainer.model.loss import CrossEntropy
from trainer.parallel.collectives import Meter, TensorAxis
from trainer.parallel.layout import coords_of, layer_name, stage_bounds, tensor_groups
from trainer.parallel.parameters import Sharding, full_shape, initial_values, kind_of, local_part

pytestmark = pytest.mark.trainer

MODERN = Model()
GPT_2 = replace(MODERN, positions="learned", norm="layernorm", mlp="gelu", bias=True)


def alone() -> TensorAxis:
    """A tensor axis of one rank."""
    return TensorAxis(None, rank=0, size=1, meter=Meter(torch.device("cpu")))


@pytest.mark.parametrize("model", [MODERN, GPT_2], ids=["modern", "gpt2"])
def test_parameters_are_as_counted(model: Model) -> None:
    """The layers hold the parameters that --check counts, under the names and shapes of the oracle."""
    found: dict[str, torch.Size] = {}
    for index, recipe in enumerate(layers(model, alone(), recompute=False)):
        module = recipe.kind(*recipe.arguments, **recipe.options)
        layer = layer_name(index, model.layers)
        found |= {f"{layer}.{name}": p.shape for name, p in module.named_parameters()}
    assert found == shapes(Settings(model=model))
    assert sum(shape.numel() for shape in found.values()) == estimate.parameters(model)["total"]


@pytest.mark.parametrize("model", [MODERN, GPT_2], ids=["modern", "gpt2"])
def test_every_parameter_has_a_row(model: Model) -> None:
    """The table knows every parameter, and the parts of all tensor ranks make the whole again."""
    for name, shape in shapes(Settings(model=model)).items():
        sharding = kind_of(name).sharding
        whole = initial_values(name, shape, model=model, seed=1)
        parts = [local_part(whole, sharding, rank=rank, size=2) for rank in range(2)]
        assert full_shape(parts[0].shape, sharding, size=2) == shape
        joined = parts[0] if sharding.dim is None else torch.cat(parts, sharding.dim)
        assert torch.equal(joined, whole)


def logits(model: Model) -> torch.Tensor:
    """Return what the layers make of a window of different tokens, (1, T, V)."""
    flow = torch.arange(model.sequence)[None] % model.vocabulary
    for index, recipe in enumerate(layers(model, alone(), recompute=False)):
        module = recipe.kind(*recipe.arguments, **recipe.options)
        layer = layer_name(index, model.layers)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                full = f"{layer}.{name}"
                parameter.copy_(initial_values(full, parameter.shape, model=model, seed=1))
            flow = module(flow)
    return flow


@pytest.mark.parametrize(
    "model",
    [
        MODERN,
        replace(MODERN, rotary_base=100.0),
        replace(MODERN, norm_eps=1e-2),
        replace(GPT_2, norm_eps=1e-2),
    ],
    ids=["default", "rotary_base", "norm_eps", "norm_eps of layernorm"],
)
def test_settings_of_norms_and_positions_take_effect(model: Model) -> None:
    """Logits are those of the oracle, which reads `rotary_base` and `norm_eps`, and not those of the default."""
    settings = Settings(model=model)
    tokens = torch.arange(model.sequence)[None] % model.vocabulary
    weights = {
        name: initial_values(name, shape, model=model, seed=1)
        for name, shape in shapes(settings).items()
    }
    expected = gpt(weights, tokens, settings)
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-5)
    usual = replace(model, rotary_base=Model().rotary_base, norm_eps=Model().norm_eps)
    if model != usual:
        assert (logits(usual) - expected).abs().max() > 1e-3


def test_defaults_are_those_of_earlier_checkpoints() -> None:
    """By default angles and norms are, to the bit, those of base 10,000 and epsilon 1e-5, which earlier releases trained with."""
    exponents = torch.arange(0, 32, 2, dtype=torch.float32) / 32
    angles = torch.outer(torch.arange(64, dtype=torch.float32), 10_000.0**-exponents)
    cosine, sine = rotary_table(64, 32, MODERN.rotary_base, torch.device("cpu"))
    assert torch.equal(cosine, torch.cat((angles, angles), 1).cos())
    assert torch.equal(sine, torch.cat((angles, angles), 1).sin())
    assert [make_norm(model).eps for model in (MODERN, GPT_2)] == [1e-5, 1e-5]


def test_initial_values_follow_name_and_seed() -> None:
    """Two names or two seeds never share values; the same name and seed always do."""
    shape = torch.Size((8, 8))
    drawn = [
        initial_values(name, shape, model=MODERN, seed=seed)
        for name in ("blocks.0.mlp.up.weight", "blocks.1.mlp.up.weight")
        for seed in (1, 2)
    ]
    for i, values in enumerate(drawn):
        assert not any(torch.equal(values, other) for other in drawn[:i])
    again = initial_values("blocks.0.mlp.up.weight", shape, model=MODERN, seed=1)
    assert torch.equal(again, drawn[0])


def test_unknown_parameter_is_named() -> None:
    """A parameter without a row is an error that lists the table."""
    with pytest.raises(KeyError, match=r"mlp\.sideways\.weight.*attention\.qkv\.weight"):
        kind_of("blocks.0.mlp.sideways.weight")


def test_weight_decay_spares_vectors() -> None:
    """Norms and biases are not decayed, matrices are."""
    for name, shape in shapes(Settings(model=GPT_2)).items():
        assert kind_of(name).decays == (len(shape) == 2)
        if kind_of(name).sharding is Sharding.ROW:
            assert len(shape) == 2


def test_matrix_parameters_take_part_in_products() -> None:
    """FLOPs are counted for every matrix but the embedding's."""
    matrices = {n: s.numel() for n, s in shapes(Settings()).items() if len(s) == 2}
    assert matrix_parameters(MODERN) == sum(matrices.values()) - matrices["embedding.tokens.weight"]


def test_places_follow_the_order_of_axes() -> None:
    """Ranks count through tensor, then data, then pipeline; every place is taken once."""
    layout = Layout(tensor=2, pipeline=3, data=2)
    places = [coords_of(rank, layout) for rank in range(12)]
    assert [(p.pipeline, p.data, p.tensor) for p in places] == [
        (pipeline, data, tensor)
        for pipeline in range(3)
        for data in range(2)
        for tensor in range(2)
    ]
    assert tensor_groups(layout)[:2] == [[0, 1], [2, 3]]
    assert stage_bounds(6, 3) == [0, 3, 5, 8]


def test_loss_is_cross_entropy() -> None:
    """On one rank the vocabulary-parallel loss and its gradient are PyTorch's."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 11, generator=generator) * 30
    targets = torch.randint(0, 11, (2, 3), generator=generator)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss = CrossEntropy(alone())(ours, targets)
    expected = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), targets.flatten())
    torch.autograd.backward([loss * 3, expected * 3])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
