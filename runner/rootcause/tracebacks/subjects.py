"""Subjects: what the code of a frame is about, by its package; of a program's own code, by the words of its path and function."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from runner.rootcause.tracebacks.objects import Frame

Subject = Literal[
    "",
    "data",
    "checkpoint",
    # It reads or writes files of any kind: data, checkpoints.
    "files",
    "imports",
    "settings",
    "rendezvous",
    "collective",
    # Files from the Hub, object stores, HTTP.
    "remote",
    "model",
    "optimizer",
    "compiler",
    "launcher",
    # wandb, TensorBoard: what reports a run.
    "tracking",
    # Pipes and queues between processes of one program.
    "processes",
    "tear-down",
]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """What a frame is about. `is_user`: it is the program's own code."""

    subject: Subject
    is_user: bool


# Path below site-packages, or of the standard library, beginning so -> subject; the longest first.
_PACKAGES: dict[str, Subject] = {
    "torch/utils/data/": "data",
    "torch/utils/_pytree": "",
    "torchdata/": "data",
    "datasets/": "data",
    "webdataset/": "data",
    "streaming/": "data",
    "litdata/": "data",
    "tokenizers/": "data",
    "sentencepiece/": "data",
    "tiktoken/": "data",
    "pyarrow/": "data",
    "pandas/": "data",
    "polars/": "data",
    "h5py/": "data",
    "lmdb/": "data",
    "zarr/": "data",
    "PIL/": "data",
    "cv2/": "data",
    "av/": "data",
    "decord/": "data",
    "torchvision/datasets/": "data",
    "torchvision/transforms/": "data",
    "torchvision/io/": "data",
    "torchaudio/": "data",
    "soundfile": "data",
    "librosa/": "data",
    "albumentations/": "data",
    "nvidia/dali/": "data",
    "tensorflow_datasets/": "data",
    "seqio/": "data",
    "grain/": "data",
    "transformers/data/": "data",
    "transformers/tokenization": "data",
    "megatron/core/datasets/": "data",
    "megatron/data/": "data",
    "megatron/training/datasets/": "data",
    "torch/serialization.py": "files",
    "torch/_weights_only_unpickler.py": "files",
    "torch/distributed/checkpoint/": "checkpoint",
    "torch/utils/checkpoint.py": "model",
    "safetensors/": "checkpoint",
    "orbax/": "checkpoint",
    "tensorstore/": "checkpoint",
    "tensorizer/": "checkpoint",
    "megatron/core/dist_checkpointing/": "checkpoint",
    "megatron/training/checkpointing.py": "checkpoint",
    "megatron/checkpointing.py": "checkpoint",
    "deepspeed/checkpoint/": "checkpoint",
    "deepspeed/runtime/checkpoint_engine/": "checkpoint",
    "deepspeed/utils/zero_to_fp32.py": "checkpoint",
    "lightning/fabric/plugins/io/": "checkpoint",
    "lightning/pytorch/trainer/connectors/checkpoint_connector.py": "checkpoint",
    "lightning/pytorch/callbacks/model_checkpoint.py": "checkpoint",
    "lightning_fabric/plugins/io/": "checkpoint",
    "pytorch_lightning/callbacks/model_checkpoint.py": "checkpoint",
    "accelerate/checkpointing.py": "checkpoint",
    "composer/checkpoint/": "checkpoint",
    "composer/utils/checkpoint.py": "checkpoint",
    "torchsnapshot/": "checkpoint",
    "nemo/utils/callbacks/": "checkpoint",
    "numpy/lib/": "files",
    "numpy/_core/memmap.py": "data",
    "numpy/core/memmap.py": "data",
    "fsspec/": "remote",
    "s3fs/": "remote",
    "gcsfs/": "remote",
    "adlfs/": "remote",
    "boto3/": "remote",
    "botocore/": "remote",
    "s3transfer/": "remote",
    "smart_open/": "remote",
    "google/cloud/": "remote",
    "google/api_core/": "remote",
    "azure/": "remote",
    "huggingface_hub/": "remote",
    "requests/": "remote",
    "urllib3/": "remote",
    "httpx/": "remote",
    "httpcore/": "remote",
    "aiohttp/": "remote",
    "transformers/utils/hub.py": "remote",
    "hydra/": "settings",
    "omegaconf/": "settings",
    "pydantic/": "settings",
    "pydantic_settings/": "settings",
    "pydantic_core/": "settings",
    "yaml/": "settings",
    "toml/": "settings",
    "jsonargparse/": "settings",
    "tyro/": "settings",
    "draccus/": "settings",
    "simple_parsing/": "settings",
    "fire/": "settings",
    "absl/flags/": "settings",
    "ml_collections/": "settings",
    "marshmallow/": "settings",
    "jsonschema/": "settings",
    "click/": "",
    "typer/": "",
    "transformers/hf_argparser.py": "settings",
    "transformers/training_args.py": "settings",
    "transformers/configuration_utils.py": "settings",
    "transformers/modeling_utils.py": "model",
    "transformers/dynamic_module_utils.py": "imports",
    "transformers/utils/import_utils.py": "imports",
    "megatron/training/arguments.py": "settings",
    "megatron/arguments.py": "settings",
    "megatron/core/transformer/transformer_config.py": "settings",
    "megatron/core/model_parallel_config.py": "settings",
    "megatron/core/parallel_state.py": "settings",
    "deepspeed/runtime/config": "settings",
    "deepspeed/runtime/zero/config.py": "settings",
    "accelerate/utils/dataclasses.py": "settings",
    "torch/distributed/rendezvous.py": "rendezvous",
    "torch/distributed/elastic/rendezvous/": "rendezvous",
    "torch/distributed/elastic/agent/": "launcher",
    "torch/distributed/elastic/multiprocessing/": "launcher",
    "torch/distributed/launcher/": "launcher",
    "torch/distributed/run.py": "launcher",
    "torch/distributed/launch.py": "launcher",
    "torch/multiprocessing/spawn.py": "launcher",
    "accelerate/commands/": "launcher",
    "deepspeed/launcher/": "launcher",
    "ray/": "launcher",
    "torch/distributed/distributed_c10d.py": "collective",
    "torch/distributed/nn/": "collective",
    "torch/distributed/_functional_collectives.py": "collective",
    "deepspeed/comm/": "collective",
    "torch/nn/parallel/distributed.py": "model",
    "torch/nn/": "model",
    "torch/optim/": "optimizer",
    "torch/amp/": "optimizer",
    "torch/cuda/amp/": "optimizer",
    "apex/optimizers/": "optimizer",
    "bitsandbytes/optim/": "optimizer",
    "torch/_dynamo/": "compiler",
    "torch/_inductor/": "compiler",
    "torch/_functorch/": "compiler",
    "triton/": "compiler",
    "wandb/": "tracking",
    "mlflow/": "tracking",
    "tensorboard/": "tracking",
    "torch/utils/tensorboard/": "tracking",
    "tensorboardX/": "tracking",
    "comet_ml/": "tracking",
    "neptune/": "tracking",
    "clearml/": "tracking",
    "aim/": "tracking",
    # The standard library.
    "importlib/": "imports",
    "runpy.py": "",
    "argparse.py": "settings",
    "configparser.py": "settings",
    "tomllib/": "settings",
    "pickle.py": "files",
    "shutil.py": "files",
    "zipfile": "files",
    "tarfile.py": "files",
    "gzip.py": "files",
    "lzma.py": "files",
    "pathlib": "files",
    "tempfile.py": "files",
    "http/": "remote",
    "urllib/": "remote",
    "ssl.py": "remote",
    "multiprocessing/connection.py": "processes",
    "multiprocessing/queues.py": "processes",
    "multiprocessing/managers.py": "processes",
    "multiprocessing/resource_sharer.py": "processes",
    "concurrent/futures/": "processes",
    "subprocess.py": "processes",
}
_BY_LENGTH = sorted(_PACKAGES, key=len, reverse=True)
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
_IMPORTLIB = "<frozen importlib"

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
    if frame.file.startswith(_IMPORTLIB):
        return CodePlace("imports", False)
    path = package_path(frame.file)
    if frame.function in _TEAR_DOWN_FUNCTIONS and path:
        return CodePlace("tear-down", False)
    if path:
        return CodePlace(_subject_of_package(path, frame.function), False)
    if frame.function == "__del__":
        return CodePlace("tear-down", True)
    return CodePlace(_subject_of_user(frame, root), True)


def _subject_of_package(path: str, function: str) -> Subject:
    if path.startswith("torch/distributed/distributed_c10d.py") and (
        "init" in function or function in ("new_group", "_store_based_barrier")
    ):
        return "rendezvous"
    for start in _BY_LENGTH:
        if path.startswith(start):
            subject = _PACKAGES[start]
            break
    else:
        subject = ""
    # Trainers in packages name their functions as programs do.
    if subject in ("", "model") and _CHECKPOINT_FUNCTION.search(function):
        return "checkpoint"
    if subject == "" and _DATA_FUNCTIONS & {function}:
        return "data"
    return subject


def _subject_of_user(frame: Frame, root: str) -> Subject:
    if _CHECKPOINT_FUNCTION.search(frame.function):
        return "checkpoint"
    if frame.function in _DATA_FUNCTIONS:
        return "data"
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
