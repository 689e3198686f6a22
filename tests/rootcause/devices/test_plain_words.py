"""Sentences about a device in plain words: what happened to one, and what is only spoken of."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

ABOVE, BELOW = "the job begins\n", "\nworkers were started\nplain text of a program\n"


def fault_of(line: str) -> str:
    """Return the fault of a log with this line in its middle; "" for a healthy one."""
    found = verdicts_of(f"{ABOVE}{line}{BELOW}")
    return found[0].cause.fault if found else ""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("RuntimeError: rank 7 has no device: GPU 5 dropped off the PCIe bus", "gpu_lost"),
        ("[ERROR] GPU count mismatch on node-12: expected=8 actual=7", "gpu_lost"),
        ("NVRM: None of the NVIDIA devices were initialized.", "gpu_lost"),
        ("NVRM: GPU 0000:3b:00.0: Failed to copy vbios to system memory.", "gpu_lost"),
        ("DBE detected on GPU 0000:3b:00, count=2", "gpu_ecc"),
        ("mtgpu 0000:8a:00.0: GDDR uncorrectable ECC error detected at address 0x1f", "gpu_ecc"),
        ("GPU 5: row remapping pending, a GPU reset is required", "gpu_ecc"),
        ('{"GPU":"3","Health":"unhealthy","Reason":"GPU_ECC_UNCORRECT_UMC count 2"}', "gpu_ecc"),
        ('{"msg":"inserted xid event","xid":62,"eventType":"Fatal"}', "gpu_xid_other"),
        ('{"msg":"inserted xid event","xid": 79,"eventType":"Fatal"}', "gpu_lost"),
        ("NVRM: GPU0 nvlink 5 is in error state", "nvlink_error"),
        ("TPU chip 2 thermal throttling detected", "thermal_power"),
        ("npu 3 temperature 105 over threshold, frequency reduced", "thermal_power"),
        ("GPU 0000:4E:00.0 throttling: reason HW_POWER_BRAKE_SLOWDOWN (asserted)", "thermal_power"),
        ("device 3 hang detected, please reset GCU", "gpu_xid_other"),
        (
            "syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
            "cuda_oom",
        ),
        ("im2col.cu:61] Check failed: error == cudaSuccess (8 vs. 0)", "config_error"),
        ("im2col.cu:61] Check failed: error == cudaSuccess (77 vs. 0)", "cuda_illegal_access"),
        ("ERROR: not enough GPU memory: need 42.0 GB, have 39.1 GB", "cuda_oom"),
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/mr/resource.hpp",
            "cuda_oom",
        ),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/5.15", "config_error"),
        ("slurmctld: update_node: node gpu-17 reason set to: xid 79 gpu fell off bus", "gpu_lost"),
        ("update_node: node gpu-17 reason set to: GPU 3 uncorrectable ECC", "gpu_ecc"),
        (
            "NodeName=gpu-17 State=IDLE+DRAIN Reason=nvlink down on gpu 2 [root@2025]",
            "nvlink_error",
        ),
        ("timeout: nvidia-smi did not return within 60 s on node gpu-17", "gpu_lost"),
        ("Accelerator Fatal Error: call to cuStreamSynchronize returned error 214: ECC", "gpu_ecc"),
        ("Accelerator Fatal Error: call to cuMemAlloc returned error 2: Out of memory", "cuda_oom"),
        ('{"name":"Diagnostic","results":[{"gpu_id":"5","status":"Fail"}]}', "gpu_xid_other"),
        ("npu 2 event 0x80C98008: chip over temperature, power off protection", "thermal_power"),
        ("what():  [FT][ERROR] CUDA runtime error: out of memory allocator.h:181", "cuda_oom"),
        ("GPU arch gfx906 is not supported by this build of hipBLASLt", "config_error"),
    ],
)
def test_a_sentence_about_a_device_shows_its_fault(line: str, fault: str) -> None:
    """No level and no known emitter is needed."""
    assert fault_of(line) == fault


@pytest.mark.parametrize(
    "line",
    [
        "Runbook: if a GPU has fallen off the bus (Xid 79), drain the node and open a ticket",
        "If you see Xid 95 on a GPU, reset it",
        "Fixed in 550.54.15: an issue that could cause Xid 119 errors on H100",
        'NAME = 25 : "Detected %d volatile double-bit ECC error(s) in GPU %u"',
        "cudaGetLastError: CUDA error 0: no error",
        "No uncorrectable ECC errors detected",
        "no double bit errors found on GPU 3",
        "Volatile Uncorr. ECC count is 0",
        'node gpu-17 resumed: previous reason "GPU 3 uncorrectable ECC" cleared by admin',
        "NodeName=gpu-17 State=IDLE Reason=kernel update for nvidia driver [root@2025]",
        "no double-bit error on GPU 3 since boot",
        "WARN HikariPool-1 - Maximum pool size exceeded, a request waits",
        "row remapping: correctable 0, uncorrectable 0, pending No, failure No",
        "GPU 3: temperature 71C is below the limit of 90C",
        "GPU temperature limits: slowdown 90C, shutdown 95C",
        "INFO: device 3: hang watchdog armed (timeout 600 s)",
        "checking GPU count: expected=8 actual=8",
        '{"gpu":3,"temp_c":71,"ecc_dbe":0,"xid":0,"nvlink_crc":0,"throttle":"none"}',
        "not enough GPU memory for batch 64, trying 32",
        "step 507054 loss 2.30 lr 1e-4",
    ],
)
def test_a_device_that_is_only_spoken_of_is_healthy(line: str) -> None:
    """Instructions, notes of releases, counts of 0, limits, formats in source code."""
    assert fault_of(line) == ""
