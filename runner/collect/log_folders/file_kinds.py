"""Kinds of files: a log, a curve, a flight record, or none of them, by the name and the first bytes."""

import csv
import io
import json
from typing import Literal

from runner.collect.log_folders.packed_files import is_archive, is_packed
from runner.collect.metric_files.columns import Columns, FileWarnings, meaning
from runner.collect.metric_files.curves import DELIMITERS, EVENTS

Kind = Literal["log", "curve", "flight"]
# By which a file is judged; chosen.
HEAD_BYTES = 16 << 10
# As in `collect.diagnosis`: of a text's first bytes.
BINARY_RATIO = 0.05
# Control characters that no text has, and the most of them in a text's first bytes; chosen: a tenth of random bytes are such.
CONTROLS = bytes({*range(1, 7), *range(14, 27), *range(28, 32)})
CONTROL_RATIO = 0.05
# Rows that show the form of a table; chosen.
MIN_ROWS, MAX_ROWS = 2, 20
# Words of a log's record, of which a curve has none.
WORDS_OF_RECORDS = frozenset({"message", "msg", "level", "levelname", "severity", "log", "event"})

_SUFFIXES = {
    "code": "py pyc pyi ipynb c cc cpp cu cuh h hpp rs go js ts java lua pl sh bash sbatch slurm patch diff",
    "settings": "yaml yml toml ini cfg conf env lock service gin",
    "a checkpoint": "pt pth ckpt safetensors distcp onnx gguf npz npy h5 hdf5 msgpack pdparams",
    "data": "bin idx parquet arrow feather tfrecord tfrecords mds lmdb model tiktoken",
    "an archive: unpack it": "zip tar tgz 7z rar whl deb rpm jar",
    "a document or a picture": "md rst html css pdf png jpg jpeg gif svg webp mp4 ico docx xlsx",
    "a database": "db sqlite sqlite3 db-wal db-shm sqlite-wal sqlite-shm",
    "a program or a library": "so o a exe dll dylib class cubin fatbin",
    "a trace of a profiler": "nsys-rep qdrep ncu-rep prof pstats",
    "a process's number": "pid",
}
_REASONS = {f".{suffix}": why for why, names in _SUFFIXES.items() for suffix in names.split()}
_PACKED_TARS = (".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tbz2", ".txz")
_MAGIC = {
    b"\x7fELF": "a program, a library or a core dump",
    b"SQLite format 3": "a database",
    b"\x89PNG": "a document or a picture",
    b"%PDF": "a document or a picture",
    b"PAR1": "data",
    b"ARROW1": "data",
    b"\x89HDF": "a checkpoint",
    b"\x93NUMPY": "a checkpoint",
    **{bytes([0x80, protocol]): "a pickle, of a checkpoint as a rule" for protocol in range(2, 6)},
}
# What a dump of Kubernetes begins with, as YAML: what happened to pods is in it.
_KUBERNETES = (b"apiVersion:", b"items:\n- apiVersion:")
TRACES = (".pt.trace.json", ".trace.json")


def reason_to_leave(name: str, head: bytes) -> str:
    """Return why a file that was found in a folder is no log, by its name and first bytes; "": it may be one."""
    lower = name.lower()
    if lower.endswith(_PACKED_TARS) or is_archive(head):
        return "an archive: unpack it"
    if lower.endswith(TRACES):
        return "a trace of a profiler"
    for magic, why in _MAGIC.items():
        if head.startswith(magic):
            return why
    why = _REASONS.get(lower[lower.rfind(".") :], "") if "." in lower else ""
    if why and not (why == "settings" and head.startswith(_KUBERNETES)):
        return why
    if is_packed(head):
        return ""
    text = head.lstrip(b"\0")
    num_controls = len(text) - len(text.translate(None, CONTROLS))
    if text.count(0) > BINARY_RATIO * len(text) or num_controls > CONTROL_RATIO * len(text):
        return "no text"
    return "settings" if _is_settings(lower, text) else ""


def _is_settings(name: str, head: bytes) -> bool:
    """Whether a JSON file is one object without an error in it: config.json, generation_config.json, index files."""
    if not name.endswith(".json") or not head.lstrip().startswith(b"{"):
        return False
    lines = head.lstrip().splitlines()
    if len(lines) > 1 and lines[0].rstrip().endswith(b"}") and lines[1].startswith(b"{"):
        # An object a line: a log.
        return False
    is_of_events = b'"apiVersion"' in head or b'"message"' in head or b'"log_history"' in head
    return not is_of_events and not is_curve(name, head)


def is_curve(name: str, head: bytes) -> bool:
    """Whether a file is a table of metrics: event files of TensorBoard, CSV, or JSON objects, with a step and a known metric."""
    if EVENTS in name:
        return True
    text = head.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(head) >= HEAD_BYTES:
        # The last one is torn.
        lines = lines[:-1]
    rows = [line for line in lines[: MAX_ROWS + 1] if line.strip() and not line.startswith("#")]
    if '"log_history"' in text and name.lower().endswith(".json"):
        return True
    if not rows:
        return False
    return _is_json_curve(rows) if rows[0].lstrip().startswith("{") else _is_csv_curve(rows)


def _is_csv_curve(rows: list[str]) -> bool:
    delimiter = max(DELIMITERS, key=rows[0].count)
    try:
        table = list(csv.reader(io.StringIO("\n".join(rows)), delimiter=delimiter))
    except csv.Error:
        return False
    header, below = table[0], table[1:]
    if len(header) < 2 or len(below) < MIN_ROWS or not _names_metrics(header):
        return False
    return all(len(row) == len(header) for row in below)


def _is_json_curve(rows: list[str]) -> bool:
    columns: dict[str, None] = {}
    for row in rows:
        try:
            found = json.loads(row)
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict) or WORDS_OF_RECORDS & set(found):
            return False
        columns |= dict.fromkeys(map(str, found))
    return len(rows) >= MIN_ROWS and _names_metrics(list(columns))


def _names_metrics(names: list[str]) -> bool:
    """Whether column names have a step and a metric."""
    if not any(meaning(name) for name in names):
        return False
    columns = Columns(FileWarnings())
    columns.add_names(names, "")
    return "step" in columns.names and len(columns.names) > 1
