"""Exception classes: the family of exceptions that libraries define, from the bases in their sources. A table only."""

from typing import Literal

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

# Class without its module -> family; from the sources of each library.
CLASSES: dict[str, Family] = {
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
            # vLLM: its engine, a process of its own, has ended
            *("EngineDeadError", "EngineGenerateError", "AsyncEngineDeadError"),
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
            *("FailOnRecompileLimitHit", "RecompileLimitExceeded", "OutOfResources"),
            # torchtune, DeepSpeed's builder of extensions, setuptools
            *("InstantiationError", "CUDAMismatchException", "DistributionNotFound"),
            *("VersionConflict", "MissingCUDAException"),
            # Ray
            *("RuntimeEnvSetupError", "ActorUnschedulableError", "TaskUnschedulableError"),
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
    **dict.fromkeys(["PicklingError"], "code"),
    # importlib.metadata
    **dict.fromkeys(["PackageNotFoundError"], "import"),
    **dict.fromkeys(["ClientConnectionResetError", "ServerDisconnectedError"], "peer"),
}
# Module and class, where the class alone may be of several libraries.
QUALIFIED: dict[str, Family] = {
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
    "ray.exceptions.OutOfMemoryError": "memory",
    "ray.exceptions.ObjectStoreFullError": "memory",
    "ray.exceptions.OutOfDiskError": "storage",
    "ray.exceptions.RuntimeEnvSetupError": "settings",
    "ray.exceptions.ActorUnschedulableError": "settings",
    "ray.exceptions.TaskUnschedulableError": "settings",
    # What was waited for, elsewhere, shows why.
    "ray.exceptions.GetTimeoutError": "launcher",
    # The recomputation of activations.
    "torch.utils.checkpoint.CheckpointError": "code",
}
# Of classes that no table has: what all exceptions of a module are about. The longest beginning decides.
MODULES: dict[str, Family] = {
    "jax.errors.": "code",
    "jax._src.errors.": "code",
    "flax.errors.": "code",
    "torch._dynamo.": "settings",
    "torch._inductor.": "settings",
    "torch.fx.": "settings",
    "torch.export.": "settings",
    "triton.": "settings",
    "hydra.": "settings",
    "omegaconf.": "settings",
    "pydantic_core.": "settings",
    "torchtune.config.": "settings",
    "datasets.exceptions.": "data",
    "webdataset.": "data",
    "streaming.": "data",
    "lmdb.": "data",
    "PIL.": "data",
    "av.error.": "data",
    "safetensors_rust.": "checkpoint",
    "orbax.": "checkpoint",
    "ray.exceptions.": "launcher",
    "concurrent.futures.process.": "launcher",
    "vllm.": "other",
}
# Classes whose message begins with a status of absl: XLA, JAX, torch_xla, gRPC.
STATUS_CLASSES = frozenset(
    ["XlaRuntimeError", "JaxRuntimeError", "StatusNotOk", "BadStatusOrAccess", "RuntimeError"]
)
# absl/status/status.h; those that say nothing are left out.
STATUSES: dict[str, Family] = {
    "INVALID_ARGUMENT": "code",
    "OUT_OF_RANGE": "code",
    "UNIMPLEMENTED": "code",
    "NOT_FOUND": "missing",
    "ALREADY_EXISTS": "permission",
    "PERMISSION_DENIED": "permission",
    "UNAUTHENTICATED": "settings",
    "RESOURCE_EXHAUSTED": "gpu-memory",
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "connection",
    "DATA_LOSS": "format",
}
# tensorflow/python/framework/errors_impl.py: one class for each of these statuses.
STATUS_ERRORS: dict[str, Family] = {
    "InvalidArgumentError": "code",
    "OutOfRangeError": "data",
    "UnimplementedError": "code",
    "NotFoundError": "missing",
    "AlreadyExistsError": "permission",
    "PermissionDeniedError": "permission",
    "UnauthenticatedError": "settings",
    "ResourceExhaustedError": "gpu-memory",
    "DeadlineExceededError": "timeout",
    "UnavailableError": "connection",
    "DataLossError": "data",
    "AbortedError": "peer",
    "CancelledError": "exit",
}
