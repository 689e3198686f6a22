"""Remedies of how a trainer computes: clipping, AdamW's betas, precision, the optimizer, and resets of state."""

from collections.abc import Mapping
from typing import Any

from runner.facts.remedies.remedy import (
    Remedy,
    is_number,
    is_positive,
    parsed_list,
    parsed_number,
    without,
)

PRECISIONS = ("fp32", "bf16", "fp16")
# How many stretches of steps and resets a run may have in effect. Chosen, not measured.
MAX_LISTED = 100


class _Replacing(Remedy):
    """A remedy of which the newest counts."""

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """A new value replaces the one before."""
        plain = list(value) if isinstance(value, tuple) else value
        return {**without(remedies, [cls.name]), cls.name: plain}


class Clip(_Replacing):
    """Clip gradients at another norm. OPT's team lowered it from 1.0 to 0.3."""

    name = "clip"
    label = "clip"
    form = "a gradient norm such as 0.3"

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what is no positive number."""
        return "" if is_positive(value) else f"clip: {value!r} is no norm; give {cls.form}"

    @classmethod
    def words(cls, value: Any) -> str:
        """`gradients clipped at a norm of 0.3`."""
        return f"gradients clipped at a norm of {value:g}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read a number."""
        return parsed_number(text, cls.form)


class Betas(_Replacing):
    """Other betas for AdamW. OPT's team lowered the second to 0.95."""

    name = "betas"
    label = "betas"
    form = "two numbers such as 0.9,0.95"

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what is no pair of numbers from 0 to below 1."""
        is_pair = isinstance(value, list | tuple) and len(value) == 2
        if is_pair and all(is_number(each) and 0 <= each < 1 for each in value):
            return ""
        return f"betas: {value} are no betas; from 0 to below 1: {cls.form}"

    @classmethod
    def words(cls, value: Any) -> str:
        """`betas 0.9, 0.95`."""
        return f"betas {', '.join(f'{each:g}' for each in value)}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read two numbers."""
        return tuple(parsed_number(part, cls.form) for part in parsed_list(text, cls.form))


class Precision(_Replacing):
    """Compute in another number format."""

    name = "precision"
    label = "precision"
    form = "fp32, bf16 or fp16"

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse a format that trainers do not have."""
        return (
            ""
            if value in PRECISIONS
            else f"precision: {value!r} is no number format; give {cls.form}"
        )

    @classmethod
    def words(cls, value: Any) -> str:
        """`precision fp32`."""
        return f"precision {value}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read a name."""
        return text


class _Listed(Remedy):
    """A remedy whose values add up: each of them takes effect in its own place."""

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """A value follows those before, once."""
        plain = list(value) if isinstance(value, tuple) else value
        known = remedies.get(cls.name, [])
        values = known if plain in known else [*known, plain]
        return {**without(remedies, [cls.name]), cls.name: values}


class OptimizerStretch(_Listed):
    """Plain SGD instead of AdamW for a stretch of training steps, which OPT's team tried.

    Its value is `["sgd", first, last]`; AdamW's state stays as it is meanwhile. A run's remedies hold a list of those.
    """

    name = "optimizer"
    label = "optimizer"
    form = "sgd and its first and last training step, such as sgd,500,520"

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse another optimizer and what is no stretch."""
        if isinstance(value, list | tuple) and len(value) == 3 and value[0] == "sgd":
            _, first, last = value
            if type(first) is int and type(last) is int and 1 <= first <= last:
                return ""
        return f"optimizer: {value} is no optimizer for a stretch of steps; write {cls.form}"

    @classmethod
    def words(cls, value: Any) -> str:
        """`SGD in steps 500 to 520`."""
        _, first, last = value
        return f"SGD in steps {first} to {last}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read a name and two steps."""
        name, *steps = parsed_list(text, cls.form)
        if len(steps) != 2 or not all(step.isdecimal() for step in steps):
            raise ValueError(f"{text!r} is no optimizer for a stretch of steps; write {cls.form}")
        return (name, *(int(step) for step in steps))


class Reset(_Listed):
    """A reset of state that happens once in the history of a run's weights.

    Its value is a name of its own, `<run>.<id of the remedy>`. A trainer resets what its checkpoint's list of names lacks, and
    writes the name into the checkpoints after it: so a restart repeats a reset only if it goes back to before it.
    """

    form = "no value"

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what is no name of a reset."""
        is_name = isinstance(value, str) and 0 < len(value) <= 40
        return "" if is_name else f"{cls.name}: takes {cls.form}, not {value}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read nothing: the supervisor names it."""
        if text:
            raise ValueError(f"{cls.name} takes {cls.form}, not {text!r}")
        return ""

    @classmethod
    def disagreement(cls, wanted: Any, settings: Mapping[str, Any]) -> str:
        """Each reset that was asked for must be in the list that the trainer reads back."""
        read = settings.get(cls.name)
        missing = [
            name for name in wanted if not isinstance(read, list | tuple) or name not in read
        ]
        return (
            f"{cls.name} {missing[0]} was to happen, the trainer read back {read}"
            if missing
            else ""
        )


class LossScaleReset(Reset):
    """Set the loss scale back to its first value."""

    name = "loss_scale_reset"
    label = "loss scale resets"

    @classmethod
    def words(cls, _value: Any) -> str:
        """What is reset."""
        return "loss scale set back"


class OptimizerReset(Reset):
    """Empty AdamW's moments and start its step count at 0."""

    name = "optimizer_reset"
    label = "optimizer resets"

    @classmethod
    def words(cls, _value: Any) -> str:
        """What is reset."""
        return "optimizer state reset"
