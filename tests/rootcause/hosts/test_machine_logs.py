"""Lines of drivers, management controllers and tools: what of them is a fault, and what healthy machines print too."""

import pytest

from runner.facts.causes import Verdict
from tests.collect.diagnosed_logs import verdicts_of

STEPS = "step 3 loss 2.25\nstep 4 loss 2.125\n"
AMD = "amdgpu 0000:0a:00.0: amdgpu: "
THROTTLED = "[  194.57] CPU{core}: Core temperature above threshold, cpu clock throttled (total events = {num})"
COOLED = "[  194.58] CPU{core}: Core temperature/speed normal"
SMI = "    {title}\n        {first:34}: {value}\n"


def fault_of(text: str) -> str:
    """Return the fault of a log; "" for a healthy one."""
    found: list[Verdict] = verdicts_of(text)
    return found[0].cause.fault if found else ""


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (f"{AMD}WARN: GPU thermal throttling temperature reached, expect performance decrease. SOC.", "thermal_power"),
        ("amdgpu: [powerplay] GPU Critical Temperature Fault detected on PCIe 5:0.0!", "thermal_power"),
        ("amdgpu: [powerplay] GPU under temperature range detected on PCIe 5:0.0!", ""),
        (f"{AMD}SMU is initialized successfully!", ""),
        ("habanalabs hl3: Clock throttling due to overheating", "thermal_power"),
        (
            "habanalabs hl3: Power clock throttling\nhabanalabs hl3: Power envelop is safe, back to optimal clock",
            "",
        ),
        ("GPU1 Temp         | 97 degrees C      | ucr", "thermal_power"),
        ("GPU1 Temp         | 57 degrees C      | ok", ""),
        ("PSU1 Status       | 0x00              | ok", ""),
        ("mlx5_core 0000:5e:00.0: temp_warn:193:(pid 0): High temperature on sensors with bit set 0 0x1", "thermal_power"),
        ("mlx5_core 0000:5e:00.0: mlx5_pcie_event:301:(pid 1): PCIe slot advertised sufficient power (27W).", ""),
        ("temp1:        +45.0 C  (high = +80.0 C, crit = +100.0 C)", ""),
        ("SYS_FAN4         | A4h | lcr |  7.1 | 300 RPM", "thermal_power"),
        ("SYS_FAN4         | A4h | ns  |  7.1 | Disabled", ""),
        ("ipmid: SEL Entry: FRU: 1, Sensor: CPU1_THERM (0x1C), Event Data: (01FFFF) PROCHOT# Assertion", "thermal_power"),
        (f"{THROTTLED.format(core=3, num=4)}\n{COOLED.format(core=3)}", ""),
        (f"{THROTTLED.format(core=3, num=4)}\n{COOLED.format(core=5)}", "thermal_power"),
        (f"{THROTTLED.format(core=3, num=110245)}\n{COOLED.format(core=3)}", "thermal_power"),
    ],
)  # fmt: skip
def test_what_is_too_hot(lines: str, fault: str) -> None:
    """Clocks that are back to normal, and temperatures below their range, are none."""
    assert fault_of(lines + "\n") == fault


def test_clocks_that_a_warning_reports_do_not_matter_to_a_run_that_goes_on() -> None:
    """The driver lowers them for a moment."""
    line = f"{AMD}WARN: GPU thermal throttling temperature reached, expect performance decrease. SOC.\n"
    assert fault_of(STEPS + line + STEPS.replace("4", "5").replace("3", "4")) == ""


def test_a_gpu_that_does_not_come_back_from_its_reset_is_lost_and_one_that_does_is_not() -> None:
    """The reset begins the same way."""
    begin = f"{AMD}GPU reset begin!\n[drm] VRAM is lost due to GPU reset!\n"
    assert fault_of(f"{begin}{AMD}GPU reset(2) succeeded!\n") == "gpu_xid_other"
    silent = "[drm:mes_v11_0_submit_pkt_and_poll_completion [amdgpu]] *ERROR* MES failed to response msg=3\n"
    assert fault_of(f"{begin}{silent}") == "gpu_lost"
    assert fault_of(f"{begin}{silent}{AMD}GPU reset(2) succeeded!\n") == "gpu_xid_other"
    assert fault_of(f"{AMD}GPU reset(2) succeeded!\n{begin}{silent}") == "gpu_lost"
    for failed in (
        f"{AMD}GPU reset end with ret = -62",
        f"{AMD}GPU reset(3) failed",
        "[drm:psp_resume [amdgpu]] *ERROR* PSP resume failed",
        "[drm:amdgpu_device_ip_resume_phase2 [amdgpu]] *ERROR* resume of IP block <psp> failed -62",
    ):
        assert fault_of(f"{begin}{failed}\n") == "gpu_lost", failed


def test_a_driver_that_does_not_know_its_gpu_is_a_setting() -> None:
    """That its start failed follows from it."""
    failed = "nvidia: probe of 0000:04:00.0 failed with error -1\n"
    mismatch = (
        "NVRM: API mismatch: the client has the version 535.54.03, but\n"
        "NVRM: this kernel module has the version 525.105.17.\n"
    )
    assert fault_of(failed) == "gpu_lost"
    assert fault_of(failed + mismatch) == "config_error"


def test_memory_that_is_not_mapped_is_the_programs_unless_a_line_names_hardware() -> None:
    """The details below the first line say no more."""
    fault = (
        f"{AMD}[gfxhub] page fault (src_id:0 ring:153 vmid:8 pasid:32786)\n"
        f"{AMD} Process python pid 88 thread python pid 88\n"
        f"{AMD}  in page starting at address 0x00007f1e20000000 from client 10\n"
        f"{AMD}GCVM_L2_PROTECTION_FAULT_STATUS:0x00801030\n"
    )
    (verdict,) = verdicts_of(fault)
    assert verdict.cause.fault == "cuda_illegal_access"
    assert verdict.cause.confidence < 0.7
    hardware = (
        f"{AMD}socket: 3, die: 0, 1 new uncorrectable hardware errors detected in umc block\n"
    )
    assert fault_of(fault + hardware) == "gpu_ecc"


@pytest.mark.parametrize(
    ("driver", "fault"),
    [
        ("mlx5_core", "host_hardware"),
        ("bnxt_en", "host_hardware"),
        ("nvme", "host_hardware"),
        ("megaraid_sas", "host_hardware"),
        ("amdgpu", "gpu_lost"),
        ("nvidia", "gpu_lost"),
        # Of parts that no run needs.
        ("snd_hda_intel", ""),
        ("i801_smbus", ""),
    ],
)
def test_a_driver_that_cannot_start_its_device(driver: str, fault: str) -> None:
    """Both wordings: Linux changed it in 6.9."""
    assert fault_of(f"{driver}: probe of 0000:04:00.0 failed with error -5\n") == fault
    assert (
        fault_of(f"{driver} 0000:04:00.0: probe with driver {driver} failed with error -5\n")
        == fault
    )


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("sd 2:0:0:0: [sdc] tag#12 Sense Key : Medium Error [current]", "host_hardware"),
        ("sd 2:0:0:0: [sdc] tag#12 Sense Key : Hardware Error [deferred]", "host_hardware"),
        ("sd 2:0:0:0: [sdc] tag#12 Sense Key : Unit Attention [current]", ""),
        ("ata5.00: error: { UNC }", "host_hardware"),
        ("md/raid10:md1: Disk failure on sdd2, disabling device.", "host_hardware"),
        ("md/raid0:md0: Disk failure on sdd2 detected, failing array.", "host_hardware"),
        ("md/raid10:md1: active with 4 out of 4 devices", ""),
        ("SMART Health Status: OK", ""),
        ("nvidia 0000:5e:00.0: can't change power state from D3cold to D0 (config space inaccessible)", "gpu_lost"),
        ("nvme 0000:5e:00.0: Unable to change power state from D3cold to D0, device inaccessible", "device_vanished"),
        ("Memory failure: 0x4a5: Sending SIGBUS to python:12 due to hardware memory corruption", "host_hardware"),
        ("Memory failure: 0x4a5: recovery action for clean LRU page: Recovered", ""),
        ("megaraid_sas 0000:18:00.0: Adapter is DEAD", "host_hardware"),
        ("megaraid_sas 0000:18:00.0: FW now in Ready state", ""),
        ("md0 : active raid1 sdb1[1](F) sda1[0]", "host_hardware"),
        ("md0 : active raid1 sdb1[1] sda1[0]", ""),
        ("252:3    11 UBad   -  3.637 TB SATA HDD N   N  512B ST4000 U  -", "host_hardware"),
        ("252:3    11 Onln   0  3.637 TB SATA HDD N   N  512B ST4000 U  -", ""),
        ("EXT4-fs error (device sdb1): ext4_find_entry:1455: inode #2: comm python: bad block", "filesystem"),
        ("critical_warning                    : 0x0", ""),
    ],
)  # fmt: skip
def test_disks_that_report_themselves_and_file_systems_that_err(line: str, fault: str) -> None:
    """Errors of a medium are the disk's; a mount, its server or its file system has no hardware to replace."""
    assert fault_of(line + "\n") == fault


def test_a_broken_disk_explains_the_errors_of_its_file_system() -> None:
    """Whichever is first."""
    disk = "blk_update_request: critical medium error, dev sdc, sector 812 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0\n"
    file_system = (
        "EXT4-fs error (device sdc1): ext4_find_entry:1455: inode #2: comm python: bad block\n"
    )
    for text in (disk + file_system, file_system + disk):
        (verdict,) = verdicts_of(text)
        assert (verdict.cause.fault, verdict.cause.action_class) == ("host_hardware", "swap")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("MEM0001: Multi-bit memory errors detected on a memory device at location(s) DIMM_B2.", "host_hardware"),
        ("2026-02-03 04:05:06 Critical PCI1320 A bus fatal error was detected on a component at bus 23.", "host_hardware"),
        ("PSU0002: A predictive failure detected on power supply 2.", "host_hardware"),
        ("UEFI0068: A PCIe degraded link width error is observed in Slot 3.", "host_hardware"),
        ("Expected link speed is Gen5 but actual link speed is Gen1.", "host_hardware"),
        ("TMP0121: The system inlet temperature is greater than the upper critical threshold.", "thermal_power"),
        ("FAN0001: Fan 4B RPM is less than the lower critical threshold.", "thermal_power"),
        ("Critical | Uncorrectable Memory Error (Processor 2, Memory Module 7)", "host_hardware"),
        ("Critical | System Fan Failure (Fan 2, Location System)", "thermal_power"),
        ("PS2 Status       | C9h | ok  | 10.2 | Presence detected, Failure detected", "host_hardware"),
        ("PS2 Status       | C9h | ok  | 10.2 | Presence detected", ""),
        ('"Status": {"State": "Enabled", "Health": "OK"}', ""),
        ("VLT0204: The system board voltage is outside of range.", "host_hardware"),
        ("VLT0205: The system board voltage is within range.", ""),
        ("PSU0801: Power supply 1 is operating normally.", ""),
        ("FAN0002: Fan 4B RPM is within range.", ""),
        ("UEFI0081: Memory configuration has changed from the last time the system was started.", ""),
        ("SYS1003: System CPU Resetting.", ""),
        ("CPU0: Intel(R) Xeon(R) Platinum 8480+ (family: 0x6, model: 0x8f, stepping: 0x8)", ""),
        ("PCI: Using configuration type 1 for base access", ""),
        ("smpboot: CPU0 cannot be offlined", ""),
        ("NIC0 failed over to NIC1 as its bond was configured", ""),
    ],
)  # fmt: skip
def test_messages_of_management_controllers(line: str, fault: str) -> None:
    """An identifier names the part, and the words show whether it is a fault."""
    assert fault_of(line + "\n") == fault


@pytest.mark.parametrize(
    ("title", "first", "value", "fault"),
    [
        ("Remapped Rows", "Pending", "Yes", "gpu_ecc"),
        ("Remapped Rows", "Pending", "No", ""),
        ("Remapped Rows", "Uncorrectable Error", "1", ""),
        ("Retired Pages", "Double Bit ECC", "3", "gpu_ecc"),
        ("Retired Pages", "Double Bit ECC", "0", ""),
        ("Retired Pages", "Single Bit ECC", "3", ""),
        ("Fabric", "Status", "Insufficient Resources", "nvlink_error"),
        ("Fabric", "Status", "Success", ""),
        ("Fabric", "Status", "N/A", ""),
        ("Clocks Event Reasons", "SW Thermal Slowdown", "Active", "thermal_power"),
        ("Clocks Event Reasons", "SW Power Cap", "Active", ""),
        ("Clocks Event Reasons", "Idle", "Active", ""),
        # Without its section, a row may be of anything.
        ("Requests", "Pending", "Yes", ""),
        ("Daemon", "Status", "Insufficient Resources", ""),
    ],
)
def test_rows_of_reports_mean_something_below_their_title(
    title: str, first: str, value: str, fault: str
) -> None:
    """Of nvidia-smi -q."""
    assert fault_of(SMI.format(title=title, first=first, value=value)) == fault
    assert fault_of(SMI.format(title="Nothing", first=first, value=value)) == ""


def test_rows_of_a_query_mean_something_below_its_names() -> None:
    """Of nvidia-smi --query-gpu."""
    command = "# nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv,noheader\n"
    assert fault_of(f"{command}0, None\n1, Reset\n2, None\n") == "gpu_lost"
    assert fault_of(f"{command}0, None\n1, None\n") == ""
    assert fault_of("0, None\n1, Reset\n") == ""


def test_a_port_that_no_subnet_manager_made_active() -> None:
    """As ibstat shows it below the title of the port; it has a link."""
    text = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: {}\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
    assert fault_of(text.format("Initializing")) == "nccl_network"
    assert fault_of(text.format("Active")) == ""
    assert fault_of("\t\tState: Initializing\n") == ""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("    GPU Recovery Action                   : Reboot", "gpu_lost"),
        ("ecc.errors.uncorrected.aggregate.total:   16", "gpu_ecc"),
        ("ecc.errors.uncorrected.volatile.total:    0", ""),
        ("ecc.errors.corrected.aggregate.total:     170", ""),
        ("    GPU Recovery Action                   : Drain P2P", "nvlink_error"),
        ("    GPU Recovery Action                   : None", ""),
        ("        GPU Current Temp                  : Unknown Error", "gpu_lost"),
        ("        GPU Current Temp                  : N/A", ""),
        ("3, NVIDIA H100, [Unknown Error], 81559 MiB", "gpu_lost"),
        ("| 5     910B3               | Critical      | 93.3        40                0    / 0             |", "gpu_xid_other"),
        ("| 5     910B3               | Warning       | 93.3        40                0    / 0             |", ""),
        ("| Page Retirement/Row Remap | Fail - GPU: 2                                  |", "gpu_ecc"),
        ("| Targeted Stress           | Skip - All                                     |", ""),
    ],
)  # fmt: skip
def test_single_rows_of_tools(line: str, fault: str) -> None:
    """What was skipped, and what only warns, is none."""
    assert fault_of(line + "\n") == fault


def test_ports_of_switches_that_stay_down() -> None:
    """By the name of the port: one that came back, and another one that did not."""
    state = "%LINK-3-UPDOWN: Interface Ethernet1/{}, changed state to {}\n"
    assert fault_of(state.format(12, "down") + state.format(13, "up")) == "nccl_network"
    assert fault_of(state.format(12, "down") + state.format(12, "up")) == ""


@pytest.mark.parametrize(
    "taken",
    [
        'kubelet[202]: I0308 1 nodeshutdown_manager.go:375] "Shutdown manager killing pod with gracePeriod" pod="ml/r-7"',
        "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation: no p5 is left",
        "\tthe actor's node was preempted: the instance is needed elsewhere",
        "scale_down.go:713] Scale-down: removing node gpu-17, utilization: {0.1 0.2}, pods to reschedule: ml/rank-7",
    ],
)
def test_a_node_that_was_taken_back_did_not_fail(taken: str) -> None:
    """A line beside it only says that the node is gone; far from it, that is another story."""
    lost = "srun: error: Node failure on gpu-17\n"
    assert fault_of(f"{taken}\n") == "preemption"
    assert fault_of(f"{taken}\n{lost}") == "preemption"
    assert fault_of(f"{lost}{taken}\n") == "preemption"
    assert fault_of(lost + "waiting for the node\n" * 40 + f"{taken}\n") == "node_failure"


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        ("check_hw_ib:  No IB port is ACTIVE (LinkUp 400 Gb/sec).", "nccl_network"),
        ("check_nvsmi_healthmon:  nvidia-healthmon: problem found", "gpu_xid_other"),
        ("check_fs_mount:  /scratch not mounted", "filesystem"),
        ("check_hw_mcelog:  MCE errors detected", "host_hardware"),
    ],
)
def test_a_health_check_of_nodes_names_its_part(check: str, fault: str) -> None:
    """What only ran is none."""
    assert fault_of(f"ERROR:  nhc:  Health check failed:  {check}\n") == fault
    assert fault_of(f"nhc:  Running check:  {check.partition(':')[0]}\n") == ""


def test_an_allocation_that_a_failed_node_revoked_is_the_nodes() -> None:
    """Alone, it is the scheduler's."""
    revoked = "salloc: Job allocation 4021 has been revoked.\n"
    assert fault_of(revoked) == "preemption"
    assert fault_of("srun: error: Node failure on gpu-17\n" + revoked) == "node_failure"


def test_clusters_that_only_shrink_are_healthy() -> None:
    """No pod of a run was on the node."""
    for line in (
        "scale_down.go:713] Scale-down: removing empty node gpu-17",
        'nodeshutdown_manager_linux.go:137] "Creating node shutdown manager" shutdownGracePeriodRequested="30s"',
        "node/gpu-17 cordoned",
    ):
        assert fault_of(line + "\n") == "", line


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ("Active LinkUp", "Down Polling", ""),
        ("Active LinkUp", "Active LinkUp", ""),
        ("Down Polling", "Active LinkUp", "nccl_network"),
        ("Down Polling", "Down Polling", "nccl_network"),
    ],
)
def test_the_second_port_of_an_adapter_has_no_cable_as_a_rule(
    first: str, second: str, fault: str
) -> None:
    """Where the first one has a link; the next adapter counts for itself."""
    rows = [
        f"\tPort {number}:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: 10\n"
        for number, port in ((1, first), (2, second))
        for state, physical in (port.split(),)
    ]
    text = "CA 'mlx4_0'\n" + "".join(rows)
    assert fault_of(text) == fault
    down = "CA 'mlx5_1'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n"
    assert fault_of(text + down) == "nccl_network"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("update_node: node ip-10-1-82-13 state set to FAILING", "node_failure"),
        ("update_node: node gpu-7 reason set to: to be replaced", "node_failure"),
        ("update_node: node gpu-7 state set to DRAINING", ""),
        ("update_node: node gpu-7 state set to IDLE", ""),
    ],
)
def test_a_node_that_is_marked_to_be_replaced_has_failed(line: str, fault: str) -> None:
    """One that is drained may be so for any reason."""
    assert fault_of(f"[2025-04-08T21:49:34.679] {line}\n") == fault


def test_a_task_that_is_blocked_in_a_gpu_s_driver_waits_for_no_disk() -> None:
    """Its own stack decides, not that of the task below it."""
    head = "INFO: task python:{pid} blocked for more than 120 seconds.\n Call Trace:\n  __schedule+0x1c3/0x550\n"
    of_gpu = "  svm_range_cpu_invalidate_pagetables+0x2b/0x40 [amdgpu]\n  exit_mmap+0xbc/0x1a0\n"
    of_disk = "  nfs_wait_bit_killable+0x2b/0x40 [nfs]\n  vfs_read+0xbc/0x1a0\n"
    assert fault_of(head.format(pid=7) + of_gpu) == "gpu_xid_other"
    assert fault_of(head.format(pid=7) + of_disk) == "filesystem"
    (both, *_) = verdicts_of(head.format(pid=7) + of_disk + head.format(pid=8) + of_gpu)
    assert both.cause.fault == "gpu_xid_other"
    assert "python:8 blocked" in both.cause.lines[0]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("Device not ready; aborting reset, CSTS=0x1", "host_hardware"),
        ("Device not ready; aborting reset, CSTS=0xffffffff", "device_vanished"),
        ("Device not ready; aborting initialisation, CSTS=0x0", "host_hardware"),
        ("Device not ready; aborting reset", "device_vanished"),
        ("controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "host_hardware"),
        ("controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "device_vanished"),
    ],
)
def test_a_disk_whose_registers_read_all_ones_is_gone(words: str, fault: str) -> None:
    """One that still shows its state is there, and broken."""
    assert fault_of(f"nvme nvme2: {words}\n") == fault


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("    health: HEALTH_ERR\n            1 filesystem is degraded", "filesystem"),
        ("    health: HEALTH_WARN\n            noout flag(s) set", ""),
        ("    health: HEALTH_OK", ""),
        ("n1:68:68 [1] ras/client_support.cc:159 NCCL WARN Call to bind failed: Address already in use", ""),
        ("n1:68:68 [1] misc/socket.cc:159 NCCL WARN Call to bind failed: Address already in use", "nccl_network"),
    ],
)  # fmt: skip
def test_what_a_cluster_says_of_itself(lines: str, fault: str) -> None:
    """A warning, and a server that nothing needs, are none."""
    assert fault_of(f"{lines}\n") == fault


def test_a_cable_that_was_pulled_is_the_cause_of_a_collective_that_times_out() -> None:
    """Alone it is none, nor is one that was plugged in: nothing needs to have been sent through it."""
    pulled = "kernel: mlx5_core 0000:9f:00.0: Port module event: module 0, Cable unplugged\n"
    late = (
        "[rank5]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600010 milliseconds\n"
    )
    assert fault_of(f"{STEPS}{pulled}{late}") == "nccl_network"
    assert fault_of(f"{STEPS}{late}") == "nccl_timeout"
    assert fault_of(f"{STEPS}{pulled}") == ""
    assert fault_of(f"{STEPS}{pulled.replace('unplugged', 'plugged')}{late}") == "nccl_timeout"
