"""amd_gpu: every AMD GPU is there, counts no uncorrected error in any block, has its bad pages retired, and is cool.

Counts are those since the driver was loaded, from sysfs, `amdsmi` or rocm-smi. Two dies of one package are one part: their counts
are added up, and the package is named with the die. Of XGMI it judges what the library reports of links, whether each GPU has as
many partners as the others by rocm-smi's topology, and the errors of its block.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, GPUS, HealthCheck, at_least, at_most, none_of
from healthchecks.devices import amd
from healthchecks.devices.readings import Device, Reading, Survey, counter
from healthchecks.devices.topology import Topology, read_topology

NAME = "amd_gpu"
# The block of links between GPUs.
XGMI = ("xgmi_wafl", "xgmi")
MARGINS = {
    "junction_margin": "amd_gpu.junction_margin_celsius",
    "memory_margin": "amd_gpu.memory_margin_celsius",
}
# Of the library.
XGMI_STATES = {
    "xgmi_status": "amd_gpu.xgmi_error_status",
    "xgmi_links_down": "amd_gpu.xgmi_links_down",
}
# As rocm-smi's topology names them.
XGMI_LINK = "XGMI"
INFORMATIVE = ("bad_pages", "pcie_replays", "junction_temperature", "memory_temperature")
PAGES = {
    "pending_bad_pages": "amd_gpu.pending_bad_pages",
    "failed_bad_pages": "amd_gpu.failed_bad_pages",
}


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Ask about every GPU, and judge each package."""
    survey = amd.survey(node)
    evidence = [*judge_survey(survey, node, judge)]
    if len(survey.devices) > 1:
        evidence.append(judge_partners(read_topology(node), judge))
    return Verdict(check=NAME, evidence=tuple(evidence), trouble=survey.trouble)


def judge_partners(topology: Topology, judge: Judge) -> Evidence:
    """Compare how many GPUs each one reaches by XGMI with the most that one of the node does."""
    name, subject = "amd_gpu.missing_xgmi_partners", "rocm-smi"
    if topology.is_absent:
        return Evidence(name=name, value=None, subject=subject, note=topology.trouble)
    if not topology.links:
        return judge(name, None, subject=subject, note=topology.trouble)
    partners = Counter(first for (first, _), kind in topology.links.items() if kind == XGMI_LINK)
    most = max(partners.values(), default=0)
    short = {
        first: most - partners[first]
        for first in sorted({first for first, _ in topology.links})
        if partners[first] < most
    }
    note = ", ".join(f"GPU {first} reaches {partners[first]} of {most}" for first in short)
    return judge(name, sum(short.values()), subject=subject, note=note)


def judge_survey(survey: Survey, node: NodeFacts, judge: Judge) -> Iterator[Evidence]:
    """Judge what the sources reported of all GPUs."""
    found = len(survey.devices)
    missing = max(0, node.num_gpus - found) if found else None
    if missing and survey.trouble:
        # The others may be there: nothing has looked at them.
        missing = None
    note = f"{found} of {node.num_gpus}" if found else survey.trouble or "no GPU was found"
    yield judge("amd_gpu.missing_gpus", missing, subject=survey.source, note=note)
    driver = survey.system.last("driver").text
    yield Evidence(name="amd_gpu.driver", value=None, subject=survey.source, note=driver)
    widest = max((each.last("pcie_width").value or 0 for each in survey.devices), default=0)
    for package, dies in amd.packages(survey.devices).items():
        subject = package if len(dies) == 1 else f"{package}, {len(dies)} dies"
        yield from _errors(subject, dies, judge)
        for key, name in PAGES.items():
            readings = {die.name: die.last(key) for die in dies}
            yield _total(name, subject, readings, judge=judge)
        for die in dies:
            yield from _state(die, subject, widest=widest, judge=judge)


def _errors(subject: str, dies: Sequence[Device], judge: Judge) -> Iterator[Evidence]:
    for kind, in_links, name in (
        ("ue", False, "amd_gpu.uncorrected_errors"),
        ("ue", True, "amd_gpu.xgmi_errors"),
        ("ce", False, "amd_gpu.corrected_errors"),
    ):
        readings = {
            f"{key.partition('.')[2]} of {die.name}": counter(each[-1])
            for die in dies
            for key, each in die.series.items()
            if key.startswith(f"{kind}.") and (key.partition(".")[2] in XGMI) == in_links
        }
        counted = {key: each for key, each in readings.items() if not each.is_absent}
        if counted or not in_links:
            yield _total(name, subject, counted, judge=judge)
        else:
            yield Evidence(name=name, value=None, subject=subject, note="it has no such block")


def _total(name: str, subject: str, readings: dict[str, Reading], *, judge: Judge) -> Evidence:
    """Add up the counts of a package; one beyond the limit fails, whatever could not be read."""
    unread = [
        f"{key}: {each.trouble or 'not reported'}"
        for key, each in readings.items()
        if each.value is None
    ]
    total = sum(each.value or 0 for each in readings.values())
    note = ", ".join(f"{each.value:.0f} in {key}" for key, each in readings.items() if each.value)
    evidence = judge(name, total if readings else None, subject=subject, note=note)
    if unread and evidence.outcome != "FAIL":
        return judge(name, None, subject=subject, note="; ".join(unread[:4]))
    return evidence if readings else judge(name, None, subject=subject, note="no count can be read")


def _state(die: Device, subject: str, *, widest: float, judge: Judge) -> Iterator[Evidence]:
    own = f"{die.name} of {subject}" if "dies" in subject else die.name
    for key, name in MARGINS.items():
        reading = die.last(key)
        if reading.value is None and key not in die.series:
            yield Evidence(name=name, value=None, subject=own, note="no limit is reported")
        elif reading.is_absent:
            yield Evidence(name=name, value=None, subject=own, note="not reported")
        else:
            yield judge(name, reading.value, subject=own, note=reading.trouble)
    width, most = die.last("pcie_width"), die.last("pcie_max_width").value
    if width.value is not None and widest:
        note = f"x{width.value:.0f} of x{most or 0:.0f}"
        yield judge("amd_gpu.pcie_width_ratio", width.value / widest, subject=own, note=note)
    else:
        yield Evidence(
            name="amd_gpu.pcie_width_ratio", value=None, subject=own, note="not reported"
        )
    for key, name in XGMI_STATES.items():
        reading = die.last(key)
        if reading.is_absent or key not in die.series:
            yield Evidence(name=name, value=None, subject=own, note="not reported")
        else:
            yield judge(name, reading.value, subject=own, note=reading.trouble)
    for key in INFORMATIVE:
        reading = die.last(key)
        yield Evidence(name=f"amd_gpu.{key}", value=reading.value, subject=own)


CHECK = HealthCheck(
    name=NAME,
    position=90,
    run=check,
    needs=("num_gpus", "gpu_vendor", "sysfs"),
    seconds={"passive": 2.0},
    covers=(GPUS,),
    needs_gpu=True,
    gpu_vendor="amd",
    limits={
        "amd_gpu.missing_gpus": none_of("GPUs"),
        "amd_gpu.uncorrected_errors": none_of("errors", "device-metrics-exporter: its default"),
        "amd_gpu.xgmi_errors": none_of("errors", "device-metrics-exporter: its default"),
        "amd_gpu.xgmi_error_status": none_of("errors", "amdsmi: 1 is an error, 2 are several"),
        "amd_gpu.xgmi_links_down": none_of("links", "amdsmi: the driver's own state of each link"),
        "amd_gpu.missing_xgmi_partners": none_of("partners", "the most of a GPU in this node"),
        "amd_gpu.corrected_errors": at_most(20e6, "errors", CHOSEN, most=1e12),
        "amd_gpu.pending_bad_pages": none_of("pages", "amdgpu: a reset retires them"),
        "amd_gpu.failed_bad_pages": none_of("pages", "amdgpu: they could not be retired"),
        "amd_gpu.junction_margin_celsius": at_least(5, "degrees", CHOSEN, least=1, most=100),
        "amd_gpu.memory_margin_celsius": at_least(5, "degrees", CHOSEN, least=1, most=100),
        "amd_gpu.pcie_width_ratio": at_least(
            1, "ratio", "the widest in this node", least=0.1, most=1
        ),
    },
)
