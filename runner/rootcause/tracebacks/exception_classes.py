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
}
