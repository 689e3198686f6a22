"""Settings: recipes, changes to them, and the errors about them."""

import ast
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import SpecError
from trainer.config.settings import Settings, conflicts, load_settings, recipe_names

TRAINER = Path(__file__).parents[3] / "trainer"


def refusal(*arguments: Any, **options: Any) -> list[str]:
    """Load settings that must be refused; return the lines of the message."""
    with pytest.raises(SpecError) as caught:
        load_settings(*arguments, **options)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_are_sound(name: str) -> None:
    """Every recipe that comes with the trainer loads, fits together and knows its own name."""
    settings = load_settings(name)
    assert settings.recipe == name
    assert conflicts(settings, world_size=settings.layout.world_size) == []


def test_recipe_shapes() -> None:
    """The recipes have the layouts and shapes they are known for."""
    layouts = {name: dataclasses.astuple(load_settings(name).layout) for name in recipe_names()}
    assert layouts == {
        "gpt_125m": (1, 1, 8),
        "gpt_175b_frontier": (4, 16, 1),
        "tiny_3d": (2, 2, 2),
        "tiny_cpu": (2, 2, 1),
    }
    tiny, large = load_settings("tiny_cpu"), load_settings("gpt_175b_frontier")
    assert (tiny.model.layers, tiny.model.width, tiny.model.heads) == (4, 128, 4)
    assert (tiny.model.sequence, tiny.model.vocabulary) == (64, 256)
    assert (tiny.batch.global_batch, tiny.batch.micro_batch) == (16, 2)
    assert dataclasses.replace(load_settings("tiny_3d"), recipe="", layout=tiny.layout) == (
        dataclasses.replace(tiny, recipe="")
    )
    assert (large.batch.global_batch, large.batch.micro_batch) == (640, 1)


def test_mapping_over_recipe() -> None:
    """A mapping changes single fields of its recipe and leaves their neighbours alone."""
    settings = load_settings(
        {"recipe": "tiny_cpu", "steps": 7, "layout": {"tensor": 1}, "optimizer": {"lr": 1}}
    )
    assert (settings.steps, settings.layout.tensor, settings.layout.pipeline) == (7, 1, 2)
    assert settings.optimizer.lr == 1.0
    assert type(settings.optimizer.lr) is float
    assert settings.optimizer.betas == (0.9, 0.95)


def test_overrides_come_last() -> None:
    """`key=value` outranks the mapping; values are JSON or plain words; a recipe can be set too."""
    settings = load_settings(
        {"recipe": "tiny_cpu", "optimizer": {"lr": 0.5}},
        ["optimizer.lr=1e-4", "optimizer.betas=[0.8, 0.9]", "precision.dtype=bf16", "steps=1e3"],
    )
    assert settings.optimizer.lr == 1e-4
    assert settings.optimizer.betas == (0.8, 0.9)
    assert settings.precision.dtype == "bf16"
    assert settings.steps == 1000
    assert load_settings({}, ["recipe=tiny_3d"]).layout.data == 2


def test_without_recipe() -> None:
    """Nothing given is the small model on one rank."""
    assert load_settings({}) == Settings()


@pytest.mark.parametrize(
    ("mapping", "overrides", "expected"),
    [
        ({"stepz": 3}, [], "stepz is unknown: did you mean steps?"),
        ({"layout": {"tensr": 3}}, [], "layout.tensr is unknown: did you mean layout.tensor?"),
        ({"xyzzy": 3}, [], "xyzzy is unknown; known: recipe, model, layout,"),
        ({"recipe": "tiny"}, [], "recipe = 'tiny' is unknown: did you mean tiny_3d?"),
        ({"recipe": ["tiny_cpu"]}, [], "recipe = ['tiny_cpu']: expected text"),
        ({"steps": "many"}, [], "steps = 'many': expected a whole number"),
        ({"steps": 2.5}, [], "steps = 2.5: expected a whole number"),
        ({"steps": True}, [], "steps = True: expected a whole number"),
        ({"steps": 0}, [], "steps = 0: expected at least 1"),
        ({"steps": 10**400}, [], "expected a whole number"),
        ({"optimizer": {"lr": float("nan")}}, [], "optimizer.lr = nan: expected a number"),
        ({"optimizer": {"lr": 0}}, [], "optimizer.lr = 0: expected more than 0"),
        ({"optimizer": {"betas": [0.9]}}, [], "expected a list of 2 numbers"),
        ({"optimizer": {"betas": [0.9, 1]}}, [], "a list of 2 numbers, each less than 1"),
        ({"optimizer": {"betas": 0.9}}, [], "optimizer.betas = 0.9: expected a list of 2 numbers"),
        ({"activation_checkpointing": 1}, [], "expected true or false"),
        ({"data": {"path": 3}}, [], "data.path = 3: expected text"),
        ({"precision": {"dtype": "bf61"}}, [], "one of fp32, bf16, fp16: did you mean bf16?"),
        ({"precision": {"dtype": ["bf16"]}}, [], "expected one of fp32, bf16, fp16"),
        ({"layout": 4}, [], "layout = 4: expected a group, for example layout.tensor"),
        ({}, ["steps"], "override 'steps' is not of the form key=value"),
        ({}, ["=3"], "override '=3' is not of the form key=value"),
        ({}, ["optimizer.lr.x=3"], "optimizer.lr = {'x': 3}: expected a number"),
    ],
)
def test_wrong_values(mapping: dict[str, Any], overrides: list[str], expected: str) -> None:
    """A wrong key or value is reported in one line with its path, its value and what was expected."""
    lines = refusal(mapping, overrides)
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": {"tensor": 3}, "model": {"width": 128}}, ["model.heads = 4", "1, 2, 4"]),
        ({"model": {"ffn_width": 345}}, ["model.ffn_width = 345", "layout.tensor = 2"]),
        ({"model": {"vocabulary": 257}}, ["model.vocabulary = 257", "layout.tensor = 2"]),
        ({"model": {"layers": 5}}, ["model.layers = 5", "layout.pipeline = 2", "1, 5"]),
        ({"model": {"width": 130}}, ["model.width = 130", "model.heads = 4"]),
        ({"model": {"width": 12}}, ["= 3 is odd", "model.positions = learned"]),
        ({"batch": {"global_batch": 15}}, ["= 15", "2 x 1 = 2", "14 or 16"]),
        ({"batch": {"global_batch": 1}}, ["= 1", "choose 2"]),
        ({"data": {"path": "book.txt"}}, ["data.path = 'book.txt'", "source = stdlib"]),
        ({"data": {"source": "text"}}, ["data.path is empty", "source = text"]),
        ({"model": {"vocabulary": 128}}, ["model.vocabulary = 128", "256"]),
        ({"data": {"validation_ratio": 0}}, ["validate_every = 50", "validation_ratio = 0"]),
        ({"optimizer": {"decay_steps": 10}}, ["warmup_steps = 20", "decay_steps = 10"]),
    ],
)
def test_conflicts(changes: dict[str, Any], words: list[str]) -> None:
    """Settings that cannot work together are named with their values and a way out."""
    lines = refusal({"recipe": "tiny_cpu", **changes})
    assert any(all(word in line for word in words) for line in lines), lines


def test_other_world_size() -> None:
    """A world of another size than the layout's is refused, with both numbers."""
    (line,) = refusal("tiny_3d", world_size=4)
    assert "2 x 2 x 2 = 8 ranks, but 4 are started" in line
    assert load_settings("tiny_3d", world_size=8).layout.world_size == 8


def test_all_problems_at_once() -> None:
    """One message holds every problem, and none that follows only from another."""
    lines = refusal(
        {"recipe": "tiny_cpu", "stepz": 1, "layout": {"tensr": 4}, "model": {"width": 130}},
        ["optimizer.lr=fast", "nonsense"],
        world_size=8,
    )
    assert sorted(line.split()[0] for line in lines) == [
        "layout.tensr",
        "model.width",
        "optimizer.lr",
        "override",
        "stepz",
    ]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = [*sorted(field.name for field in dataclasses.fields(Settings)), "tensor", "lr", "path"]


@given(
    st.dictionaries(
        st.sampled_from(NAMES) | st.text(max_size=5),
        PLAIN | st.dictionaries(st.sampled_from(NAMES), PLAIN, max_size=3),
        max_size=4,
    ),
    st.lists(st.text(max_size=20), max_size=2),
)
def test_never_another_error(mapping: dict[str, Any], overrides: list[str]) -> None:
    """For any input, settings load or a SpecError names the problem."""
    try:
        load_settings(mapping, overrides, world_size=1)
    except SpecError:
        pass


def test_every_field_has_a_description() -> None:
    """Each field carries its meaning, and so does each group."""
    groups = [
        Settings,
        *(hint for hint in get_type_hints(Settings).values() if dataclasses.is_dataclass(hint)),
    ]
    for group in groups:
        assert group.__doc__
        for field in dataclasses.fields(group):
            if not dataclasses.is_dataclass(get_type_hints(group)[field.name]):
                assert field.metadata["meaning"], field.name


def test_survives_json() -> None:
    """Settings written down as JSON, as in a manifest, load again to the same."""
    settings = load_settings("gpt_125m", ["steps=12"])
    plain = json.loads(json.dumps(dataclasses.asdict(settings)))
    assert load_settings(plain) == settings


def test_loads_without_torch() -> None:
    """Settings load in an interpreter that has neither torch nor numpy."""
    program = (
        "import sys; sys.modules.update(torch=None, numpy=None, deepspeed=None); "
        "from trainer.config.settings import load_settings; load_settings('tiny_cpu')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def attributes_read() -> Iterator[str]:
    """Names of all attributes that the trainer reads, the checks of its settings left out: refusing a value is no use of it."""
    for path in TRAINER.rglob("*.py"):
        tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
        if path.name == "settings.py":
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            tree = ast.Module(body=list(classes), type_ignores=[])
        yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def test_every_setting_is_read() -> None:
    """No field of the settings is without a reader in the trainer's code."""
    hints = get_type_hints(Settings).values()
    groups = [hint for hint in hints if dataclasses.is_dataclass(hint)]
    names = {item.name for group in (Settings, *groups) for item in dataclasses.fields(group)}
    assert len(groups) >= 6
    assert names - set(attributes_read()) == set()
