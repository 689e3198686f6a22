"""Families: what kind of failure an exception is, by its class, the bases of its class, and its errno.

The bases of Python's own classes are asked of Python; those of libraries are in a table, read from their sources. A class that
neither knows is judged by the words of its name.
"""

import builtins
import errno as errnos
import re
from typing import Literal

from runner.rootcause.tracebacks.objects import Raised

Family = Literal[
    # It was asked to end: no failure.
    "exit",
    # It reports that another process failed.
    "launcher",
    # The process at the other end is gone.
    "peer",
    "connection",
    "timeout",
    "missing",
    "permission",
    "disk-full",
    "storage",
    "limit",
    "memory",
    "gpu-memory",
    "gpu",
    "collective",
    "rendezvous",
    "settings",
    "import",
    # Bytes that are not what a format demands.
    "format",
    "checkpoint",
    "data",
    "not-finite",
    "lookup",
    # A defect of the program: a wrong type, name, or attribute.
    "code",
    "value",
    "os",
    "other",
]

# By errno(3).
_ERRNOS: dict[int, Family] = {
    errnos.ENOENT: "missing",
    errnos.ENOTDIR: "missing",
    errnos.EISDIR: "missing",
    errnos.EACCES: "permission",
    errnos.EPERM: "permission",
    errnos.ENOSPC: "disk-full",
    errnos.EDQUOT: "disk-full",
    errnos.EIO: "storage",
    errnos.EROFS: "storage",
    errnos.ESTALE: "storage",
    errnos.ENOTCONN: "storage",
    errnos.EREMOTEIO: "storage",
    errnos.ESHUTDOWN: "storage",
    errnos.EUCLEAN: "storage",
    errnos.ENODEV: "storage",
    errnos.ENXIO: "storage",
    errnos.EMFILE: "limit",
    errnos.ENFILE: "limit",
    errnos.EAGAIN: "limit",
    errnos.ENOMEM: "memory",
    errnos.EPIPE: "peer",
    errnos.ECONNRESET: "peer",
    errnos.ECONNABORTED: "peer",
    errnos.EADDRINUSE: "rendezvous",
    errnos.ECONNREFUSED: "connection",
    errnos.EHOSTUNREACH: "connection",
    errnos.ENETUNREACH: "connection",
    errnos.ETIMEDOUT: "timeout",
}
_ERRNO = re.compile(r"\[(?:Errno|errno|WinError) (-?\d{1,3})\]|\(os error (\d{1,3})\)")
_ERRNO_TEXTS: tuple[tuple[str, Family], ...] = (
    ("No space left on device", "disk-full"),
    ("Disk quota exceeded", "disk-full"),
    ("Input/output error", "storage"),
    ("Stale file handle", "storage"),
    ("Read-only file system", "storage"),
    ("Transport endpoint is not connected", "storage"),
    ("Cannot allocate memory", "memory"),
    ("can't allocate memory", "memory"),
    ("Too many open files", "limit"),
    ("can't start new thread", "limit"),
    ("Connection refused", "connection"),
    ("Connection timed out", "timeout"),
    ("Name or service not known", "connection"),
    ("Temporary failure in name resolution", "connection"),
)

# The most special first.
_BUILTINS: tuple[tuple[str, Family], ...] = (
    ("SystemExit", "exit"),
    ("KeyboardInterrupt", "exit"),
    ("GeneratorExit", "exit"),
    ("BrokenPipeError", "peer"),
    ("ConnectionResetError", "peer"),
    ("ConnectionAbortedError", "peer"),
    ("ConnectionError", "connection"),
    ("TimeoutError", "timeout"),
    ("FileNotFoundError", "missing"),
    ("NotADirectoryError", "missing"),
    ("IsADirectoryError", "missing"),
    ("PermissionError", "permission"),
    ("OSError", "os"),
    ("MemoryError", "memory"),
    ("ImportError", "import"),
    ("SyntaxError", "import"),
    ("UnicodeError", "format"),
    ("EOFError", "format"),
    ("LookupError", "lookup"),
    # An iterator was used up.
    ("StopIteration", "data"),
    ("StopAsyncIteration", "data"),
    ("FloatingPointError", "not-finite"),
    ("NotImplementedError", "code"),
    ("RecursionError", "code"),
    ("AttributeError", "code"),
    ("NameError", "code"),
    ("TypeError", "code"),
    ("AssertionError", "code"),
    ("ZeroDivisionError", "code"),
    ("ArithmeticError", "value"),
    ("ValueError", "value"),
    ("RuntimeError", "other"),
)
# Class without its module -> family; from the sources of each library.
_CLASSES: dict[str, Family] = {
    **dict.fromkeys(
        # torch.distributed.elastic, asyncio, concurrent.futures, Ray, Lightning
        ["SignalException", "CancelledError", "TaskCancelledError", "ExitException"],
        "exit",
    ),
    **dict.fromkeys(
        [
            # torch.distributed.elastic and torch.multiprocessing
            *("ChildFailedError", "ProcessRaisedException", "ProcessExitedException"),
            # subprocess, concurrent.futures, joblib, multiprocessing
            *("CalledProcessError", "BrokenProcessPool", "BrokenExecutor", "TerminatedWorkerError"),
            *("RemoteTraceback", "_RemoteTraceback"),
            # Python: its members show what failed
            *("ExceptionGroup", "BaseExceptionGroup"),
            # Ray
            *("RayTaskError", "WorkerCrashedError", "RayActorError", "ActorDiedError"),
            *("ActorUnavailableError", "ActorDiedError", "NodeDiedError", "OwnerDiedError"),
        ],
        "launcher",
    ),
    **dict.fromkeys(["OutOfMemoryError", "CUDAOutOfMemoryError"], "gpu-memory"),
    **dict.fromkeys(
        ["_ArrayMemoryError", "ArrayMemoryError", "ArrowMemoryError", "OutOfMemory"], "memory"
    ),
    **dict.fromkeys(
        # torch, CuPy, Numba, PyCUDA, Triton, NVML
        ["AcceleratorError", "CUDARuntimeError", "CudaAPIError", "CUDADriverError"],
        "gpu",
    ),
    **dict.fromkeys(
        ["DistBackendError", "DistQueueEmptyError", "NcclError", "DistError"], "collective"
    ),
    **dict.fromkeys(
        [
            *("DistNetworkError", "DistStoreError", "RendezvousError", "RendezvousTimeoutError"),
            *("RendezvousConnectionError", "RendezvousClosedError", "RendezvousStateError"),
            *("RendezvousGracefulExitError", "EtcdException", "EtcdConnectionFailed", "gaierror"),
        ],
        "rendezvous",
    ),
    **dict.fromkeys(
        [
            # argparse, configparser, absl, click, tyro, jsonargparse, HfArgumentParser
            *("ArgumentError", "ArgumentTypeError", "NoSectionError", "NoOptionError"),
            *("DuplicateOptionError", "MissingSectionHeaderError", "UnrecognizedFlagError"),
            *("UnparsedFlagAccessError", "IllegalFlagValueError", "UsageError", "BadParameter"),
            *("MissingParameter", "NoSuchOption", "ArgumentParsingError", "ParserError"),
            # Hydra, OmegaConf, pydantic, marshmallow, jsonschema, PyYAML, tomllib
            *("HydraException", "MissingConfigException", "ConfigCompositionException"),
            *("OverrideParseException", "InstantiationException", "ConfigAttributeError"),
            *("ConfigKeyError", "ConfigTypeError", "ConfigValueError", "MissingMandatoryValue"),
            *("InterpolationKeyError", "InterpolationResolutionError", "ValidationError"),
            *("UnsupportedInterpolationType", "PydanticUserError", "SchemaError"),
            *("ScannerError", "ComposerError", "ConstructorError", "YAMLError", "TOMLDecodeError"),
            *("PydanticSchemaGenerationError", "MisconfigurationException", "DeepSpeedConfigError"),
            # huggingface_hub, transformers
            *("HFValidationError", "GatedRepoError", "RepositoryNotFoundError"),
            *("RevisionNotFoundError", "EntryNotFoundError", "LocalTokenNotFoundError"),
            *("StrictDataclassFieldValidationError", "StrictDataclassClassValidationError"),
            # botocore, google.auth
            *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"),
            *("DefaultCredentialsError", "NoRegionError", "NoSuchBucket"),
            # torch.compile and Triton, einops
            *("CompilationError", "InductorError", "BackendCompilerFailed", "Unsupported"),
            *("TorchRuntimeError", "UserError", "UncapturedHigherOrderOpError", "EinopsError"),
        ],
        "settings",
    ),
    **dict.fromkeys(
        [
            *("JSONDecodeError", "UnpicklingError", "PickleError", "BadZipFile", "BadGzipFile"),
            *("ReadError", "LZMAError", "ZstdError", "HeaderError", "InvalidHeaderError"),
        ],
        "format",
    ),
    **dict.fromkeys(
        [
            *("CheckpointException", "CheckpointingException", "SafetensorError"),
            *("SafetensorsError", "CheckpointError", "CheckpointNotFoundError"),
        ],
        "checkpoint",
    ),
    **dict.fromkeys(
        [
            # Pillow, Arrow, datasets, pandas, TensorFlow, h5py, lmdb, webdataset, librosa, decord, PyAV
            *("UnidentifiedImageError", "DecompressionBombError", "ArrowInvalid", "ArrowIOError"),
            *("ArrowTypeError", "ArrowNotImplementedError", "ArrowCapacityError"),
            *("DatasetGenerationError", "DatasetNotFoundError", "DataFilesNotFoundError"),
            *("NonMatchingSplitsSizesError", "NonMatchingChecksumError", "CastError"),
            *("EmptyDataError", "DataLossError", "CorruptedError", "PageNotFoundError"),
            *("DECORDError", "InvalidDataError", "NoBackendError", "LibsndfileError"),
            *("StreamNotFoundError", "DatasetError", "ManualDownloadError"),
        ],
        "data",
    ),
    **dict.fromkeys(
        [
            # requests, urllib3, httpx, aiohttp, botocore, huggingface_hub, fsspec, gRPC, Redis
            *("MaxRetryError", "NewConnectionError", "ConnectError", "ProxyError", "SSLError"),
            *("HTTPError", "HTTPStatusError", "HfHubHTTPError", "ClientConnectorError"),
            *("ClientError", "EndpointConnectionError", "ConnectionClosedError", "URLError"),
            *("ChunkedEncodingError", "IncompleteRead", "RemoteDisconnected", "ProtocolError"),
            *("RemoteProtocolError", "ServiceUnavailable", "OfflineModeIsEnabled"),
            *("LocalEntryNotFoundError", "TransientError", "InternalServerError", "RpcError"),
        ],
        "connection",
    ),
    **dict.fromkeys(
        [
            *("ReadTimeout", "ReadTimeoutError", "ConnectTimeout", "ConnectTimeoutError"),
            *("TimeoutExpired", "GetTimeoutError", "ServerTimeoutError", "timeout", "Empty"),
            *("DeadlineExceeded", "PoolTimeout", "WriteTimeout"),
        ],
        "timeout",
    ),
    **dict.fromkeys(["NanLossDuringTrainingError", "NaNError"], "not-finite"),
    **dict.fromkeys(["error", "LockError", "UnsupportedOperation"], "os"),
    **dict.fromkeys(["LinAlgError"], "value"),
    **dict.fromkeys(["ClientConnectionResetError", "ServerDisconnectedError"], "peer"),
}
# Module and class, where the class alone may be of several libraries.
_QUALIFIED: dict[str, Family] = {
    "zlib.error": "format",
    "struct.error": "format",
    "lzma.LZMAError": "format",
    "socket.gaierror": "rendezvous",
    "socket.timeout": "timeout",
    "queue.Empty": "timeout",
    "_queue.Empty": "timeout",
    "lmdb.Error": "data",
    "yaml.parser.ParserError": "settings",
    "pandas.errors.ParserError": "data",
    "datasets.exceptions.DatasetGenerationError": "data",
    "std::bad_alloc": "memory",
    "c10::DistBackendError": "collective",
    "c10::OutOfMemoryError": "gpu-memory",
}
# Words in the name of a class that no table has; the first that is in it counts.
_WORDS: tuple[tuple[tuple[str, ...], Family], ...] = (
    (("outofmemory", "oomerror", "memoryerror"), "memory"),
    (("timeout", "timedout", "deadline"), "timeout"),
    (("checkpoint", "ckpt", "safetensor", "statedict"), "checkpoint"),
    (("config", "setting", "argument", "option", "validation", "schema", "usage"), "settings"),
    (("credential", "notauthorized", "unauthorized", "forbidden"), "settings"),
    (("dataset", "dataload", "dataerror", "tokeni", "sample", "shard", "record"), "data"),
    (("corrupt", "decode", "parse", "truncated", "checksum", "malformed"), "format"),
    (("nanerror", "notfinite", "nonfinite", "nanloss", "diverg"), "not-finite"),
    (("connect", "network", "http", "unavailable", "unreachable"), "connection"),
    (("rendezvous",), "rendezvous"),
    (("nccl", "collective"), "collective"),
    (("filenotfound", "nosuchfile", "missingfile"), "missing"),
    (("permission", "accessdenied"), "permission"),
    (("storage", "filesystem", "quota"), "storage"),
    (("keyerror", "indexerror", "lookup"), "lookup"),
    (("import", "dependency"), "import"),
)


def family_of(raised: Raised) -> Family:
    """Return the family of an exception: its errno decides before its class."""
    found = _errno_family(raised)
    if found is not None:
        return found
    # Ray: RayTaskError(ValueError).
    name = raised.name.partition("(")[2].rstrip(")") or raised.name
    return _class_family(name)


def _errno_family(raised: Raised) -> Family | None:
    number = _ERRNO.search(raised.message)
    if number is not None:
        return _ERRNOS.get(int(number[1] or number[2]))
    first = raised.message.partition("\n")[0]
    return next((family for text, family in _ERRNO_TEXTS if text in first), None)


def _class_family(name: str) -> Family:
    if name in _QUALIFIED:
        return _QUALIFIED[name]
    base = name.rpartition(".")[2].rpartition("::")[2]
    if base in _CLASSES:
        # torch.OutOfMemoryError is of a GPU; that of others, of the host.
        return _CLASSES[base]
    own = _builtin_family(base)
    if own is not None:
        return own
    lowered = base.lower()
    for words, family in _WORDS:
        if any(word in lowered for word in words):
            return family
    # Torn lines of several writers: "ValueErrorValueError".
    for known, family in _BUILTINS:
        if known != "OSError" and known in base:
            return family
    return "other"


def _builtin_family(name: str) -> Family | None:
    known = getattr(builtins, name, None)
    if not isinstance(known, type) or not issubclass(known, BaseException):
        return None
    for base, family in _BUILTINS:
        if issubclass(known, getattr(builtins, base)):
            return family
    return None
