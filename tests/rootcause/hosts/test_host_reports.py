"""Reports of hosts: errors that hardware corrected or did not, and what drivers, daemons and tools say of themselves."""

import pytest

from tests.rootcause.hosts.test_machine_logs import fault_of

# Reports of one error each, of which the first line is the same whether it was corrected or not.
APEI = """pcieport 0000:20:03.1: AER: aer_layer=Data Link Layer, aer_agent=Receiver ID
{{7}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512
{{7}}[Hardware Error]: event severity: {severity}
{{7}}[Hardware Error]:  Error 0, type: {severity}
{{7}}[Hardware Error]:   section_type: PCIe error
"""
MCELOG = """kernel: mce: [Hardware Error]: Machine check events logged
mcelog[2226]: Hardware event. This is not a software error.
mcelog[2226]: MCE 0
mcelog[2226]: CPU 0 BANK 7 TSC b98e63765d2
mcelog[2226]: MCi status:
mcelog[2226]: {kind} error
mcelog[2226]: Transaction: Memory read error
"""


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        (APEI.format(severity="corrected"), ""),
        (APEI.format(severity="fatal"), "host_hardware"),
        (MCELOG.format(kind="Corrected"), ""),
        (MCELOG.format(kind="Uncorrected"), "host_hardware"),
        (MCELOG.format(kind="Corrected") + MCELOG.format(kind="Uncorrected"), "host_hardware"),
        (MCELOG.format(kind="Uncorrected") + MCELOG.format(kind="Corrected"), "host_hardware"),
        (APEI.format(severity="corrected") + APEI.format(severity="recoverable"), "host_hardware"),
        (
            "kernel: [Hardware Error]: Corrected error, no action required.\nkernel: [Hardware Error]: Error Addr: 0x31fb566e0\n",
            "",
        ),
        (
            "mcelog: corrected DIMM memory error count exceeded threshold: 10 in 24h\n",
            "host_hardware",
        ),
    ],
)
def test_hardware_that_corrected_an_error_has_none(report: str, fault: str) -> None:
    """The other lines of the report are those of any error; what else is broken beside it stays so."""
    assert fault_of(report) == fault
    card = (
        "mlx5_core 0000:c2:00.0: print_health_info:447:(pid 0): synd 0x1: firmware internal error\n"
    )
    assert fault_of(report + card) == "host_hardware"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("| Warning      | GPU 3 Thermal violations totaling 2.5 seconds started at 9.7 seconds |", "thermal_power"),
        ("slurmstepd: error: *** JOB 32321214 ON c21 CANCELLED AT 2026-01-28T10:43:09 DUE TO JOB REQUEUE ***", "preemption"),
        ("NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out", "gpu_lost"),
        ("已杀死", "host_oom"),
        ('t=2026-03-01T07:31:09+0000 lvl=eror msg="error send grads" error="connection is shut down"', "nccl_network"),
        (" Main PID: 3141 (code=killed, signal=TERM)", ""),
        ("| attempt          | loss             | nr |", ""),
        ("CRC error in total: 0\necc error_count: 0", ""),
        ("igb 0000:04:00.0 eno1: Failed to read reg 0x18!", "device_vanished"),
        ("igb 0000:04:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex", ""),
        ("[2026-03-01 12:46:52,789 C 149 149] node_manager.cc:170: This node has been marked as dead.", "node_failure"),
        (" Main PID: 3141 (code=exited, status=1/FAILURE)\nslurmctld[3141]: slurmctld: fatal: bad state file", "config_error"),
        ("NCCL WARN NET/OFI Request 0x7f completed with error. RC: 20.\nlibfabric:36:16:efa:cq:efa_cq_write_tx_error():243<warn> "
         "err: 20, prov_err: Not a directory (20)", "nccl_network"),
    ],
)  # fmt: skip
def test_what_hosts_and_daemons_say_of_their_end(lines: str, fault: str) -> None:
    """Each by its own words, whatever errno makes of them."""
    assert fault_of(lines + "\n") == fault
