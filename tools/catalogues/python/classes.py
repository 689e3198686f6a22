"""Classes of messages: by the directory that writes them, then by words that name a fault, then by the exception."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from runner.facts.faults import FAULTS
from runner.facts.matches import Layer, Scope
from tools.catalogues.python.statements import Statement
from tools.catalogues.python.texts import literal

# What a directory is about. `observer`: an outage of it is harmless to a run.
Area = Literal[
    "data", "checkpoint", "store", "rendezvous", "distributed", "settings", "runtime", "observer"
]
# By the names of directories and files, whatever the library; the first that a path has.
_AREA_PATTERNS: tuple[tuple[str, Area], ...] = (
    # Which class a name stands for, of a tokenizer too.
    (r"(?:^|/)models/auto/", "settings"),
    # The recomputation of activations, which is called checkpointing too.
    (r"(?:^|/)utils/checkpoint\.py|activation_checkpoint|checkpoint_wrapper", "runtime"),
    (r"rendezvous|elastic/|tcp_?store|/clusters/|launcher|(?:^|/)run\.py", "rendezvous"),
    (
        r"object_store|(?:^|/)(?:remote|cloud)|/hub\.py|s3fs|gcsfs|adlfs|file_utils|file_download"
        r"|/(?:upload|download)|(?:^|/)(?:client|resolver)\.py|_commit_api|hf_file_system",
        "store",
    ),
    (
        r"checkpoint|(?:^|[/_])(?:ckpt|saving|sav(?:e|er)|load_state_dict)|serialization"
        r"|safetensors|_integrations/peft|snapshot|core_model_loading|modeling_utils"
        r"|state_dict|weight_only",
        "checkpoint",
    ),
    (
        r"(?:^|/)(?:utils/)?data(?:/|sets?/|loader|_utils|sampler|_loader|_collator|\w*\.py)"
        r"|dataset|data_?load|dataload|sampler|tokeniz|collat|indexed_|image_utils|audio_utils"
        r"|video_utils|feature_extraction|packag(?:ed|e)_modules|data_pipeline|/streaming/|readers?\b",
        "data",
    ),
    (r"loggers?/|wandb|mlflow|tensorboard|telemetry|monitor/|callbacks/.*log", "observer"),
    (r"distributed|pipelin|fsdp|parallel|comm/|/rpc/|collective|nccl", "distributed"),
)
AREAS = tuple((re.compile(pattern), area) for pattern, area in _AREA_PATTERNS)
_MUST = re.compile(
    r"(?i)\b(?:must|should|cannot|can't|can only|needs? to|ha(?:s|ve) to|expect(?:s|ed|ing)?|unsupported"
    r"|(?:not|n't) (?:yet |currently )?support\w*|only supports?|supports? only|invalid|unknown"
    r"|unrecognized|unexpected keyword|deprecated|please (?:install|set|use|specify|pass|provide|make sure)"
    r"|please (?:select|choose|add|upgrade)"
    r"|pip install|exclusive|require[sd]?|specif\w+|is not (?:a )?valid|not (?:been )?implemented"
    r"|incompatible|available|choose|either|instead)\b"
)
# Of what is wrong with something that was read, rather than with an argument.
_CONTENT = re.compile(
    r"(?i)corrupt|truncat|damaged|checksum|\bcrc|magic|\bheader|unexpected (?:end|eof)|decod|\bpars(?:e|ing)"
    r"|not found|missing|does not exist|doesn't exist|no such|incomplete|mismatch|malformed|\bempty\b"
    r"|fail|unable|could not|couldn't|\b(?:samples?|shards?|records?|rows?|lines?) |out of (?:range|bounds)"
)
_SERVICE = re.compile(
    r"(?i)tim(?:ed?|ing)[ -]?out|retr(?:y|ies)|connect|unreachable|unavailable|throttl|rate limit"
    r"|too many (?:requests|redirects|open)"
    r"|server|reset|network|incomplete|interrupted|5\d\d|checksum|md5|crc|stall|slow down|broken|aborted"
)
# Of files that a service far away holds.
_AWAY = re.compile(r"(?i)\bconnection\b|\bretr(?:y|ies|ying)\b|\btimed out\b|unreachable|\b50\d\b")
_ACCESS = re.compile(
    r"(?i)credential|unauthori[sz]ed|forbidden|permission|denied|token|log ?in|authenticat|access key"
    r"|bucket|gated|profile|region|endpoint|not installed|sign(?:ature|ing)|account"
)
# Exceptions of arguments and of code.
_OF_SETTINGS = frozenset(
    (
        *("ValueError", "TypeError", "AttributeError", "KeyError", "NameError", "AssertionError"),
        *("ImportError", "SystemExit", "ModuleNotFoundError", "NotImplementedError", "IndexError"),
        *("ConfigError", "ArgumentError"),
    )
)
_OF_PARAMETERS = _OF_SETTINGS | {"RuntimeError"}
_ALWAYS_SETTINGS = frozenset(
    ["ImportError", "ModuleNotFoundError", "NotImplementedError", "NameError", "ArgumentError"]
)
_CONNECTION = re.compile(r"Connection\w*Error|Timeout|IncompleteRead|Retr(?:y|ies)")
_OF_SERVICES = re.compile(
    r"(?:Connection|Timeout|HTTP|Http|Service|Server|Network|Transfer|OSError|IOError|Retr)"
)


_TIMED_OUT = re.compile(r"(?i)\btimed[ -]?out\b")
_PEER_LOST = re.compile(
    r"(?i)\bconnection\b|\b(?:send|missed|lost)\b.{0,20}heartbeat|\bpeers?\b.{0,30}\b(?:lost|died|closed|gone)\b"
)


class Named(NamedTuple):
    """A class that words of a message name, whatever writes it, and why."""

    pattern: re.Pattern[str]
    fault: str
    why: str


NAMED: tuple[Named, ...] = tuple(
    Named(re.compile(pattern), fault, why)
    for pattern, fault, why in (
        (
            r"(?i)(?:cuda|gpu|hip|device|vram)\b.{0,60}out of memory|out of memory.{0,60}(?:cuda|gpu|device)",
            "cuda_oom",
            "a device's memory by name",
        ),
        (
            r"(?i)\b(?:out of (?:host )?memory|cannot allocate memory|not enough free (?:ram|memory))\b",
            "host_oom",
            "memory, and no device is named",
        ),
        (
            r"(?i)loss[ _]scale.{0,60}(?:minimum|too small|below|underflow)|(?:minimum|min) loss[ _]scale",
            "loss_scale_floor",
            "the scaler cannot decrease further",
        ),
        (
            r"(?i)\b(?:loss|grad\w*|norm|weights?|logits|activations?)\b.{0,60}\b(?:nans?|infs?|non-?finite|not finite)\b"
            r"|\b(?:nans?|infs?|non-?finite)\b.{0,40}\b(?:loss|grad\w*|norm|weights?|logits|activations?)\b",
            "nan_loss",
            "a number of the step that is not finite",
        ),
        (
            r"(?i)no space left|disk quota|disk is full|not enough (?:free )?(?:disk )?space|read-only file"
            r"|stale file handle|input/output error",
            "filesystem",
            "an errno of file systems by its text",
        ),
        (
            r"(?i)\b(?:rendezvous|tcpstore|init_process_group).{0,60}(?:fail|timed out|closed|unable|could not)"
            r"|timed out.{0,40}initializing process group",
            "rendezvous",
            "the meeting of ranks by name",
        ),
        (
            r"(?i)(?:watchdog|collective|all_?reduce|all_?gather|nccl).{0,60}\btimed[ -]?out",
            "nccl_timeout",
            "a collective that timed out",
        ),
        (
            r"each element in list of batch|stack expects each tensor",
            "data_error",
            "samples of one batch that do not fit together",
        ),
        (r"(?i)\bpreempt(?:ed|ion notice)\b", "preemption", "a preemption by name"),
        (
            r"(?i)illegal memory access|device-side assert|unspecified launch failure",
            "cuda_illegal_access",
            "an error of the CUDA runtime by its text",
        ),
    )
)
# Layers of faults that are not the program's own.
_LAYERS: Mapping[str, Layer] = {
    "filesystem": "machine",
    "host_oom": "machine",
    "nccl_timeout": "collective",
    "nccl_network": "network",
    "rendezvous": "network",
    "preemption": "scheduler",
}


class Override(NamedTuple):
    """A class by hand: of the messages of one library with this text."""

    library: str
    text: str
    fault: str
    why: str


OVERRIDES: tuple[Override, ...] = (
    Override("torch_elastic", "failed (exitcode: ", "", "a symptom: how a rank ended, not why"),
    Override("torch_data", "DataLoader timed out", "data_error", "a worker read no batch in time"),
    Override("torchdata", "DataLoader timed out", "data_error", "likewise"),
    Override("torchdata", "exited unexpectedly", "", "likewise"),
    Override("torch_data", "batch must contain tensors", "data_error", "a sample of another type"),
    Override(
        "torch_data",
        "each element in list of batch",
        "data_error",
        "samples of one batch that do not fit together",
    ),
    Override("torch_data", "exited unexpectedly", "", "a symptom: the worker's own end says why"),
    Override(
        "deepspeed",
        "Not enough memory in buffer",
        "config_error",
        "a size of a buffer, by settings",
    ),
    Override(
        "torch_serialization",
        "weights_only",
        "config_error",
        "a change of default; the file is whole",
    ),
    Override("torch_serialization", "Weights only load failed", "config_error", "likewise"),
)

# Written at level error by habit, of what programs go on after: the library, and the text.
HARMLESS: tuple[tuple[str, str], ...] = (
    # An attribute of a tokenizer is asked for, and None is the answer.
    ("transformers", "Using {}, but it is not set yet."),
)


class Class(NamedTuple):
    """What a message means: its fault ("" where it is not clear), and the reason where a word decided."""

    fault: str = ""
    why: str = ""

    @property
    def layer(self) -> Layer | None:
        """The layer, where it is not the program's."""
        return _LAYERS.get(self.fault)

    @property
    def scope(self) -> Scope | None:
        """The scope of the fault; None for no fault."""
        return FAULTS[self.fault].scope if self.fault else None


def area_of(path: str, default: Area) -> Area:
    """Return what a file is about, by its path within its library."""
    return next((area for pattern, area in AREAS if pattern.search(path)), default)


def class_of(statement: Statement, area: Area, library: str = "") -> Class:
    """Return the class of what a library of `area` writes; warnings and notes have none."""
    text, exception = literal(statement.format), statement.exception
    for override in OVERRIDES:
        if override.library == library and override.text in statement.format:
            return Class(override.fault if statement.level == "error" else "", override.why)
    if statement.level != "error" or (area == "observer" and not exception):
        return Class()
    if exception in _ALWAYS_SETTINGS:
        return Class("config_error")
    is_settings = exception in _OF_PARAMETERS and _MUST.search(text) is not None
    for one in NAMED:
        if not is_settings and "avoid" not in text and one.pattern.search(text):
            return Class(one.fault, one.why)
    return Class(_by_area(text, exception, area, is_settings=is_settings))


def _by_area(text: str, exception: str, area: Area, *, is_settings: bool) -> str:
    is_content = _CONTENT.search(text) is not None
    match area:
        case "data" | "checkpoint":
            if is_settings and not is_content:
                return "config_error"
            if exception not in _OF_SETTINGS and _AWAY.search(text):
                return "filesystem"
            fault = "data_error" if area == "data" else "checkpoint_io"
            return fault if exception or is_content else ""
        case "store":
            return _of_store(text, exception, is_settings=is_settings)
        case "rendezvous":
            if is_settings or exception in ("ValueError", "TypeError", "SystemExit"):
                return "config_error"
            return "rendezvous" if exception or is_content or _SERVICE.search(text) else ""
        case "distributed":
            return _of_distributed(text, exception)
        case "settings":
            return "config_error" if exception else ""
        case "runtime":
            return "config_error" if exception in _OF_SETTINGS or _MUST.search(text) else ""
        case "observer":
            return "config_error" if exception in _OF_SETTINGS and is_settings else ""


def _of_store(text: str, exception: str, *, is_settings: bool) -> str:
    """Return the class of a message about a service that holds files: the service failed, or the request was wrong."""
    if _CONNECTION.search(exception):
        return "filesystem"
    if _ACCESS.search(text) and not (_SERVICE.search(text) and not exception):
        return "config_error"
    if _SERVICE.search(text) or _OF_SERVICES.search(exception):
        return "config_error" if is_settings else "filesystem"
    return "config_error" if exception in _OF_SETTINGS else ""


def _of_distributed(text: str, exception: str) -> str:
    """Return the class of a message of code between ranks: as a rule a wrong shape or layout."""
    if exception not in ("AssertionError", "ValueError", "TypeError", "KeyError"):
        if _TIMED_OUT.search(text) or exception.endswith("TimeoutError"):
            return "nccl_timeout"
        if _PEER_LOST.search(text):
            return "nccl_network"
    return "config_error" if exception in _OF_PARAMETERS else ""
