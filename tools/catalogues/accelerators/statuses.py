"""Statuses of CUDA, HIP, HSA and the libraries on them: enumerators of headers, and the texts that the runtimes return for them."""

import ctypes
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.catalogues.c_source.tokens import without_comments
from tools.catalogues.native.archives import debian, packed_wheel
from tools.catalogues.native.classes import letters, row, rules
from tools.catalogues.rows import Header, Level, Row, write

NAMES = ("cuda", "cuda-libraries", "hip", "hsa", "rocm-smi")
_MADE = "2026-11-26"
_EMITTERS = {
    "cuda": "CUDA",
    "cuda-libraries": "CUDA libraries",
    "hip": "HIP",
    "hsa": "HSA runtime",
    "rocm-smi": "ROCm SMI",
}
# Over names in capitals with underscores; the first that matches decides.
_FAULTS = rules(
    (r"ECC", "gpu_ecc", ""),
    (r"NVLINK", "nvlink_error", ""),
    (r"SYSTEM_NOT_READY", "nvlink_error", "the fabric manager is not ready"),
    (r"HOST_ALLOC", "host_oom", ""),
    (
        r"MEMORY_ALLOCATION|OUT_OF_MEMORY|ALLOC(?:ATION)?_FAILED|_ALLOC_|RUNTIME_MEMORY",
        "cuda_oom",
        "",
    ),
    (r"LAUNCH_OUT_OF_RESOURCES|LIMIT", "config_error", "more than a launch may take"),
    (r"HSA_STATUS_ERROR_OUT_OF_RESOURCES", "cuda_oom", "the runtime gets no memory for its queues"),
    (
        r"^CU(?:BLAS|DNN|SOLVER|SPARSE|RAND)_\w*NOT_INITIALIZED$",
        "cuda_oom",
        "a handle gets no memory, as often as not",
    ),
    (
        r"ILLEGAL_(?:ADDRESS|INSTRUCTION)|ASSERT|LAUNCH_FAIL|MISALIGNED|INVALID_ADDRESS_SPACE|INVALID_PC|HARDWARE_STACK|"
        r"LAUNCH_TIME|TENSOR_MEMORY|EXECUTION_FAILED|EXEC_FAILED|PRIOR_LAUNCH|APERTURE|MEMORY_FAULT|"
        r"LAUNCH_FAILURE|MAPPING_ERROR",
        "cuda_illegal_access",
        "",
    ),
    (r"NO_DEVICE|DEVICES?_UNAVAILABLE|DEVICE_LOST|NO_AGENT", "gpu_lost", ""),
    (
        r"UNKNOWN|EXTERNAL_DEVICE|CONTAINED|HARDWARE|STATUS_ERROR_EXCEPTION|ERROR_FATAL",
        "gpu_xid_other",
        "the device, as often as the program",
    ),
    (r"INTERNAL|OPERATING_SYSTEM|TIMEOUT|ERROR_GENERIC|STATUS_ERROR$|ERROR_TBD", "", ""),
    (r"(?:^|_)INVALID_VALUE$|InvalidValue$", "", "the frames show who passed it"),
    (r"MPS_|MPS[A-Z]", "config_error", "the MPS server, which jobs share"),
    (r".", "config_error", "a wrong call, or what is installed"),
)
_HARMLESS = re.compile(
    r"ERROR_NOT_READY$|UNLOADING|DEINITIALIZED|PROFILER|ALREADY|RUNTIME_IN_PROGRESS|CAPTURED_EVENT$|INFO_BREAK|CU_MASK_REDUCED|NO_DATA|NOT_FOUND$|RSMI_STATUS_NOT_|RSMI_STATUS_INSUFFICIENT"
)
_SUCCESS = re.compile(r"SUCCESS$|_SUCCESS_|STATUS_COMPLETE|_[CRDZ]2[CRDZ]$")
_ENUMERATOR = re.compile(r"^\s*(\w+)\s*=\s*(?:-?\d+|0x[0-9A-Fa-f]+)\s*,?", re.MULTILINE)
_CASE = re.compile(r"case\s+(\w+)\s*:\s*(?:\*?\w+\s*=|return)\s*((?:\"[^\"]*\"\s*)+);")
# Texts from so many letters on are known by themselves; chosen.
_FEW_LETTERS = 24


class _Library(NamedTuple):
    """A wheel, a header in it, and how its statuses are named."""

    requirement: str
    header: str
    prefix: str


_LIBRARIES = (
    _Library("nvidia-cublas-cu12", "cublas_api.h", "CUBLAS_STATUS_"),
    _Library("nvidia-cudnn-cu12", "cudnn_graph.h", "CUDNN_STATUS_"),
    _Library("nvidia-cusparse-cu12", "cusparse.h", "CUSPARSE_STATUS_"),
    _Library("nvidia-cuda-nvrtc-cu12", "nvrtc.h", "NVRTC_ERROR_"),
    _Library("nvidia-cusolver-cu12", "cusolver_common.h", "CUSOLVER_STATUS_"),
    _Library("nvidia-cufft-cu12", "cufft.h", "CUFFT_"),
    _Library("nvidia-curand-cu12", "curand.h", "CURAND_STATUS_"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    version, source, found = {
        "cuda": _cuda,
        "cuda-libraries": _libraries,
        "hip": _hip,
        "hsa": _hsa,
        "rocm-smi": _rocm_smi,
    }[name]()
    header = Header(
        _EMITTERS[name],
        version,
        made=_MADE,
        program=__name__,
        source=source,
        style="plain",
        layer="program",
        scope="rank",
    )
    return write(name, header, found)


def status_fault(name: str) -> tuple[Level, str, str]:
    """Return the level, the fault and the reason of a status by its enumerator's name."""
    capitals = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    if _HARMLESS.search(capitals):
        return "warning", "", ""
    rule = next(rule for rule in _FAULTS if rule.pattern.search(capitals))
    return "error", rule.fault, rule.why


def _cuda() -> tuple[str, str, list[Row]]:
    with packed_wheel("nvidia-cuda-runtime-cu12") as wheel:
        texts = _runtime_texts(wheel)
        driver = _enumerators(_member(wheel, "/cuda.h"), "CUDA_ERROR_")
        version = wheel.filename.split("-")[1] if wheel.filename else ""
    found = [
        one
        for name, text in texts
        for one in _rows_of("driver_types.h", name, text, ("CUDA", "NCCL"), _CUDA_PREFIXES)
    ]
    found += [one for name in driver for one in _rows_of("cuda.h", name, "", (), ())]
    return (
        version,
        "wheel nvidia-cuda-runtime-cu12: cudaGetErrorString of its libcudart, cuda.h",
        found,
    )


# How a short text is written by those that check the runtime.
_CUDA_PREFIXES = ("CUDA error: {}", "Cuda failure '{}'", "CUDA driver error: {}", "CUDA failure {}")
_HIP_PREFIXES = ("HIP error: {}", "hip failure '{}'")


def _runtime_texts(wheel: zipfile.ZipFile) -> list[tuple[str, str]]:
    """Return (name, text) of each error that the runtime knows, as its library returns them; no GPU is needed."""
    library = next(name for name in wheel.namelist() if "/libcudart.so" in name)
    with tempfile.TemporaryDirectory(prefix="stoker-catalogue-") as scratch:
        runtime = ctypes.CDLL(wheel.extract(library, scratch))
        for function in (runtime.cudaGetErrorName, runtime.cudaGetErrorString):
            function.restype = ctypes.c_char_p
        known = {
            runtime.cudaGetErrorName(code).decode(): runtime.cudaGetErrorString(code).decode()
            for code in range(1, 1200)
        }
    return sorted((name, text) for name, text in known.items() if name.startswith("cudaError"))


def _libraries() -> tuple[str, str, list[Row]]:
    found: list[Row] = []
    versions = []
    for library in _LIBRARIES:
        with packed_wheel(library.requirement) as wheel:
            names = _enumerators(_member(wheel, f"/{library.header}"), library.prefix)
            versions.append(Path(wheel.filename or "").name.split("-")[1])
        for name in names:
            found += _rows_of(library.header, name, "", (), ())
    source = ", ".join(f"{one.requirement}: {one.header}" for one in _LIBRARIES)
    return ", ".join(versions), f"wheels {source}", found


def _hip() -> tuple[str, str, list[Row]]:
    with debian("rocm-hipamd", "clr-rocm-*") as root:
        text = (root / "hipamd/src/hip_error.cpp").read_text(encoding="utf-8")
        version = root.name.removeprefix("clr-rocm-")
    found = [
        one
        for name, words in _cases(text)
        if name.startswith("hipError") and not words.startswith("hipError")
        for one in _rows_of("hip_error.cpp", name, words, ("HIP", "NCCL", "RCCL"), _HIP_PREFIXES)
    ]
    return version, "Debian source package rocm-hipamd: hipamd/src/hip_error.cpp", found


def _hsa() -> tuple[str, str, list[Row]]:
    with debian("rocr-runtime", "ROCm-ROCR-Runtime-*") as root:
        path = root / "runtime/hsa-runtime/core/runtime/hsa.cpp"
        text = path.read_text(encoding="utf-8")
    found: list[Row] = []
    for name, words in _cases(text):
        if name.startswith("HSA_STATUS_") and words.startswith(name):
            found += _rows_of("hsa.cpp", name, words.removeprefix(name).lstrip(": "), ("HSA",), ())
    return "6.4.3", "Debian source package rocr-runtime 6.4.3: hsa_status_string", found


def _rocm_smi() -> tuple[str, str, list[Row]]:
    with debian("rocm-smi-lib", "ROCm-rocm_smi_lib-*") as root:
        text = (root / "src/rocm_smi.cc").read_text(encoding="utf-8")
    found: list[Row] = []
    for name, words in _cases(text):
        if name.startswith("RSMI_STATUS_") and words.startswith(name):
            found += _rows_of("rocm_smi.cc", name, "", (), ())
    return "6.4.1", "Debian source package rocm-smi-lib 6.4.1: rsmi_status_string", found


def _rows_of(
    at: str, name: str, text: str, words: tuple[str, ...], prefixes: tuple[str, ...]
) -> Iterator[Row]:
    """Yield the rows of a status: its name, and its text with what stands before a short one."""
    if _SUCCESS.search(name) or name in ("hipSuccess", "cudaSuccess"):
        return
    level, fault, why = status_fault(name)
    yield row(at, name, level, fault, why=why)
    text = text.strip().rstrip(".")
    if letters(text, "plain") >= _FEW_LETTERS:
        yield row(at, text, level, fault, requires=() if len(text) > 40 else words, why=why)
    elif text:
        yield from (row(at, one.format(text), level, fault, why=why) for one in prefixes)


def _cases(text: str) -> Iterator[tuple[str, str]]:
    for name, literals in _CASE.findall(without_comments(text)):
        yield name, "".join(re.findall(r'"([^"]*)"', literals))


def _enumerators(text: str, prefix: str) -> list[str]:
    names = _ENUMERATOR.findall(without_comments(text))
    return sorted({name for name in names if name.startswith(prefix)})


def _member(wheel: zipfile.ZipFile, end: str) -> str:
    name = next(one for one in wheel.namelist() if one.endswith(end))
    return wheel.read(name).decode(errors="replace")
