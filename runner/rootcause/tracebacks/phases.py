"""Phases: what a program was doing when an exception was raised, by the functions of its stack and the steps in its log."""

from collections.abc import Sequence
from typing import Literal

from runner.rootcause.tracebacks.objects import Frame
from runner.rootcause.tracebacks.subjects import CodePlace, words_of

Phase = Literal["importing", "starting", "loading", "saving", "stepping", "tear-down", "unknown"]

# Words of functions, without regard to their package.
_SAVING = frozenset(["save", "saving", "saver", "dump", "snapshot", "export"])
_LOADING = frozenset(["load", "loading", "restore", "resume"])
_STEPPING = frozenset(
    [
        "step",
        "forward",
        "backward",
        "loss",
        "optimizer",
        "train",
        "fit",
        "iteration",
        "microbatch",
        "autograd",
        "gradient",
        "grad",
        "clip",
        "allreduce",
        "evaluate",
        "validate",
        "training",
    ]
)
_STARTING = frozenset(
    [
        "setup",
        "build",
        "create",
        "make",
        "configure",
        "init",
        "initialize",
        "parse",
        "prepare",
        "get",
        "construct",
        "instantiate",
        "register",
        "validate",
        "check",
        "from",
    ]
)
_STEP_FUNCTIONS = frozenset(
    [
        *("forward", "backward", "train_step", "training_step", "train_one_epoch", "step"),
        *("_call_impl", "_wrapped_call_impl", "inner_training_loop", "_inner_training_loop"),
        *("train_batch", "forward_backward_func", "optimizer_step", "run_backward"),
    ]
)


def phase_of(
    frames: Sequence[Frame], places: Sequence[CodePlace], *, has_stepped: bool | None
) -> Phase:
    """Return the phase of a stack. `places`: of its frames, the innermost first. `has_stepped`: whether a step is above in its log.

    None: the log shows no steps at all.
    """
    if any(place.subject == "tear-down" for place in places):
        return "tear-down"
    if any(place.subject == "imports" for place in places[:6]):
        return "importing"
    functions = [frame.function for frame in frames]
    words = [word for name in functions for word in words_of(name)]
    is_file_work = any(place.subject in ("checkpoint", "files") for place in places)
    if is_file_work and any(word in _SAVING for word in words):
        return "saving"
    if is_file_work and any(word in _LOADING for word in words):
        return "loading"
    if has_stepped or any(name in _STEP_FUNCTIONS for name in functions):
        return "stepping"
    if has_stepped is False:
        return "starting"
    innermost = [word for frame in frames[-4:] for word in words_of(frame.function)]
    if any(word in _STARTING for word in innermost):
        return "starting"
    if any(word in _STEPPING for word in innermost):
        return "stepping"
    is_script = bool(functions) and functions[-1] in ("<module>", "__init__", "__post_init__")
    return "starting" if is_script else "unknown"
