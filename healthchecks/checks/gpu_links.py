"""gpu_links: NVLinks are up and make no errors, PCIe is as wide as elsewhere in the node and replays little, the fabric is ready.

A counter that is read once is no rate: counters are read several times, a moment apart, and a link is bad if its replays or
recoveries rose in too many of the windows between. Idle values hide faults: an idle GPU lowers its PCIe generation, and no error
occurs on a link without traffic. So the state of the GPU is noted, and `bandwidth` measures under load.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import GPUS, HealthCheck, at_least, at_most, none_of
from healthchecks.devices import nvidia
from healthchecks.devices.readings import Device, Reading, Survey, counter

NAME = "gpu_links"
# Looks at the counters and the seconds between two, at the shortest level and at the others. Chosen, not measured.
SHORT_LOOKS, LONG_LOOKS = (4, 0.1), (31, 0.1)
# Replays of one lane in a minute that are within a bit error rate of 1e-12, by generation.
REPLAYS_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
# From this performance state on, a GPU saves power.
IDLE_PSTATE = 5
# NVML's state of a fabric that is ready.
FABRIC_COMPLETED = 3
# Boards whose links are a bridge that a machine may have or not; the others have all of theirs wired.
BRIDGED = ("PCIE", "NVL", "RTX", "QUADRO", "GEFORCE", "TITAN")
MAX_NAMED = 8


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Look at all links several times."""
    num_samples, seconds = SHORT_LOOKS if node.level == "passive" else LONG_LOOKS
    survey = nvidia.survey(node, "links", num_samples=num_samples, window_seconds=seconds)
    return Verdict(check=NAME, evidence=tuple(judge_survey(survey, judge)))


def judge_survey(survey: Survey, judge: Judge) -> Iterator[Evidence]:
    """Judge what one source reported of all links."""
    devices = [device for device in survey.devices if device.last("usable").value == 1]
    if not devices:
        note = survey.trouble or "no GPU can be used"
        yield judge("gpu_links.inactive_links", None, subject=survey.source, note=note)
        return
    most_links = max(_num_active(device) or 0 for device in devices)
    widths = _widest(devices)
    for device in devices:
        yield from _nvlinks(device, most_links, judge)
        yield from _pcie(device, widths[device.last("name").text], judge=judge)
        yield _fabric(device, judge)


def _num_active(device: Device) -> int | None:
    links = _links(device, "active")
    values = [readings[-1].value for readings in links.values()]
    return None if None in values else sum(value == 1 for value in values)


def _links(device: Device, key: str) -> dict[int, Sequence[Reading]]:
    """Return the readings of a key by link."""
    ending = f".{key}"
    return {
        int(name.removeprefix("link").removesuffix(ending)): readings
        for name, readings in device.series.items()
        if name.startswith("link") and name.endswith(ending)
    }


def _nvlinks(device: Device, most_links: int, judge: Judge) -> Iterator[Evidence]:
    name, num_links = "gpu_links.inactive_links", device.last("num_links")
    if num_links.value is None:
        yield judge(name, None, subject=device.name, note=num_links.trouble or "not reported")
        return
    if num_links.value == 0:
        yield Evidence(name=name, value=None, subject=device.name, note="this GPU has no NVLink")
        return
    active = _num_active(device)
    yield Evidence(
        name="gpu_links.active_links", value=active, subject=device.name, better="higher"
    )
    if active is None:
        unread = [each[-1].trouble for each in _links(device, "active").values() if each]
        note = next(filter(None, unread), "not reported")
        yield judge(name, None, subject=device.name, note=note)
        return
    board = device.last("name").text.upper()
    # A GPU that needs no bridge has all of its links; others are compared with those beside them.
    expected = most_links if any(word in board for word in BRIDGED) else int(num_links.value)
    down = [link for link, each in _links(device, "active").items() if each[-1].value == 0]
    note = f"links {_listed(down)} of {num_links.value:.0f}" if down else ""
    yield judge(name, max(0, expected - active), subject=device.name, note=note)
    yield from _errors(device, judge)


def _errors(device: Device, judge: Judge) -> Iterator[Evidence]:
    """Judge in how many windows the counters of each link rose; the worst link is the GPU's value."""
    name, totals = "gpu_links.windows_with_errors_ratio", 0.0
    troubles: list[str] = []
    ratios: dict[int, float] = {}
    for key in ("replays", "recoveries"):
        for link in _links(device, "active"):
            readings = [counter(each) for each in device.all(f"link{link}.{key}")]
            ratio, trouble = _rising_ratio(readings)
            totals += readings[-1].value or 0
            if ratio is None:
                troubles.append(f"link {link}: {trouble}")
            else:
                ratios[link] = max(ratio, ratios.get(link, 0.0))
    worst = max(ratios.values(), default=None)
    bad = [link for link, ratio in ratios.items() if ratio > 0]
    note = f"links {_listed(bad)}" if bad else ""
    if troubles and not (worst and judge(name, worst).outcome == "FAIL"):
        worst, note = None, "; ".join(troubles[:MAX_NAMED])
    yield judge(name, worst, subject=device.name, note=note)
    yield Evidence(name="gpu_links.errors_since_load", value=totals, subject=device.name)


def _rising_ratio(readings: Sequence[Reading]) -> tuple[float | None, str]:
    """Return in which share of the windows a counter rose; None, and why, if there is none."""
    unread = [reading for reading in readings if reading.value is None]
    if unread:
        return None, unread[0].trouble or "it has no such counter"
    if len(readings) < 2:
        return None, "read once, which is no rate"
    pairs = [
        (before.value or 0, after.value or 0) for before, after in itertools.pairwise(readings)
    ]
    if any(after < before for before, after in pairs):
        return None, "its counter was reset meanwhile"
    return sum(after > before for before, after in pairs) / len(pairs), ""


def _widest(devices: Sequence[Device]) -> dict[str, float]:
    """Return the widest PCIe link of the node by model of GPU."""
    widest: dict[str, float] = defaultdict(float)
    for device in devices:
        model = device.last("name").text
        widest[model] = max(widest[model], device.last("pcie_width").value or 0)
    return widest


def _pcie(device: Device, widest: float, *, judge: Judge) -> Iterator[Evidence]:
    width, most = device.last("pcie_width"), device.last("pcie_max_width")
    pstate = device.last("pstate").value
    is_idle = pstate is not None and pstate >= IDLE_PSTATE
    state = "performance state not reported" if pstate is None else f"P{pstate:.0f}"
    name = "gpu_links.pcie_width_ratio"
    if width.value is None:
        yield judge(name, None, subject=device.name, note=width.trouble or "not reported")
    else:
        ratio = width.value / widest if widest else None
        note = f"x{width.value:.0f} of x{most.value or 0:.0f}, {state}"
        if is_idle and ratio is not None and ratio < 1:
            ratio, note = None, f"{note}: an idle link may be narrower"
        yield judge(name, ratio, subject=device.name, note=note)
    for key in ("pcie_width", "pcie_generation"):
        reading = device.last(key)
        # An idle GPU lowers its generation: no value to compare with those of others.
        better = "" if key == "pcie_generation" and is_idle else "higher"
        yield Evidence(
            name=f"gpu_links.{key}",
            value=reading.value,
            subject=device.name,
            note=reading.trouble or state,
            better="higher" if better else "",
        )
    yield from _replays(device, judge)


def _replays(device: Device, judge: Judge) -> Iterator[Evidence]:
    """Compare the replays of the moment with what the link may have in a whole minute."""
    name, readings = "gpu_links.pcie_replay_ratio", device.all("pcie_replays")
    if readings[-1].is_absent:
        yield Evidence(name=name, value=None, subject=device.name, note="not reported")
        return
    counts = [counter(reading) for reading in readings]
    values = [reading.value for reading in counts if reading.value is not None]
    generation, width = device.last("pcie_generation").value, device.last("pcie_width").value
    rate = REPLAYS_PER_LANE.get(int(generation or 0))
    if len(values) < len(counts) or len(values) < 2 or rate is None or not width:
        unread = [reading.trouble for reading in counts if reading.trouble]
        yield judge(
            name, None, subject=device.name, note=(unread or ["read once, which is no rate"])[0]
        )
    elif values[-1] < values[0]:
        yield judge(name, None, subject=device.name, note="its counter was reset meanwhile")
    else:
        ratio = (values[-1] - values[0]) / math.ceil(rate * width)
        note = f"{values[-1] - values[0]:.0f} replays while it was read"
        yield judge(name, ratio, subject=device.name, note=note)
    yield Evidence(
        name="gpu_links.pcie_replays",
        value=values[-1] if values else None,
        subject=device.name,
        better="lower",
    )


def _fabric(device: Device, judge: Judge) -> Evidence:
    """A GPU behind NVSwitches is of use once the fabric manager has set up its links."""
    name, reading = "gpu_links.fabric_not_ready", device.last("fabric_state")
    if reading.is_absent or reading.value == 0:
        return Evidence(name=name, value=None, subject=device.name, note="no fabric to be set up")
    if reading.value is None:
        return judge(name, None, subject=device.name, note=reading.trouble)
    is_ready = reading.value == FABRIC_COMPLETED and not reading.text.startswith("status")
    states = {1: "not started", 2: "in progress", 3: "completed"}
    note = "" if is_ready else f"{states.get(int(reading.value), '?')} {reading.text}".strip()
    return judge(name, 0 if is_ready else 1, subject=device.name, note=note)


def _listed(links: Sequence[int]) -> str:
    shown = ", ".join(str(link) for link in sorted(links)[:MAX_NAMED])
    return f"{shown}, ..." if len(links) > MAX_NAMED else shown


CHECK = HealthCheck(
    name=NAME,
    position=85,
    run=check,
    seconds={"passive": 1.2, "quick": 5.0},
    covers=(GPUS,),
    needs_gpu=True,
    gpu_vendor="nvidia",
    limits={
        "gpu_links.inactive_links": none_of("links"),
        "gpu_links.windows_with_errors_ratio": at_most(
            0.5, "ratio", "NVRx: more than 15 of 30 windows", most=0.99
        ),
        "gpu_links.pcie_width_ratio": at_least(
            1, "ratio", "the widest of the same model in this node", least=0.1, most=1
        ),
        "gpu_links.pcie_replay_ratio": at_most(
            1, "ratio", "DCGM: what a bit error rate of 1e-12 allows in a minute", most=1e6
        ),
        "gpu_links.fabric_not_ready": none_of("GPUs", "NVML: GpuFabricInfo"),
    },
)
