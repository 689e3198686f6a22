"""Events of baseboard management controllers, as ipmitool writes them of the system event log."""

import re
from collections import Counter
from collections.abc import Iterator

from tools.catalogues import rows
from tools.catalogues.debian import SourceTree, source_tree
from tools.catalogues.rows import Header, Row
from tools.catalogues.rules import AT_FAULT, Rule, first_rule, judged

NAMES = ("ipmi_events",)
VERSION = "1.8.19"
_TABLE = "include/ipmitool/ipmi_sel.h"
_EVENT = re.compile(
    r'\{\s*(0x[0-9a-f]{2}),\s*0x[0-9a-f]{2},\s*0x[0-9a-f]{2},\s*"([^"]+)"\s*\}', re.IGNORECASE
)
# Types of sensors, by their number in IPMI 2.0, table 42-3.
_SENSORS = {
    0x01: "Temperature",
    0x02: "Voltage",
    0x04: "Fan",
    0x05: "Physical Security",
    0x07: "Processor",
    0x08: "Power Supply",
    0x09: "Power Unit",
    0x0C: "Memory",
    0x0D: "Drive Slot",
    0x0F: "System Firmware",
    0x10: "Event Logging",
    0x11: "Watchdog",
    0x12: "System Event",
    0x13: "Critical Interrupt",
    0x19: "Chip Set",
    0x1B: "Cable",
    0x1D: "System Boot",
    0x1E: "Boot Error",
    0x20: "OS Critical Stop",
    0x21: "Slot",
    0x22: "System ACPI Power State",
    0x23: "Watchdog",
    0x28: "Management Subsys Health",
    0x29: "Battery",
}
# What is an event and no fault.
_HARMLESS = re.compile(
    r"presence|present$|^OK|enabled|device installed|(?<!un)correctable(?! .*limit)|initiated|cleared"
    r"|log (?:area|clear)|boot completed|redundancy regained|S\d|state asserted|deasserted|normal|password"
    r"|lockout|timestamp|^Upper .* going low|^Lower .* going high|requested|graceful|intrusion|undock|dock$"
    r"|initialization|^Transition to (?:OK|Non-critical from)|reconfigured|unspecified|monitor$|^Starting"
    # Of firmware: how far a start is.
    r"|resource configuration|wake-up vector|docking station|Keyboard test|Pointing device test|User authentication"
    r"|Unknown Progress",
    re.IGNORECASE,
)
# A server that was switched off, or off and on, by request as a rule.
_ORDINARY = ("Power Unit Power off/down", "Power Unit Power cycle")
RULES = (
    Rule(
        r"^(?:Memory|Processor).*(?:uncorrectable|parity|IERR|scrub failed)",
        "host_hardware",
        "memory or the CPU reports an error that it cannot correct",
        lasting=True,
    ),
    Rule(r"^(?:Temperature|Fan)|thermal trip|throttl|overtemp", "thermal_power", "too hot"),
    Rule(
        r"^(?:Power Supply|Power Unit|Voltage)",
        "host_hardware",
        "a supply of power failed",
        lasting=True,
    ),
    Rule(
        r"^(?:Drive Slot|Slot|Cable).*(?:removed|removal|disconnect|not present)",
        "device_vanished",
        "a device left its slot",
    ),
    Rule(
        r"^OS Critical Stop|^Watchdog.*(?:reset|power|interrupt|expired)|^System Boot|graceful",
        "node_failure",
        "the operating system stopped, or the watchdog reset the node",
    ),
    Rule("", "host_hardware", "a part of the host reports a fault"),
)
_THRESHOLDS = (
    ("Upper Critical going high", "error"),
    ("Upper Non-recoverable going high", "error"),
    ("Lower Critical going low", "error"),
    ("Lower Non-recoverable going low", "error"),
    ("Upper Non-critical going high", "warning"),
    ("Lower Non-critical going low", "warning"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue of events. Raises SourceMissing."""
    with source_tree("ipmitool", VERSION, [_TABLE]) as tree:
        header = Header(
            "BMC event log, as ipmitool writes it",
            VERSION,
            made="2026-11-26",
            program=__name__,
            source=f"Debian source package ipmitool {VERSION}: {_TABLE}",
            style="printf",
            layer="machine",
            scope="node",
        )
        return rows.write(name, header, _rows(tree))


def _rows(tree: SourceTree) -> Iterator[Row]:
    (table,) = tree.files(_TABLE)
    for number, event in _EVENT.findall(table.read_text(errors="replace")):
        if sensor := _SENSORS.get(int(number, 16)):
            is_harmless = _HARMLESS.search(event) or f"{sensor} {event.strip()}" in _ORDINARY
            yield _row(sensor, event.strip(), "info" if is_harmless else "error")
    for sensor in ("Temperature", "Fan", "Voltage", "Power Supply", "Power Unit"):
        for event, level in _THRESHOLDS:
            yield _row(sensor, event, "error" if level == "error" else "warning")


def _row(sensor: str, event: str, level: rows.Level) -> Row:
    # `12 | 11/26/2026 | 03:04:05 | Memory #0x53 | Uncorrectable ECC (DIMM_A1) | Asserted`
    row = Row(_TABLE, f"| {sensor} %s | {event}%s | Asserted", level, requires=("Asserted",))
    rule = first_rule(RULES, "", f"{sensor} {event}", level) if level in AT_FAULT else None
    return judged(row, rule)
