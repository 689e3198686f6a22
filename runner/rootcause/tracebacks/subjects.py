"""Subjects: what the code of a frame is about, by its package; of a program's own code, by the words of its path and function."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from runner.rootcause.tracebacks.objects import Frame
from runner.rootcause.tracebacks.package_subjects import BY_LENGTH, PACKAGES, Subject


@dataclass(frozen=True, slots=True)
class CodePlace:
    """What a frame is about. `is_user`: it is the program's own code."""

    subject: Subject
    is_user: bool


# Repositories that are often run from a checkout.
_CHECKOUTS = (
    *("megatron", "deepspeed", "transformers", "torchtitan", "fairseq", "nemo", "composer"),
    *("llmfoundry", "accelerate", "lightning", "litgpt", "trl", "peft", "torchtune"),
)
_TEAR_DOWN_FUNCTIONS = frozenset(
    [
        *("_run_finalizers", "_exit_function", "_run_exitfuncs", "_python_exit", "__del__"),
        *("_remove_temp_dir", "_shutdown_workers", "_clean_up_worker", "atexit_callback"),
        *("_exitfunc", "_cleanup", "unraisablehook"),
    ]
)
_SITE = re.compile(r"(?:site|dist)-packages/(?P<path>.+)$")
_STANDARD = re.compile(r"/python3(?:\.\d+)?t?/(?P<path>(?!site-packages|dist-packages).+)$")
_FROZEN = re.compile(r"<frozen ([\w.]+)>")

# Words of a program's own paths and functions, without digits at their ends.
_WORDS: tuple[tuple[frozenset[str], Subject], ...] = (
    (
        frozenset(
            [
                "checkpoint",
                "checkpoints",
                "checkpointing",
                "checkpointer",
                "ckpt",
                "ckpts",
                "saver",
                "snapshot",
                "snapshots",
                "statedict",
            ]
        ),
        "checkpoint",
    ),
    (
        frozenset(
            [
                "data",
                "dataset",
                "datasets",
                "dataloader",
                "dataloaders",
                "dataloading",
                "datamodule",
                "loader",
                "loaders",
                "collate",
                "collator",
                "collators",
                "sampler",
                "samplers",
                "tokenize",
                "tokenizer",
                "tokenizers",
                "tokenization",
                "preprocess",
                "preprocessing",
                "preprocessor",
                "corpus",
                "shard",
                "shards",
                "augment",
                "augmentation",
                "augmentations",
                "batching",
                "reader",
            ]
        ),
        "data",
    ),
    (
        frozenset(
            [
                "config",
                "configs",
                "configuration",
                "settings",
                "args",
                "argparser",
                "arguments",
                "argument",
                "options",
                "flags",
                "cli",
                "conf",
                "hparams",
            ]
        ),
        "settings",
    ),
    (frozenset(["rendezvous", "rdzv", "coordinator", "master"]), "rendezvous"),
    (
        frozenset(
            [
                *("allreduce", "allgather", "barrier", "broadcast", "collective", "collectives"),
                *("comm", "comms", "nccl", "rccl", "gloo"),
            ]
        ),
        "collective",
    ),
)
# Of which the table has a part: what it lacks of them means nothing.
_TABLED = frozenset(start.partition("/")[0] for start in PACKAGES)
_NAMED_BY_PATHS = ("data", "checkpoint", "settings")
_DATA_FUNCTIONS = frozenset(["__getitem__", "__getitems__", "get_batch", "next_batch"])
_CHECKPOINT_FUNCTION = re.compile(
    r"(?:^|_)(?:save|load|restore|resume)(?:_|\w*_)?(?:checkpoint|ckpt|state|weights|snapshot|training_state|model|optimizer)"
    r"|^(?:save|restore|resume)$|^load_state_dict$|^save_pretrained$|^_save|^save_"
)
_INIT_FUNCTION = re.compile(r"^(?:init|setup|start|initialize)_(?:torch_)?(?:dist|process_group)")
_WORD = re.compile(r"[a-z]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def package_path(file: str) -> str:
    """Return the path of a module below where packages are installed; "" for a program's own."""
    file = file.replace("\\", "/")
    if (frozen := _FROZEN.fullmatch(file)) is not None:
        return f"{frozen[1].replace('.', '/')}.py"
    found = _SITE.search(file) or _STANDARD.search(file)
    if found is not None:
        return found["path"]
    if not file.startswith("/"):
        return ""
    parts = file.split("/")
    for name in _CHECKOUTS:
        if name in parts[:-1]:
            return "/".join(parts[len(parts) - 1 - parts[::-1].index(name) :])
    return ""


@lru_cache(maxsize=4096)
def place_of(frame: Frame, root: str = "") -> CodePlace:
    """Return what a frame is about. `root`: the folder of the program, whose name says nothing of its code."""
    path = package_path(frame.file)
    if frame.function in _TEAR_DOWN_FUNCTIONS and path:
        return CodePlace("tear-down", False)
    if path:
        subject = _subject_of_package(path, frame.function)
        if not subject and _SITE.search(frame.file.replace("\\", "/")):
            subject = _subject_of_unknown(path)
        return CodePlace(subject, False)
    if frame.function == "__del__":
        return CodePlace("tear-down", True)
    return CodePlace(_subject_of_user(frame, root), True)


def _subject_of_package(path: str, function: str) -> Subject:
    if path.startswith("torch/distributed/distributed_c10d.py") and (
        "init" in function or function in ("new_group", "_store_based_barrier")
    ):
        return "rendezvous"
    for start in BY_LENGTH:
        if path.startswith(start):
            subject = PACKAGES[start]
            break
    else:
        subject = ""
    # Trainers in packages name their functions as programs do.
    if subject in ("", "model") and _CHECKPOINT_FUNCTION.search(function):
        return "checkpoint"
    # The other functions of the module only call the system.
    return "" if path == "os.py" and function != "__getitem__" else subject


def _subject_of_unknown(path: str) -> Subject:
    """Return what a module of a package that no table has is about, by the names of the file and of its folders."""
    package, _, within = path.partition("/")
    if package in _TABLED:
        return ""
    named = (subject_of_words(name) for name in reversed(within.removesuffix(".py").split("/")))
    return next((subject for subject in named if subject in _NAMED_BY_PATHS), "")


def _subject_of_user(frame: Frame, root: str) -> Subject:
    if _CHECKPOINT_FUNCTION.search(frame.function):
        return "checkpoint"
    if frame.function in _DATA_FUNCTIONS:
        named = (subject_of_words(name) for name in _names(frame.file, root))
        return next((subject for subject in named if subject), "data")
    if _INIT_FUNCTION.search(frame.function):
        return "rendezvous"
    for text in (frame.function, *_names(frame.file, root)):
        if subject := subject_of_words(text):
            return subject
    return ""


def subject_of_words(text: str) -> Subject:
    """Return the subject that a name, or a line of source, is about by its words; "" for none."""
    words = words_of(text)
    for known, subject in _WORDS:
        if any(word in known for word in words):
            return subject
    return ""


def _names(file: str, root: str) -> Iterable[str]:
    """Return the parts of a path that name its subject: the file, and the folders around it below the program's own."""
    folder, _, name = file.replace("\\", "/").rpartition("/")
    if folder == root:
        return [name.removesuffix(".py")]
    below = folder.removeprefix(f"{root}/") if root else folder
    parts = below.split("/")
    return [name.removesuffix(".py"), *reversed(parts if below != folder else parts[-1:])]


def root_of(frames: Sequence[Frame]) -> str:
    """Return the folder of the program: that of the script that was started; "" where the stack does not show it."""
    for frame in frames:
        if not package_path(frame.file) and not frame.file.startswith("<"):
            if frame.function != "<module>":
                return ""
            return frame.file.replace("\\", "/").rpartition("/")[0]
    return ""


def words_of(text: str) -> list[str]:
    """Return the words of a name."""
    return _WORD.findall(_CAMEL.sub("_", text).lower())


def subjects(frames: Sequence[Frame]) -> list[CodePlace]:
    """Return what the frames of a stack are about, the innermost first."""
    root = root_of(frames)
    return [place_of(frame, root) for frame in reversed(frames)]
