"""Catalogues of accelerators and collectives: their files, spot facts of each, and makers whose source is in the tree."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tools.catalogues.accelerators import monitors, statuses, xids
from tools.catalogues.collectives import aws_ofi_nccl, nccl
from tools.catalogues.native import texts
from tools.catalogues.native.call_sites import call_sites
from tools.catalogues.rows import FOLDER, Row, check

# Rows of level error that a catalogue has at least.
LEAST_ERRORS = {
    "amd-smi": 10,
    "amdgpu": 1200,
    "aws-ofi-nccl": 250,
    "cuda": 350,
    "cuda-libraries": 130,
    "dcgm": 50,
    "gloo": 140,
    "hip": 110,
    "hsa": 55,
    "libfabric": 1300,
    "nccl": 470,
    "nccl-wheels": 280,
    "nvidia-driver": 300,
    "nvidia-fabric-manager": 7,
    "nvidia-sxid": 150,
    "nvidia-xid": 140,
    "nvml": 40,
    "rccl": 215,
    "rdma-core": 100,
    "rocm-smi": 10,
    "rocr": 120,
    "torch-c10d": 350,
    "torch-cuda": 400,
    "ucx": 700,
    "ucx-wheels": 130,
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a catalogue, without its header."""
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def row_of(name: str, part: str) -> dict[str, Any]:
    """Return the shortest row whose format has a part."""
    found = [row for row in rows_of(name) if part in row["format"]]
    assert found, f"{name} has no {part!r}"
    return min(found, key=lambda row: (len(row["format"]), row["format"]))


@pytest.mark.parametrize("name", LEAST_ERRORS)
def test_a_catalogue_is_valid(name: str) -> None:
    """Each row names a known fault, level, layer and scope; only errors have a class; the header says what was read."""
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    assert header["made"]
    assert header["source"]
    assert header["program"].startswith("tools.catalogues.")
    for line in lines[1:]:
        fields = json.loads(line)
        fields["requires"] = tuple(fields.get("requires", ()))
        check(row := Row(**fields))
        assert not row.fault or row.level == "error"


@pytest.mark.parametrize(("name", "least"), LEAST_ERRORS.items())
def test_a_catalogue_has_what_its_emitter_can_write(name: str, least: int) -> None:
    """As many errors as the emitter's sources have."""
    assert Counter(row["level"] for row in rows_of(name))["error"] >= least


@pytest.mark.parametrize(
    ("name", "part", "fault"),
    [
        # CUDA's programming guide and the comments of driver_types.h.
        ("cuda", "cudaErrorIllegalAddress", "cuda_illegal_access"),
        ("cuda", "an illegal memory access was encountered", "cuda_illegal_access"),
        ("cuda", "CUDA error: out of memory", "cuda_oom"),
        ("cuda", "uncorrectable ECC error encountered", "gpu_ecc"),
        ("cuda", "no CUDA-capable device is detected", "gpu_lost"),
        ("cuda", "system not yet initialized", "nvlink_error"),
        ("cuda", "no kernel image is available", "config_error"),
        ("cuda", "CUDA_ERROR_NVLINK_UNCORRECTABLE", "nvlink_error"),
        ("cuda-libraries", "CUBLAS_STATUS_ALLOC_FAILED", "cuda_oom"),
        ("cuda-libraries", "CUBLAS_STATUS_EXECUTION_FAILED", "cuda_illegal_access"),
        ("cuda-libraries", "CUDNN_STATUS_BAD_PARAM", "config_error"),
        ("cuda-libraries", "NVRTC_ERROR_COMPILATION", "config_error"),
        ("hip", "hipErrorNoDevice", "gpu_lost"),
        ("hip", "HIP error: out of memory", "cuda_oom"),
        ("hsa", "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION", "cuda_illegal_access"),
        ("rocr", "Memory access fault by GPU", "cuda_illegal_access"),
        ("amd-smi", "AMDSMI_STATUS_DRIVER_NOT_LOADED", "gpu_lost"),
        ("nvml", "NVML_ERROR_GPU_IS_LOST", "gpu_lost"),
        ("nvml", "Driver/library version mismatch", "config_error"),
        ("dcgm", "volatile double-bit ECC", "gpu_ecc"),
        ("dcgm", "NvLink link %d is currently down", "nvlink_error"),
        ("nvidia-fabric-manager", "detected NVSwitch fatal error", "nvlink_error"),
        ("nvidia-sxid", "20034, Fatal", "nvlink_error"),
        ("nvidia-xid", "Xid (%s): 79,", "gpu_lost"),
        ("nvidia-xid", "Xid (%s): 48,", "gpu_ecc"),
        ("nvidia-xid", "Xid (%s): 60,", "gpu_xid_other"),
        ("nvidia-xid", "Xid (%s): 61,", "gpu_xid_other"),
        ("nvidia-xid", "Xid (%s): 74,", "nvlink_error"),
        ("nvidia-xid", "Xid (%s): 119,", "gpu_xid_other"),
        ("amdgpu", "poison is consumed by client", "gpu_xid_other"),
        ("amdgpu", "Saved bad pages", "gpu_ecc"),
        ("amdgpu", "GPU reset(%d) failed", "gpu_xid_other"),
        ("nccl", "Connection closed by remote peer", "nccl_network"),
        ("nccl", "Got completion from peer", "nccl_network"),
        ("nccl", "async fatal event on QP", "nccl_network"),
        ("nccl", "no socket interface found", "config_error"),
        ("nccl", "failed to create shared memory file", "config_error"),
        ("nccl", "Could not open XML graph file", "config_error"),
        ("nccl", "P2P is disabled between NVLINK connected GPUs", "nvlink_error"),
        ("nccl", "remote process exited or there was a network error", "nccl_network"),
        ("nccl", "invalid usage", "config_error"),
        ("nccl-wheels", "NET/IB : Got completion from peer %s with status=%d", "nccl_network"),
        ("nccl-wheels", "Call to ibv_modify_qp failed with error", "nccl_network"),
        ("nccl-wheels", "Call to ibv_reg_mr failed with error", "config_error"),
        ("nccl-wheels", "NCCL_IB_PKEY_VALUE=0x%x not found", "config_error"),
        ("torch-c10d", "ncclRemoteError: A call failed", "nccl_network"),
        ("aws-ofi-nccl", "Request %p completed with error", "nccl_network"),
        ("aws-ofi-nccl", "EFA provider requires at least libfabric", "config_error"),
        ("rccl", "Net : Connection closed by remote peer", "nccl_network"),
        ("ucx", "Failed to allocate memory for tag matching list", "host_oom"),
        ("ucx", "Unsupported callback flag", "config_error"),
        ("ucx-wheels", "failed to allocate memory for sys_dev_bdf_name", "host_oom"),
        ("ucx-wheels", "invalid port '%s'", "config_error"),
        ("libfabric", "Failed to dlopen libcuda.so.1", "config_error"),
        ("libfabric", "efa_rdm_pke_write failed", "nccl_network"),
        ("gloo", "Connection closed by peer", "nccl_network"),
        ("gloo", "Timed out waiting {}ms for recv operation", "nccl_timeout"),
        ("torch-c10d", "Watchdog caught collective operation timeout", "nccl_timeout"),
        ("torch-c10d", "The client socket has timed out after", "rendezvous"),
        ("torch-c10d", "Float8 dtypes are not", "config_error"),
        ("torch-cuda", "CUDA out of memory", "cuda_oom"),
    ],
)
def test_a_row_has_the_class_that_its_documents_give(name: str, part: str, fault: str) -> None:
    """Of each emitter a handful."""
    row = row_of(name, part)
    assert (row["level"], row["fault"]) == ("error", fault)


@pytest.mark.parametrize(
    ("name", "part", "level"),
    [
        ("nccl", "NCCL_SOCKET_NTHREADS is greater than the maximum", "warning"),
        ("nccl", "Got non-fatal async event", "warning"),
        ("nccl", "NET/IB : Using", "info"),
        ("nccl-wheels", "Call to ibv_destroy_qp failed", "warning"),
        ("amd-smi", "AMDSMI_STATUS_NOT_SUPPORTED", "warning"),
        ("nvidia-xid", "Xid (%s): 45,", "info"),
        ("nvidia-xid", "Xid (%s): 63,", "warning"),
        ("nvidia-xid", "Xid (%s): 154,", "info"),
        ("nvidia-sxid", "24007, Non-fatal", "warning"),
        ("nvidia-fabric-manager", "non-fatal error", "warning"),
        ("dcgm", "single-bit ECC", "warning"),
        ("amdgpu", "GPU reset(%d) succeeded", "info"),
        ("ucx-wheels", "unused environment variable%s: %s", "warning"),
        ("torch-c10d", "The server socket has started to listen", "info"),
        ("cuda", "cudaErrorNotReady", "warning"),
    ],
)
def test_what_no_run_ends_of_is_below_an_error(name: str, part: str, level: str) -> None:
    """Levels decide what is harmless."""
    row = row_of(name, part)
    assert (row["level"], row["fault"]) == (level, "")


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("nvidia-xid", xids),
        ("nvml", monitors),
        ("dcgm", monitors),
        ("nvidia-fabric-manager", monitors),
        ("aws-ofi-nccl", aws_ofi_nccl),
    ],
)
def test_a_maker_makes_the_same_file_again(name: str, maker: Any, tmp_path: Path) -> None:
    """Where the source is a table of facts in the tree, the file is what its program writes."""
    maker.make(name, folder=tmp_path)
    assert (tmp_path / f"{name}.jsonl").read_text() == (FOLDER / f"{name}.jsonl").read_text()


def test_xids_are_all_there() -> None:
    """One row for each number, and a class of its own where NVIDIA's resolution misleads."""
    facts = xids.facts()
    assert sorted(facts) == list(range(1, 173))
    assert facts[48].name == "ROBUST_CHANNEL_GPU_ECC_DBE"
    assert xids.xid_class(200) == ("error", "gpu_xid_other", "not in NVIDIA's table")


def test_a_warning_is_an_error_where_its_code_gives_up() -> None:
    """What follows in the same block decides, not what follows after it."""
    source = """
    static int f(void) {
      if (a) { WARN("first %d", x); return ncclSystemError; }
      if (b) { WARN("second (%s)", "}"); }
      return ncclSystemError;
    }
    """
    first, second = call_sites(source, nccl._CALLS)
    assert (first.gives_up, second.gives_up) == (True, False)
    assert first.arguments == ('"first %d"', "x")


def test_texts_are_joined_with_fields() -> None:
    """Literals stay, braces of theirs are doubled, and each value between them is a field."""
    parts = ['"rank "', "rank_", '" said {"', 'c10::str("a", b)', 'std::string("c") + d']
    assert texts.joined(parts) == "rank {} said {{a{}c{}"
    assert texts.streamed(' << "at " << (x << 2) << "!"; y << "no";', 0) == "at {}!"


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ("cudaErrorLaunchOutOfResources", "config_error"),
        ("cudaErrorECCUncorrectable", "gpu_ecc"),
        ("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "host_oom"),
        ("CUSPARSE_STATUS_NOT_INITIALIZED", "cuda_oom"),
        ("CUDA_ERROR_NOT_INITIALIZED", "config_error"),
        ("CUBLAS_STATUS_INTERNAL_ERROR", ""),
    ],
)
def test_a_status_is_classed_by_its_name(status: str, fault: str) -> None:
    """In one table for all libraries."""
    assert statuses.status_fault(status)[:2] == ("error", fault)
