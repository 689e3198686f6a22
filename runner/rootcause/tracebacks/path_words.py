"""Path words: what a file that an exception names is about, by the words of its path."""

import re

from runner.facts.faults import Fault

# Memory that processes share is a file system whose size is a setting, and no disk: what NCCL and torch put there.
SHARED_MEMORY = re.compile(r"\bdev/shm\b|\bshm(?:utils)?\.(?:h|cc)\b|[Ss]hared memory|</torch_\d+")
_CHECKPOINT_WORDS = frozenset(
    [
        "checkpoint",
        "checkpoints",
        "ckpt",
        "ckpts",
        "states",
        "optim",
        "safetensors",
        "weights",
        "snapshot",
        "snapshots",
    ]
)
_CONFIG_WORDS = frozenset(
    [
        *("config", "configs", "conf", "settings", "yaml", "yml", "toml", "cfg", "ini"),
        *("py", "sh"),
    ]
)
_DATA_WORDS = frozenset(
    [
        "data",
        "dataset",
        "datasets",
        "shard",
        "shards",
        "token",
        "tokens",
        "tokenized",
        "corpus",
        "train",
        "val",
        "valid",
        "test",
        "coco",
        "imagenet",
        "wiki",
        "wikitext",
        "text",
        "jsonl",
        "parquet",
        "arrow",
        "bin",
        "idx",
        "tfrecord",
        "npy",
        "tar",
        "mmap",
        "webdataset",
    ]
)
_WORD = re.compile(r"[^a-z0-9]+")


def fault_of_path(text: str) -> Fault | str:
    """Return the fault that the words of a path in the text suggest; "" for none."""
    for path in text.lower().split():
        if "/" not in path and "'" not in path:
            continue
        words = [word.rstrip("0123456789") for word in _WORD.split(path)]
        for known, fault in (
            (_CHECKPOINT_WORDS, "checkpoint_io"),
            (_CONFIG_WORDS, "config_error"),
            (_DATA_WORDS, "data_error"),
        ):
            if any(word in known for word in words):
                return fault
    return ""
