"""Libraries of training jobs, with the directories of each that matter to one, and what these are about."""

from dataclasses import KW_ONLY, dataclass

from tools.catalogues.python.classes import Area


@dataclass(frozen=True, slots=True)
class Library:
    """A catalogue's package on the index; `parts` are glob patterns of its files, from its top; `without` leaves some out."""

    name: str
    requirement: str
    parts: tuple[str, ...]
    _: KW_ONLY
    area: Area = "settings"
    without: tuple[str, ...] = ()
    # Every file is about `area`, whatever its name.
    is_one_area: bool = False


def _all(name: str, requirement: str, folder: str, area: Area = "settings") -> Library:
    return Library(name, requirement, (f"{folder}/**/*.py",), area=area)


def _one(name: str, requirement: str, area: Area, *parts: str) -> Library:
    return Library(name, requirement, parts, area=area, is_one_area=True)


def _torch(name: str, area: Area, *parts: str, without: tuple[str, ...] = ()) -> Library:
    found = tuple(f"torch/{part}" for part in parts)
    return Library(f"torch_{name}", "torch", found, area=area, without=without)


LIBRARIES: tuple[Library, ...] = (
    _torch(
        "distributed",
        "distributed",
        "distributed/**/*.py",
        "nn/parallel/*.py",
        without=("checkpoint/", "elastic/", "fsdp/", "tensor/", "_tools/", "_pycute", "benchmarks"),
    ),
    _torch(
        "elastic",
        "rendezvous",
        "distributed/elastic/**/*.py",
        "distributed/launch*.py",
        "distributed/run.py",
    ),
    _torch("distributed_checkpoint", "checkpoint", "distributed/checkpoint/**/*.py"),
    _torch("sharding", "distributed", "distributed/fsdp/**/*.py", "distributed/tensor/**/*.py"),
    _torch("serialization", "checkpoint", "serialization.py", "storage.py", "_weights_only_*.py"),
    _torch("data", "data", "utils/data/**/*.py", "_utils.py"),
    _torch(
        "nn",
        "settings",
        *("nn/*.py", "nn/modules/*.py", "nn/utils/*.py", "nn/attention/*.py", "optim/*.py"),
        *("amp/*.py", "functional.py", "_tensor.py", "random.py", "utils/checkpoint.py"),
        *("autograd/*.py", "hub.py", "utils/tensorboard/*.py", "_meta_registrations.py"),
        without=("_reduction",),
    ),
    _torch(
        "cuda",
        "runtime",
        *("cuda/*.py", "backends/**/*.py", "multiprocessing/*.py", "accelerator/*.py"),
        *("xpu/*.py", "__init__.py", "utils/cpp_extension.py", "utils/_triton.py"),
    ),
    _torch(
        "compile",
        "runtime",
        *("_dynamo/exc.py", "_dynamo/convert_frame.py", "_dynamo/output_graph.py"),
        *("_inductor/async_compile.py", "_inductor/codecache.py", "_inductor/compile_fx.py"),
        *("_inductor/exc.py", "_inductor/cpp_builder.py", "_inductor/cudagraph_trees.py"),
        *("_inductor/runtime/*.py", "_inductor/compile_worker/*.py", "_functorch/aot_autograd.py"),
    ),
    Library(
        "deepspeed",
        "deepspeed",
        ("deepspeed/**/*.py",),
        without=(
            "inference/",
            "autotuning/",
            "model_implementations/",
            "compression/",
            "profiling/",
        ),
    ),
    Library(
        "megatron",
        "megatron-core",
        ("megatron/**/*.py",),
        without=("inference/", "export/", "tokenizers/vision", "post_training/"),
    ),
    Library(
        "transformers",
        "transformers",
        ("transformers/*.py", "transformers/*/*.py", "transformers/models/auto/*.py"),
        without=("/cli/", "/commands/", "/pipelines/", "/quantizers/", "/agents/", "/generation/"),
    ),
    _all("accelerate", "accelerate", "accelerate"),
    Library("lightning", "lightning", ("lightning/**/*.py",), without=("demos/", "/serve/")),
    Library("trl", "trl", ("trl/trainer/*.py", "trl/*.py", "trl/data_utils.py", "trl/models/*.py")),
    Library(
        "peft",
        "peft",
        ("peft/*.py", "peft/utils/*.py", "peft/tuners/*.py", "peft/tuners/lora/*.py"),
    ),
    _one("datasets", "datasets", "data", "datasets/**/*.py"),
    _one("webdataset", "webdataset", "data", "webdataset/**/*.py"),
    _all("streaming", "mosaicml-streaming", "streaming", "data"),
    _all("litdata", "litdata", "litdata", "data"),
    _one("h5py", "h5py", "data", "h5py/*.py", "h5py/_hl/*.py"),
    _one("pyarrow", "pyarrow", "data", "pyarrow/*.py", "pyarrow/*.pyx", "pyarrow/parquet/*.py"),
    _one("zarr", "zarr", "data", "zarr/**/*.py"),
    _one("torchdata", "torchdata", "data", "torchdata/**/*.py"),
    _one("grain", "grain", "data", "grain/**/*.py"),
    _one("pillow", "pillow", "data", "PIL/*.py"),
    Library(
        "numpy",
        "numpy",
        ("numpy/lib/*.py", "numpy/_core/*.py", "numpy/random/*.py"),
        area="runtime",
    ),
    Library(
        "pandas",
        "pandas",
        ("pandas/io/*.py", "pandas/io/parsers/*.py", "pandas/io/json/*.py", "pandas/errors/*.py"),
        area="data",
        is_one_area=True,
    ),
    _one(
        "torchvision_data",
        "torchvision",
        "data",
        "torchvision/datasets/*.py",
        "torchvision/io/*.py",
    ),
    Library("torchvision", "torchvision", ("torchvision/transforms/*.py", "torchvision/ops/*.py")),
    Library("timm", "timm", ("timm/**/*.py",), without=("timm/models/",)),
    Library(
        "huggingface_hub",
        "huggingface_hub",
        (
            *("huggingface_hub/file_download.py", "huggingface_hub/_snapshot_download.py"),
            *("huggingface_hub/hf_*.py", "huggingface_hub/errors.py", "huggingface_hub/lfs.py"),
            *("huggingface_hub/_commit_api.py", "huggingface_hub/_upload*.py"),
            *("huggingface_hub/_login.py", "huggingface_hub/utils/_[aehpv]*.py"),
            *("huggingface_hub/serialization/*.py", "huggingface_hub/*mixin.py"),
        ),
        area="store",
        is_one_area=True,
    ),
    _one("fsspec", "fsspec", "store", "fsspec/**/*.py"),
    _one("s3fs", "s3fs", "store", "s3fs/*.py"),
    _one("gcsfs", "gcsfs", "store", "gcsfs/*.py"),
    _one("adlfs", "adlfs", "store", "adlfs/*.py"),
    _one("boto3", "boto3", "store", "boto3/**/*.py"),
    _one("botocore", "botocore", "store", "botocore/*.py"),
    _one("s3transfer", "s3transfer", "store", "s3transfer/*.py"),
    _one("google_storage", "google-cloud-storage", "store", "google/cloud/storage/*.py"),
    _one("google_resumable_media", "google-resumable-media", "store", "google/**/*.py"),
    _one("google_api_core", "google-api-core", "store", "google/**/*.py"),
    _one(
        "azure_blob",
        "azure-storage-blob",
        "store",
        "azure/storage/blob/*.py",
        "azure/storage/blob/_shared/*.py",
    ),
    _one("azure_core", "azure-core", "store", "azure/core/**/*.py"),
    _one(
        "aiohttp",
        "aiohttp",
        "store",
        "aiohttp/client*.py",
        "aiohttp/connector.py",
        "aiohttp/http_*.py",
    ),
    _one("requests", "requests", "store", "requests/*.py"),
    _one("urllib3", "urllib3", "store", "urllib3/**/*.py"),
    Library("torchtitan", "torchtitan", ("torchtitan/**/*.py",), without=("experiments/",)),
    Library(
        "torchtune", "torchtune", ("torchtune/**/*.py",), without=("torchtune/_cli", "generation")
    ),
    Library("composer", "mosaicml", ("composer/**/*.py",), without=("/cli/",)),
    Library(
        "nemo",
        "nemo-toolkit",
        ("nemo/utils/**/*.py", "nemo/core/**/*.py", "nemo/collections/common/data/**/*.py"),
    ),
    Library(
        "jax",
        "jax",
        (
            *("jax/_src/distributed.py", "jax/_src/xla_bridge.py", "jax/_src/compil*.py"),
            *("jax/_src/clusters/*.py", "jax/_src/errors.py", "jax/_src/dispatch.py"),
            *("jax/_src/array.py", "jax/_src/sharding*.py", "jax/_src/mesh*.py", "jax/_src/api.py"),
            *("jax/_src/pjit.py", "jax/_src/checkify.py", "jax/_src/config.py"),
            *("jax/experimental/multihost_utils.py", "jax/experimental/array_serialization/*.py"),
        ),
        area="runtime",
    ),
    _all("flax", "flax", "flax"),
    Library(
        "orbax",
        "orbax-checkpoint",
        ("orbax/checkpoint/*.py", "orbax/checkpoint/_src/**/*.py"),
        area="checkpoint",
        is_one_area=True,
    ),
    _one("torchsnapshot", "torchsnapshot", "checkpoint", "torchsnapshot/**/*.py"),
    Library(
        "resiliency_ext",
        "nvidia-resiliency-ext",
        ("nvidia_resiliency_ext/**/*.py",),
        area="distributed",
        without=("_torch_elastic_compat",),
    ),
    _all("bitsandbytes", "bitsandbytes", "bitsandbytes"),
    _one(
        "wandb",
        "wandb",
        "observer",
        "wandb/sdk/*.py",
        "wandb/sdk/lib/*.py",
        "wandb/errors/*.py",
        "wandb/*.py",
    ),
    _one(
        "mlflow",
        "mlflow-skinny",
        "observer",
        "mlflow/tracking/**/*.py",
        "mlflow/utils/*.py",
        "mlflow/*.py",
    ),
    _one(
        "tensorboard",
        "tensorboard",
        "observer",
        "tensorboard/summary/**/*.py",
        "tensorboard/compat/**/*.py",
    ),
    _all("hydra", "hydra-core", "hydra"),
    _all("omegaconf", "omegaconf", "omegaconf"),
    _all("pyyaml", "pyyaml", "yaml"),
    Library("pydantic", "pydantic", ("pydantic/*.py", "pydantic/_internal/*.py")),
)
