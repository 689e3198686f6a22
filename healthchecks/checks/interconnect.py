"""interconnect: ports of InfiniBand and Ethernet are up, at the rate of their neighbours, and count no errors meanwhile.

All of it is read from sysfs, in a child, and needs no rights. Counters are read twice and compared; what they were before is
noted, since they began when the driver was loaded. A counter that is full shows nothing: it is UNKNOWN. A port that was never up
since then may have no cable: it is noted, and `--ports` says how many there should be. It sends nothing over the network.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, HealthCheck, at_least, at_most, none_of
from healthchecks.devices.readings import Reading
from healthchecks.devices.sysfs import Files, read_files

NAME = "interconnect"
# Between the two looks at the counters, at the shortest level and at the others. Chosen, not measured.
SHORT_SECONDS, LONG_SECONDS = 0.3, 3.0
DAY_SECONDS = 86_400.0
PORT = "class/infiniband/*/ports/*"
PORT_FILES = ("state", "phys_state", "rate", "link_layer", "counters/*", "hw_counters/*")
LINK_FILES = ("operstate", "carrier_changes", "carrier_down_count", "carrier_up_count", "speed")
STATISTICS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped")
PATTERNS = (
    "class/infiniband/*/board_id",
    "class/infiniband/*/hca_type",
    "class/infiniband/*/fw_ver",
    *(f"{PORT}/{name}" for name in PORT_FILES),
    # A network card has a device; bridges and tunnels have none.
    "class/net/*/device/uevent",
    *(f"class/net/*/{name}" for name in LINK_FILES),
    *(f"class/net/*/statistics/{name}" for name in STATISTICS),
)
ACTIVE, LINK_UP = "4", "5"
# A rise of any of these within the window.
FATAL = (
    "counters/link_downed",
    "counters/excessive_buffer_overrun_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/rnr_nak_retry_err",
)
SYMBOLS, RECOVERIES = "counters/symbol_error", "counters/link_error_recovery"
# Where they stop, by their width in bits: drivers/infiniband/core/sysfs.c, PORT_PMA_ATTR.
FULL = {
    "counters/symbol_error": 0xFFFF,
    "counters/link_error_recovery": 0xFF,
    "counters/link_downed": 0xFF,
    "counters/local_link_integrity_errors": 0xF,
    "counters/excessive_buffer_overrun_errors": 0xF,
    "hw_counters/rnr_nak_retry_err": (1 << 64) - 1,
}
FULL_WORD = (1 << 32) - 1


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Read all ports and cards twice."""
    seconds = SHORT_SECONDS if node.level == "passive" else LONG_SECONDS
    files = read_files(node, PATTERNS, num_samples=2, window_seconds=seconds)
    evidence = (
        *_ports(files, node, seconds=seconds, judge=judge),
        *_cards(files, judge),
    )
    if not evidence and not files.trouble:
        nothing = f"{node.sysfs} shows no port of InfiniBand and no network card"
        return Verdict(check=NAME, trouble=nothing)
    return Verdict(check=NAME, evidence=evidence, trouble=files.trouble)


def _ports(files: Files, node: NodeFacts, *, seconds: float, judge: Judge) -> Iterator[Evidence]:
    ports = [path.removesuffix("/state") for path in files.matching(f"{PORT}/state")]
    rates = _highest_rates(files, ports)
    num_active = 0
    for port in ports:
        subject = _name(port)
        state = files.all(f"{port}/state")[-1]
        is_active = state.text.startswith(ACTIVE)
        num_active += is_active
        yield _state(files, port, state=state, judge=judge)
        if is_active:
            yield _rate(files, port, highest=rates[_board(files, port)], judge=judge)
            yield from _counters(files, port, seconds=seconds, judge=judge)
        firmware = files.text(f"{_adapter(port)}/fw_ver")
        yield Evidence(name="interconnect.firmware", value=None, subject=subject, note=firmware)
    if node.num_ports:
        missing = None if files.trouble else max(0, node.num_ports - num_active)
        note = files.trouble or f"{num_active} of {node.num_ports} are active"
        yield judge("interconnect.missing_ports", missing, note=note)
    if ports:
        yield Evidence(name="interconnect.active_ports", value=num_active, better="higher")


def _state(files: Files, port: str, *, state: Reading, judge: Judge) -> Evidence:
    """A port that is physically up and not active, or that was up and is not, is down; one that never was may have no cable."""
    name, subject = "interconnect.ports_down", _name(port)
    physical = files.all(f"{port}/phys_state")[-1]
    trouble = state.trouble or physical.trouble
    if trouble or not state.text[:1].isdecimal() or not physical.text[:1].isdecimal():
        note = trouble or f"{state.text!r}, {physical.text!r}"
        return judge(name, None, subject=subject, note=note)
    note = f"{state.text}, {physical.text}"
    if state.text.startswith(ACTIVE):
        return judge(name, 0, subject=subject)
    times_down = files.number(f"{port}/counters/link_downed").value
    if physical.text.startswith(LINK_UP) or times_down:
        return judge(name, 1, subject=subject, note=note)
    return Evidence(
        name=name, value=None, subject=subject, note=f"{note}: never up since the driver was loaded"
    )


def _rate(files: Files, port: str, *, highest: float, judge: Judge) -> Evidence:
    rate = files.number(f"{port}/rate")
    ratio = rate.value / highest if rate.value is not None and highest else None
    note = rate.text or rate.trouble or "not reported"
    return judge("interconnect.port_rate_ratio", ratio, subject=_name(port), note=note)


def _highest_rates(files: Files, ports: Sequence[str]) -> dict[str, float]:
    """Return the highest rate in this node by kind of adapter: what the others of it should have."""
    highest: dict[str, float] = defaultdict(float)
    for port in ports:
        rate = files.number(f"{port}/rate").value or 0
        highest[_board(files, port)] = max(highest[_board(files, port)], rate)
    return highest


def _counters(files: Files, port: str, *, seconds: float, judge: Judge) -> Iterator[Evidence]:
    subject = _name(port)
    rises = {name: _rise(files, f"{port}/{name}", FULL[name]) for name in FULL}
    fatal = {name: rises[name] for name in FATAL if not rises[name].is_absent}
    unread = [
        f"{name.rpartition('/')[2]}: {rise.trouble}" for name, rise in fatal.items() if rise.trouble
    ]
    risen = [name.rpartition("/")[2] for name, rise in fatal.items() if rise.value]
    total = (
        None if (unread and not risen) or not fatal else sum(r.value or 0 for r in fatal.values())
    )
    note = ", ".join(risen or unread) or ("" if fatal else "this port has no such counters")
    yield judge("interconnect.fatal_errors", total, subject=subject, note=note)
    symbols = rises[SYMBOLS]
    rate = None if symbols.value is None else symbols.value / seconds
    for name, value, rise in (
        ("interconnect.symbol_errors_per_second", rate, symbols),
        ("interconnect.link_recoveries", rises[RECOVERIES].value, rises[RECOVERIES]),
    ):
        if rise.is_absent:
            yield Evidence(name=name, value=None, subject=subject, note="no such counter")
        else:
            yield judge(name, value, subject=subject, note=rise.trouble)
    for name in FULL:
        before = files.number(f"{port}/{name}").value
        short = name.rpartition("/")[2]
        yield Evidence(name=f"interconnect.{short}", value=before, subject=subject)


def _rise(files: Files, path: str, full: int) -> Reading:
    """Return by how much a counter rose between the two looks; absent where there is no such file."""
    if path not in files.series:
        return Reading()
    readings = files.numbers(path)
    values = [reading.value for reading in readings if reading.value is not None]
    if len(values) < 2:
        trouble = next((each.trouble for each in readings if each.trouble), "")
        return Reading(trouble=trouble or "read once, which is no rate")
    if values[-1] in (full, FULL_WORD, float((1 << 64) - 1)) or values[-1] < 0:
        return Reading(trouble=f"{values[-1]:.0f}: the counter is full")
    if values[-1] < values[0]:
        return Reading(trouble="the counter was reset meanwhile")
    return Reading(value=values[-1] - values[0])


def _cards(files: Files, judge: Judge) -> Iterator[Evidence]:
    for path in files.matching("class/net/*/device/uevent"):
        card = path.removesuffix("/device/uevent")
        subject = card.rpartition("/")[2]
        operstate = files.all(f"{card}/operstate")[-1]
        losses = files.number(f"{card}/carrier_down_count")
        is_up = operstate.text in ("up", "unknown")
        name = "interconnect.cards_down"
        if operstate.trouble or not operstate.text:
            note = operstate.trouble or "no state reported"
            yield judge(name, None, subject=subject, note=note)
        elif is_up or files.number(f"{card}/carrier_up_count").value:
            yield judge(name, 0 if is_up else 1, subject=subject, note=operstate.text)
        else:
            note = f"{operstate.text}: never up since the driver was loaded"
            yield Evidence(name=name, value=None, subject=subject, note=note)
        if is_up:
            yield _losses(losses, subject, judge=judge)
            yield from _packets(files, card, judge)


def _losses(losses: Reading, subject: str, *, judge: Judge) -> Evidence:
    """Return how often a day the card lost its carrier since the boot, the first day as a whole."""
    name = "interconnect.carrier_losses_per_day"
    days = max(1.0, time.clock_gettime(time.CLOCK_BOOTTIME) / DAY_SECONDS)
    if losses.is_absent:
        return Evidence(name=name, value=None, subject=subject, note="not reported")
    value = None if losses.value is None or losses.value == FULL_WORD else losses.value / days
    return judge(name, value, subject=subject, note=losses.trouble)


def _packets(files: Files, card: str, judge: Judge) -> Iterator[Evidence]:
    subject = card.rpartition("/")[2]
    paths = {name: f"{card}/statistics/{name}" for name in STATISTICS}
    rises = {name: _rise(files, path, (1 << 64) - 1) for name, path in paths.items()}
    errors = {name: rise for name, rise in rises.items() if name.endswith("errors")}
    unread = [
        f"{name}: {rise.trouble}"
        for name, rise in errors.items()
        if rise.trouble and rise.value is None
    ]
    counted = [rise.value for rise in errors.values() if rise.value is not None]
    value = None if unread or not counted else sum(counted)
    note = "; ".join(unread) or ("" if counted else "not reported")
    yield judge("interconnect.packet_errors", value, subject=subject, note=note)
    for name in ("rx_dropped", "tx_dropped"):
        drops = files.number(paths[name]).value
        note = f"{rises[name].value:.0f} meanwhile" if rises[name].value is not None else ""
        yield Evidence(name=f"interconnect.{name}", value=drops, subject=subject, note=note)


def _name(port: str) -> str:
    _, _, adapter, _, number = port.split("/")
    return f"{adapter}/{number}"


def _adapter(port: str) -> str:
    return "/".join(port.split("/")[:3])


def _board(files: Files, port: str) -> str:
    adapter = _adapter(port)
    return files.text(f"{adapter}/board_id") or files.text(f"{adapter}/hca_type")


CHECK = HealthCheck(
    name=NAME,
    position=75,
    run=check,
    needs=("sysfs", "num_ports"),
    seconds={"passive": 1.0, "quick": 4.0},
    # A machine may have no card that the kernel shows: UNKNOWN costs it nothing, and a FAIL counts.
    is_required=False,
    limits={
        "interconnect.missing_ports": none_of("ports"),
        "interconnect.ports_down": none_of("ports"),
        "interconnect.port_rate_ratio": at_least(
            1, "ratio", "the fastest of the same kind in this node", least=0.01, most=1
        ),
        "interconnect.fatal_errors": none_of("errors", "NVSentinel: any rise of these is fatal"),
        "interconnect.symbol_errors_per_second": at_most(10, "errors/s", "NVSentinel", most=1e6),
        "interconnect.link_recoveries": at_most(
            5, "recoveries", "NVSentinel: five in a minute", most=1e6
        ),
        "interconnect.cards_down": none_of("cards"),
        "interconnect.carrier_losses_per_day": at_most(
            4, "losses", "azurehpc-health-checks: five in a day fail", most=1e4
        ),
        "interconnect.packet_errors": at_most(10, "errors", CHOSEN, most=1e6),
    },
)
