"""What the kernel's catalogues say of single messages, beside what its documents say of them."""

import pytest

from tests.rootcause.catalogues.rows_of import levels, read, row
from tools.catalogues.linux.areas import AREAS


@pytest.mark.parametrize("name", AREAS)
def test_a_catalogue_has_every_level_that_a_kernel_log_shows(name: str) -> None:
    """Errors, warnings and what is harmless are there; what only a debugger turns on is not."""
    header, rows = read(name)
    assert header["style"] == "printf"
    assert header["layer"] == "machine"
    counts = levels(name)
    assert min(counts["error"], counts["warning"], counts["info"]) >= 45
    assert not counts["debug"]
    assert len({(one["format"].casefold(), *one.get("requires", ())) for one in rows}) == len(rows)


@pytest.mark.parametrize(
    ("name", "text", "level", "fault"),
    [
        ("linux_memory", "invoked oom-killer: gfp_mask", "warning", "host_oom"),
        ("linux_memory", "Killed process %d (%s) total-vm", "error", "host_oom"),
        ("linux_memory", "oom-kill:constraint=", "info", "host_oom"),
        ("linux_memory", "page allocation failure: order:%u", "warning", "host_oom"),
        ("linux_memory", "Sending SIGBUS to %s:%d due to hardware", "error", "host_hardware"),
        ("linux_memory", "OOM killer enabled.", "info", ""),
        ("linux_core", "BUG: soft lockup - CPU#%d stuck", "error", "node_failure"),
        ("linux_core", "Kernel panic - not syncing: %s", "error", "node_failure"),
        ("linux_core", "INFO: %s self-detected stall on CPU", "error", "node_failure"),
        ("linux_core", "INFO: task %s:%d blocked for more", "error", "filesystem"),
        ("linux_core", "kernel BUG at %s:%u!", "error", "node_failure"),
        ("linux_core", "Bringing up secondary CPUs", "info", ""),
        ("linux_hardware", "CPU %d: Machine Check%s: %Lx Bank", "error", "host_hardware"),
        ("linux_hardware", "severity=Uncorrected (Fatal)", "error", "host_hardware"),
        ("linux_hardware", "severity=Correctable, type", "warning", ""),
        ("linux_hardware", "Slot(%s): Card not present", "info", "device_vanished"),
        ("linux_hardware", "to %s, device inaccessible", "error", "device_vanished"),
        ("linux_hardware", "%s: critical temperature reached", "error", "thermal_power"),
        ("linux_hardware", "DRHD: handling fault status reg %x", "error", "host_hardware"),
        (
            "linux_network",
            "device's health compromised - reached miss count",
            "error",
            "nccl_network",
        ),
        ("linux_network", "NETDEV WATCHDOG: CPU: %d: transmit queue", "error", "nccl_network"),
        ("linux_network", "PCIe link lost, device now detached", "error", "device_vanished"),
        (
            "linux_network",
            "The network adapter was stopped because it overheated",
            "error",
            "thermal_power",
        ),
        ("linux_storage", "Disabling device after reset failure: %d", "error", "host_hardware"),
        ("linux_storage", "rejecting I/O to offline device", "error", "filesystem"),
        ("linux_storage", "critical medium error, dev %s", "error", "host_hardware"),
        ("linux_storage", "md/raid1:%s: Disk failure on", "error", "host_hardware"),
        ("linux_file_systems", "not responding, still trying", "info", "filesystem"),
        ("linux_file_systems", "Remounting filesystem read-only", "error", "filesystem"),
        (
            "linux_file_systems",
            "Filesystem has been shut down due to log error",
            "error",
            "filesystem",
        ),
    ],
)
def test_a_message_has_the_class_that_its_document_gives(
    name: str, text: str, level: str, fault: str
) -> None:
    """Class and level of messages that Documentation/ and the sources explain."""
    found = row(name, text)
    assert (found["level"], found["fault"]) == (level, fault)


def test_a_port_that_went_down_is_told_at_level_info_and_has_a_class() -> None:
    """Drivers write it as news, since a port also goes down on purpose."""
    downs = [
        one
        for one in read("linux_network")[1]
        if one["format"].casefold().endswith(("link is down", "link down"))
    ]
    assert len(downs) >= 10
    assert {one["fault"] for one in downs} == {"nccl_network"}


def test_what_a_driver_writes_of_a_device_needs_the_name_of_the_driver() -> None:
    """A text such as "link down" alone could be anyone's."""
    rows = [one for one in read("linux_network")[1] if "/mellanox/mlx5/" in one["at"]]
    assert len(rows) > 1000
    short = [one for one in rows if len(one["format"]) < 16]
    assert all(one.get("requires") for one in short)
    assert {"mlx5"} == {one["requires"][0] for one in short if "Link" in one["format"]}
