"""Rules: the fault of one exception, from its family, what the code around it is about, and the phase of the run."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from runner.facts.matches import Layer
from runner.rootcause.tracebacks.exception_classes import Family
from runner.rootcause.tracebacks.number_checks import fault_of_numbers
from runner.rootcause.tracebacks.objects import Raised
from runner.rootcause.tracebacks.package_subjects import Subject
from runner.rootcause.tracebacks.path_words import SHARED_MEMORY, fault_of_path
from runner.rootcause.tracebacks.stacks import Stack
from runner.rootcause.tracebacks.subjects import package_path

# How well a fault is known, the best first.
By = Literal["confirmed", "class", "package", "phase", "nothing"]


class ShownFault(NamedTuple):
    """A fault, and what showed it. `layer`: deeper than that of a program where the exception reports the machine."""

    fault: str
    by: By
    layer: Layer = "program"


# An exception of the program, of no known kind: it came before what the others lost by it.
UNKNOWN = ShownFault("unknown", "nothing")
_CONSEQUENCE = ShownFault("unknown", "nothing", "launcher")

_GPU_TEXT = re.compile(
    r"\bTriton Error \[|\b(?:CUDA|HIP|CUBLAS|CUDNN|cuBLAS|cuDNN)\w* (?:error|failure)|_STATUS_\w+"
)
# What cudaGetErrorString calls a failure of a kernel, of memory, or of the setup.
_GPU_ERRORS = (
    (re.compile(r"out of memory|ALLOC_FAILED"), "cuda_oom"),
    (
        re.compile(
            r"illegal (?:memory access|address|instruction)|misaligned|device-side assert|launch failure|invalid program counter"
        ),
        "cuda_illegal_access",
    ),
    (
        re.compile(
            r"invalid device (?:ordinal|function)|no kernel image|insufficient for CUDA|unsupported display driver"
        ),
        "config_error",
    ),
)
_TIMED_OUT = re.compile(r"(?i)\btimed? ?-?out\b|deadline")
_COLLECTIVE = re.compile(r"\b(?:NCCL|RCCL|gloo|Gloo|ProcessGroup\w*|all_?reduce|AllReduce)\b")
# How a worker ended says nothing about what it read. Only what has no page of memory, or of shared memory, says why it was killed.
_WORKER_ENDED = re.compile(
    r"DataLoader worker .*(?:exited unexpectedly|killed by signal: (?!Killed|9\b|Bus error))"
)
# A parent says that its child has written why: vLLM, SGLang.
_WRITTEN_ABOVE = re.compile(
    r"(?i)\bsee (?:the )?(?:root cause|stack ?trace|traceback|errors?|error messages?)\b.{0,20}\b(?:above|root cause)\b"
)
# Functions that get one sample or one batch; others build a dataset from settings.
_READS_SAMPLE = re.compile(
    r"^__(?:getitem|getitems|next|iter)__$|fetch|collate|decode|transform|tokenize|(?:read|parse|load|get|next)_?(?:sample|item|"
    r"record|batch|shard|example|line|image|document)|_next_data|_worker_loop|_prepare_split|_generate_(?:tables|examples)"
    r"|(?:array|table)_cast|cast_(?:array|table|storage)|write_(?:table|batch|examples)"
)
_SETTINGS_TEXT = re.compile(r"\b(?:arguments?|config\w*|settings?|options?|--\w+)\b")
# What torch's checks of third-party code put before their message.
_ENFORCED = re.compile(r"\[enforce fail at ([\w./-]+)")
# What a launcher raises when it is told to end.
_ASKED_TO_END = re.compile(r"\bsignal: (?:1|2|15)\b|\bSIG(?:TERM|HUP|INT)\b")
# Of messages that name what a process died with; what may have been is no statement.
_MAYBE = "potential root causes"
_DIED_WITH: tuple[tuple[re.Pattern[str], ShownFault], ...] = (
    (
        re.compile(
            r"(?i)\bnode\b.{0,60}\b(?:died|dead|crash\w*|terminated|lost|failed|removed|draine?d?)\b"
        ),
        ShownFault("node_failure", "class", "scheduler"),
    ),
    (
        re.compile(r"(?i)\bmemory pressure\b|\bout of memory\b|\brunning low on memory\b|\bOOM"),
        ShownFault("host_oom", "class", "machine"),
    ),
    (re.compile(r"(?i)\bpreempted\b"), ShownFault("preemption", "class", "scheduler")),
)
# C++ files by what they do, in what libc10 prints.
_SOURCES: tuple[tuple[str, ShownFault], ...] = (
    ("CUDACachingAllocator", ShownFault("cuda_oom", "class")),
    ("TCPStore", ShownFault("rendezvous", "class", "network")),
    ("socket.cpp", ShownFault("rendezvous", "class", "network")),
    ("inline_container", ShownFault("checkpoint_io", "class")),
    ("ProcessGroupGloo", ShownFault("nccl_network", "class", "collective")),
    ("gloo/transport/", ShownFault("nccl_network", "class", "collective")),
    ("ProcessGroupNCCL", ShownFault("nccl_network", "class", "collective")),
)
_LATE = ShownFault("nccl_timeout", "class", "collective")


def finding_of(raised: Raised, family: Family, stack: Stack) -> ShownFault:
    """Return the fault of an exception."""
    if not raised.name:
        return _of_cut(raised, stack)
    if fault := fault_of_numbers(raised, family):
        return ShownFault(fault, "class")
    if _WORKER_ENDED.search(raised.message) or _WRITTEN_ABOVE.search(raised.message):
        return _CONSEQUENCE
    enforced = _ENFORCED.search(raised.message)
    for source, finding in _SOURCES:
        if source in raised.source or (enforced and source in enforced[1]):
            is_late = finding.layer == "collective" and _TIMED_OUT.search(raised.message)
            return _LATE if is_late else finding
    if family in ("other", "value") and _GPU_TEXT.search(raised.message):
        family = "gpu"
    rule = _RULES.get(family)
    found = rule(raised, stack) if rule is not None else None
    return found or _by_subject(raised, family, stack)


def _of_cut(raised: Raised, stack: Stack) -> ShownFault:
    """Return the fault of a stack whose innermost frames and exception are missing; nothing where only those could show it."""
    finding = _by_subject(raised, "other", stack)
    return (
        ShownFault(finding.fault, "phase", "other")
        if finding.by == "package"
        else ShownFault("", "nothing")
    )


def _by_subject(raised: Raised, family: Family, stack: Stack) -> ShownFault:
    """Return the fault by the innermost code whose subject means something; else by the phase."""
    for number, place in enumerate(stack.places):
        finding = _SUBJECTS.get(place.subject)
        if finding == _CONSEQUENCE and any(
            inner.is_user or inner.subject for inner in stack.places[:number]
        ):
            # It called what failed, in this process or in another: a task, an executor's function.
            break
        if finding is not None:
            return finding
        if place.subject == "files":
            return ShownFault(fault_of_path(raised.message) or _fault_of_files(stack), "package")
        if place.subject == "collective":
            return _collective(raised, family)
    return _by_phase(family, stack)


_SUBJECTS: dict[Subject, ShownFault] = {
    "data": ShownFault("data_error", "package"),
    "checkpoint": ShownFault("checkpoint_io", "package"),
    "imports": ShownFault("config_error", "package"),
    "settings": ShownFault("config_error", "package"),
    "compiler": ShownFault("config_error", "package"),
    "rendezvous": ShownFault("rendezvous", "package", "network"),
    "launcher": _CONSEQUENCE,
    "tracking": ShownFault("unknown", "nothing", "other"),
    "processes": _CONSEQUENCE,
}


def _fault_of_files(stack: Stack) -> str:
    """Return the fault of an exception in code that reads or writes any file: data, where the code around it reads them."""
    return "data_error" if stack.is_data else "checkpoint_io"


def _by_phase(family: Family, stack: Stack) -> ShownFault:
    if family in ("code", "lookup", "import"):
        return ShownFault("config_error", "phase")
    if stack.phase == "saving" or (stack.phase == "loading" and family in ("os", "format")):
        return ShownFault("checkpoint_io", "phase")
    if stack.phase in ("starting", "importing", "loading") and family in ("value", "other", "os"):
        return ShownFault("config_error", "phase")
    raising = stack.places[0].subject if stack.places else ""
    if raising in ("model", "optimizer") and family in ("value", "other") and not stack.has_stepped:
        # Shapes, types and devices that do not fit show in the first step.
        return ShownFault("config_error", "phase")
    return UNKNOWN


# ---- by family


def _collective(raised: Raised, family: Family) -> ShownFault:
    if family in ("value", "code", "lookup"):
        return ShownFault("config_error", "package")
    if _TIMED_OUT.search(raised.message) or family == "timeout":
        return ShownFault("nccl_timeout", "class", "collective")
    return ShownFault("nccl_network", "class", "collective")


def _missing(raised: Raised, stack: Stack) -> ShownFault:
    if stack.first_of("tracking", "tear-down"):
        return UNKNOWN
    by_path = fault_of_path(raised.message)
    if by_path:
        return ShownFault(by_path, "class")
    if stack.is_checkpoint:
        return ShownFault("checkpoint_io", "package")
    if stack.is_data:
        return ShownFault("data_error", "package")
    if stack.code_subject in ("data", "checkpoint"):
        return _SUBJECTS[stack.code_subject]._replace(by="phase")
    return ShownFault("config_error", "phase")


def _storage(raised: Raised, stack: Stack) -> ShownFault:
    del raised
    if stack.is_checkpoint:
        return ShownFault("checkpoint_io", "class")
    return ShownFault("filesystem", "class", "machine")


def _disk_full(raised: Raised, stack: Stack) -> ShownFault:
    if SHARED_MEMORY.search(raised.message):
        return ShownFault("config_error", "class")
    # What processes hand each other goes through files, too.
    is_other = stack.is_data or bool(stack.first_of("processes"))
    is_saving = stack.is_checkpoint or (bool(stack.first_of("files")) and not is_other)
    return ShownFault("checkpoint_io" if is_saving else "filesystem", "class", "machine")


def _connection(raised: Raised, stack: Stack) -> ShownFault:
    subject = stack.first_of(
        "rendezvous", "collective", "checkpoint", "data", "tracking", "processes", "launcher"
    )
    if subject == "rendezvous":
        return ShownFault("rendezvous", "class", "network")
    if subject == "collective" or _COLLECTIVE.search(raised.message):
        return _collective(raised, "connection")
    if subject in ("tracking", "processes", "launcher"):
        return _CONSEQUENCE
    if subject in ("checkpoint", "data"):
        return _SUBJECTS[subject]
    if stack.first_of("remote"):
        return ShownFault("filesystem", "package", "program")
    return ShownFault("rendezvous", "phase", "network") if stack.phase == "starting" else UNKNOWN


def _timeout(raised: Raised, stack: Stack) -> ShownFault:
    return _connection(raised, stack)


def _peer(raised: Raised, stack: Stack) -> ShownFault:
    """The other end is gone: of a remote file, of a store at the start, or of a process that died for a reason of its own."""
    if stack.innermost == "rendezvous" and not stack.has_stepped:
        return ShownFault("rendezvous", "class", "network")
    if stack.innermost in ("data", "checkpoint", "remote"):
        return _connection(raised, stack)
    return ShownFault("nccl_network", "phase", "collective")


def _format(raised: Raised, stack: Stack) -> ShownFault | None:
    """Bytes that no reader understands: of what is being read."""
    for place in stack.places:
        if place.subject in ("data", "checkpoint", "settings", "processes"):
            return _SUBJECTS[place.subject]
    base = raised.name.rpartition(".")[2]
    is_of_processes = base == "EOFError" and "Ran out of input" not in raised.message
    if is_of_processes and not stack.first_of("files"):
        return _CONSEQUENCE
    if by_path := fault_of_path(raised.message):
        return ShownFault(by_path, "class")
    if (subject := stack.code_subject) in _SUBJECTS:
        return _SUBJECTS[subject]
    if base in ("UnpicklingError", "EOFError"):
        return ShownFault("checkpoint_io", "class")
    return ShownFault(
        "checkpoint_io" if stack.phase in ("saving", "loading") else "data_error", "class"
    )


def _code(raised: Raised, stack: Stack) -> ShownFault:
    """A defect of the program, unless a sample or a checkpoint that it did not expect showed it."""
    base = raised.name.rpartition(".")[2]
    if "pickle" in raised.message:
        # An object that cannot go to a worker.
        return ShownFault("config_error", "class")
    if base in ("TypeError", "AttributeError", "AssertionError", "ZeroDivisionError"):
        if stack.innermost == "data" and any(
            _READS_SAMPLE.search(one.function) for one in stack.frames
        ):
            return ShownFault("data_error", "package")
        is_of_settings = _SETTINGS_TEXT.search(raised.message)
        if stack.innermost == "data" and fault_of_path(raised.message) == "data_error":
            # It names the file that is not what it should be.
            return ShownFault("data_error", "package")
        if base == "AssertionError" and stack.innermost == "checkpoint" and not is_of_settings:
            return ShownFault("checkpoint_io", "package")
    return ShownFault("config_error", "class")


def _lookup(raised: Raised, stack: Stack) -> ShownFault:
    del raised
    if stack.first_of("settings", "imports"):
        return ShownFault("config_error", "package")
    if stack.is_data:
        return ShownFault("data_error", "package")
    if stack.is_checkpoint and not stack.first_of("model", "optimizer"):
        return ShownFault("checkpoint_io", "package")
    if stack.first_of("tracking"):
        return _SUBJECTS["tracking"]
    return ShownFault("config_error", "phase")


def _gpu(raised: Raised, stack: Stack) -> ShownFault | None:
    del stack
    for pattern, fault in _GPU_ERRORS:
        # The lines after the first are advice.
        if pattern.search(raised.message.partition("\n")[0]):
            return ShownFault(fault, "class")
    return None


def _value(raised: Raised, stack: Stack) -> ShownFault | None:
    """Wrong values: of settings before the first step, of a sample in code that reads data."""
    if stack.places and stack.places[0].subject == "engine":
        # An engine for inference raises them where it checks its settings, the memory they leave, and requests.
        return ShownFault("config_error", "package")
    if stack.first_of("rendezvous") and raised.name.endswith("ValueError"):
        return ShownFault("config_error", "package")
    is_made = bool(stack.frames) and stack.frames[-1].function in ("__init__", "__post_init__")
    if is_made and stack.places[0].subject == "data" and not stack.places[0].is_user:
        # A loader or a sampler refuses its options.
        return ShownFault("config_error", "package")
    return None


def is_waiting_for_processes(stack: Stack) -> bool:
    """Whether the innermost call waits for another process: a loader's worker, or, where no step was made, a child."""
    if not stack.frames or not _BLOCKING_MODULES.search(package_path(stack.frames[-1].file)):
        return False
    is_of_loader = any("torch/utils/data/" in package_path(one.file) for one in stack.frames)
    return is_of_loader or stack.has_stepped is None


def _died_with(raised: Raised) -> ShownFault:
    """Return what a launcher states that a process died with; else its end is a consequence."""
    stated = raised.message.partition(_MAYBE)[0]
    return next((found for words, found in _DIED_WITH if words.search(stated)), _CONSEQUENCE)


def _exit(raised: Raised, stack: Stack) -> ShownFault:
    """A person, or the program, ended it: no failure, but where ranks waited for others as a person lost patience."""
    is_interrupted = raised.name.endswith("KeyboardInterrupt")
    if is_interrupted and stack.innermost in ("collective", "rendezvous"):
        return ShownFault("hang_no_error", "package", "collective")
    if is_interrupted and is_waiting_for_processes(stack):
        return ShownFault("hang_no_error", "phase", "collective")
    is_asked = raised.name.endswith("SignalException") and _ASKED_TO_END.search(raised.message)
    if is_interrupted or is_asked:
        return ShownFault("preemption", "class", "launcher")
    return ShownFault("", "class")


# Modules of Python that wait for what another process, or a thread of its pipe, sends.
_BLOCKING_MODULES = re.compile(
    r"^(?:selectors|queue|threading|subprocess)\.py$"
    r"|^multiprocessing/(?:connection|queues|synchronize|popen_\w+|process|pool|resource_sharer)\.py$"
)
_Rule = Callable[[Raised, Stack], ShownFault | None]
_RULES: dict[Family, _Rule] = {
    "exit": _exit,
    "launcher": lambda raised, stack: _died_with(raised),
    "peer": _peer,
    "connection": _connection,
    "timeout": _timeout,
    "missing": _missing,
    "permission": _missing,
    "disk-full": _disk_full,
    "storage": _storage,
    "limit": lambda raised, stack: ShownFault("unknown", "class", "machine"),
    "memory": lambda raised, stack: ShownFault("host_oom", "class", "machine"),
    "gpu-memory": lambda raised, stack: ShownFault("cuda_oom", "class"),
    "gpu": _gpu,
    "collective": lambda raised, stack: _collective(raised, "collective"),
    "rendezvous": lambda raised, stack: ShownFault("rendezvous", "class", "network"),
    "settings": lambda raised, stack: ShownFault("config_error", "class"),
    "import": lambda raised, stack: ShownFault("config_error", "class"),
    "format": _format,
    "checkpoint": lambda raised, stack: ShownFault("checkpoint_io", "class"),
    "data": lambda raised, stack: ShownFault(
        fault_of_path(raised.message) or "data_error", "class"
    ),
    "not-finite": lambda raised, stack: ShownFault("nan_loss", "class"),
    "lookup": _lookup,
    "code": _code,
    "value": _value,
}
