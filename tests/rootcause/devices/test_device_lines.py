"""Lines of monitors, tools, other devices and programs about GPUs: what of them is a fault, and what healthy nodes print."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

COLUMNS = "index, temperature.gpu, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.sw_power_cap\n"
VIOLATIONS = "# gpu    pwr  gtemp  mtemp     sm    mem  pviol  tviol\n# Idx      W      C      C      %      %      %   bool\n"


def fault_of(text: str) -> str:
    """Return the fault of a log; "" for a healthy one."""
    found = verdicts_of(text + "\n")
    return found[0].cause.fault if found else ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The maximum power limit has violated policy manager conditions.", "thermal_power"),
        (
            "|       -> NVLINK system    | Warning                                   |",
            "nvlink_error",
        ),
        ('DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="2",device="nvidia2"} 1', "gpu_ecc"),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="5",device="nvidia5"} 119', "gpu_xid_other"),
        ('{"neuron_device_index":0,"mem_ecc_corrected":0,"mem_ecc_uncorrected":4}', "gpu_ecc"),
        ("[FIRING:1] GpuFellOffBus (critical) node=a100-07 gpu=3", "gpu_lost"),
        ('ALERTS{alertname="GpuXidError", alertstate="firing", gpu="3"} 1', "gpu_xid_other"),
        ('{"type":"NVLinkStatusInactive","status":"True"}', "nvlink_error"),
        (
            '{"component":"accelerator-nvidia-gpu-counts","health":"Unhealthy","reason":"7"}',
            "gpu_lost",
        ),
        (
            '{"component":"accelerator-nvidia-ecc","health":"Unhealthy","reason":"volatile"}',
            "gpu_ecc",
        ),
        ("Warning  AcceleratedHardwareNotReady  2m  NvidiaDoubleBitError: GPU 3", "gpu_ecc"),
        ("health check: expected 8 GPUs, found 7", "gpu_lost"),
        ("WRN found critical error xid=119 suggested_actions=REBOOT_SYSTEM", "gpu_xid_other"),
        ("Xid (PCI:0000:07:00): 95, pid=120, name=python3, Uncontained: FBHUB.", "gpu_ecc"),
        (
            "[Mar 03 2024 10:11:12] [ERROR] [tid 2511] failed to find the GPU handle 123 in the request",
            "nvlink_error",
        ),
        ("ERROR:  nhc:  Health check failed:  check_gpu_count: GPUs: 7", "gpu_lost"),
        ("ERROR:  nhc:  Health check failed:  check_nvlink_status: GPU 3", "nvlink_error"),
        ("ERROR:  nhc:  Health check failed:  check_gpu_xid: GPU 3", "gpu_xid_other"),
        ("NVRM: GPU1 sanity check failed 0xf waiting for RPC response from GSP.", "gpu_xid_other"),
    ],
)
def test_a_monitor_that_found_something_shows_the_fault(text: str, fault: str) -> None:
    """Samples above 0, alerts that fire, conditions that hold, checks that failed."""
    assert fault_of(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        'DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{gpu="5"} 12',
        'DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{gpu="5"} 1',
        'DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="5"} 0',
        'gpu_xid_errors_total{gpu="3",xid="79"} 0',
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.",
        "- alert: GpuXidError",
        'description: "XID {{ $value }} on GPU {{ $labels.gpu }}, uncorrectable ECC errors"',
        "[RESOLVED] GpuFellOffBus node=a100-07 gpu=3",
        '{"status":"resolved","labels":{"alertname":"GpuEcc"},"annotations":{"summary":"Double-bit ECC errors"}}',
        "| Violation conditions        | Double-bit ECC errors           |",
        '{"component":"accelerator-nvidia-ecc","health":"Healthy","reason":"no uncorrectable ECC errors"}',
        "GpuCountCheck  False  Tue, 04 Mar 2025 09:12:01 +0000  GpuCountOk  expected 8 GPUs, found 8",
        "Ignoring the following XIDs for health checks: map[13:true 31:true 43:true 45:true 68:true 109:true]",
        "nhc: Running check:  check_gpu_ecc 20000000 10000",
        "[Mar 03 2024 10:11:12] [INFO] [tid 2511] number of NVLinks failed to train: 0",
    ],
)
def test_a_monitor_that_found_nothing_is_healthy(text: str) -> None:
    """Samples of 0, alerts that are over, definitions, corrected errors."""
    assert fault_of(text) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "<double_bit_retirement><retired_count>5</retired_count></double_bit_retirement>",
            "gpu_ecc",
        ),
        ("<pending_blacklist>No</pending_blacklist>", ""),
        ("\t Link 4: Replay Errors: 21845\n\t Link 4: CRC Errors: 0", "nvlink_error"),
        ("\t Link 4: Replay Errors: 2\n\t Link 4: CRC Errors: 7", ""),
        (COLUMNS + "0, 61, Not Active, Active\n3, 92, Active, Not Active", "thermal_power"),
        (COLUMNS + "0, 61, Not Active, Active\n3, 62, Not Active, Active", ""),
        ("0, 61, Active, Active", ""),
        (VIOLATIONS + "    3    120     93    101     99     40      0      1", "thermal_power"),
        (VIOLATIONS + "    3    120     93    101     99     40      0      0", ""),
        ("    3    120     93    101     99     40      0      1", ""),
        ("        XGMI_ERR: MULTIPLE_ERRORS", "nvlink_error"),
        ("| Memory Health      | Status: OK        |", ""),
        ("| Memory Health      | Status: Critical  |", "gpu_ecc"),
    ],
)
def test_rows_of_reports_count_by_what_they_are_about(text: str, fault: str) -> None:
    """A column or a row means something below the line that names it."""
    assert fault_of(text) == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('habanalabs hl2: Received H/W interrupt 412 ["HBM_2_DERR"]', "gpu_ecc"),
        ('habanalabs hl2: Received H/W interrupt 411 ["HBM_2_SERR"]', ""),
        ("habanalabs 0000:19:00.0: port 8: link is down", "nccl_network"),
        (
            "habanalabs 0000:19:00.0: port 8: link is down\nhabanalabs 0000:19:00.0: port 8: link is up",
            "",
        ),
        ("Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in session e6c88", "gpu_xid_other"),
        ("ERROR NRT: status NRT_EXEC_HW_ERR_HBM_UE on nd3", "gpu_ecc"),
        ("ERROR TDRV: suspected hang in collectives operation 0 out of 100", "nccl_timeout"),
        ("RuntimeError: ACL stream synchronize failed, error code:507054", "gpu_ecc"),
        ("[ERROR] RUNTIME(8,python): [engine.cc:12] retCode=507010", "gpu_lost"),
        ("        HBM Double Bit Error Count               : 0", ""),
        ("        HBM Double Bit Error Count               : 2", "gpu_ecc"),
        ("[CNNL] [Error]: cnrtMalloc failed: cnrtErrorNoMem on device 3", "cuda_oom"),
        ("RuntimeError: mcErrorIllegalAddress in mcStreamSynchronize", "cuda_illegal_access"),
        ("poplar::graph_memory_allocation_error: tile 122 needs 702144 bytes", "cuda_oom"),
        ("hydcu 0000:5d:00.0: hydcu: ring comp_1.1.0 timeout, signaled seq=221", "gpu_xid_other"),
        ("Device 0: Timeout (10000 ms) waiting for physical cores to finish: 11-4", "gpu_lost"),
    ],
)
def test_devices_of_other_vendors_have_words_of_their_own(text: str, fault: str) -> None:
    """They are those of their drivers and runtimes."""
    assert fault_of(text) == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("========= Invalid __global__ write of size 4 bytes", "cuda_illegal_access"),
        ("========= ERROR SUMMARY: 0 errors", ""),
        ("CUDA Exception: Warp Out-of-range Address", "cuda_illegal_access"),
        ("CUDA Exceptions: catch on CUDA_EXCEPTION_1 .. CUDA_EXCEPTION_15 enabled", ""),
        ("train: CUDA error code 700 at scatter.cu:88", "cuda_illegal_access"),
        (
            "CudaAPIError: [719] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR",
            "cuda_illegal_access",
        ),
        ("train: CUDA runtime error (209) in launch", "config_error"),
        ("train: CUDA error 0 in launch", ""),
        ("ERROR: LoadError: Out of GPU memory trying to allocate 7.450 GiB", "cuda_oom"),
        ("ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 12884901888", "cuda_oom"),
        ("Unable to open /dev/kfd read-write: Permission denied", "config_error"),
        (
            "Memory access fault by GPU node-4 on address 0x7f12. Reason: Page not present.\n"
            "Failed to allocate file: No space left on device\nGPU core dump failed",
            "cuda_illegal_access",
        ),
        (
            "nvidia-persistenced[1202]: Received signal 15, PID file unlinked; shut down successfully",
            "",
        ),
    ],
)
def test_programs_tell_of_the_gpu_they_run_on(text: str, fault: str) -> None:
    """In any language, by the number or by the words of an error."""
    assert fault_of(text) == fault
