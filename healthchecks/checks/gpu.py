"""gpu: every NVIDIA GPU is there, its memory is sound, it is cool and not slowed down, and the driver wants no reset of it.

NVML is asked in a child, or nvidia-smi where the library fails. A value that a device says it does not have is noted; one that
could not be read is UNKNOWN. What must be there follows from the device itself: with ECC on, its counters and its spare rows or
retired pages. Memory errors are those since the driver was loaded. It changes no setting, and loads no GPU.
"""

from collections.abc import Iterator

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, GPUS, HealthCheck, at_least, at_most, none_of
from healthchecks.devices import nvidia
from healthchecks.devices.readings import Device, Reading, Survey, counter

NAME = "gpu"
# Bits of NVML's mask of what holds the clocks down.
THERMAL, POWER_BRAKE = 0x8 | 0x20 | 0x40, 0x80
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain and reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
# With ECC on, a GPU has these.
ECC_COUNTERS = ("ecc_uncorrected", "ecc_corrected")
# By key: the name of the limit.
COUNTERS = {
    "ecc_uncorrected": "gpu.uncorrected_errors",
    "ecc_corrected": "gpu.corrected_errors",
    "sram_uncorrected": "gpu.sram_uncorrected_errors",
    "uncorrectable_remaps": "gpu.uncorrectable_remaps",
    "pending_remaps": "gpu.pending_remaps",
    "failed_remaps": "gpu.failed_remaps",
    "retired_pages": "gpu.retired_pages",
    "pending_retirements": "gpu.pending_retirements",
}
MARGINS = {
    "slowdown_margin": "gpu.slowdown_margin_celsius",
    "memory_margin": "gpu.memory_margin_celsius",
}
INFORMATIVE = {
    "temperature": "celsius",
    "sm_clock": "MHz",
    "max_sm_clock": "MHz",
    "power_limit": "W",
    "persistence": "",
    "ecc_enabled": "",
    "mig": "",
}
# Nodes of a class have the same.
ALIKE = frozenset({"max_sm_clock", "power_limit"})


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Ask about every GPU, and judge each answer."""
    survey = nvidia.survey(node, "health")
    return Verdict(check=NAME, evidence=tuple(judge_survey(survey, node, judge)))


def judge_survey(survey: Survey, node: NodeFacts, judge: Judge) -> Iterator[Evidence]:
    """Judge what one source said of all GPUs."""
    yield from _presence(survey, node, judge)
    for key in ("driver", "cuda"):
        reading = survey.system.last(key)
        note = reading.text or reading.trouble
        yield Evidence(name=f"gpu.{key}", value=reading.value, subject=survey.source, note=note)
    for device in survey.devices:
        if device.last("usable").value == 1:
            yield from _memory(device, judge)
            yield from _health(device, judge)


def _presence(survey: Survey, node: NodeFacts, judge: Judge) -> Iterator[Evidence]:
    """Compare how many GPUs programs can use with how many there should be."""
    name = "gpu.missing_gpus"
    usable = [device.last("usable") for device in survey.devices]
    lost = [
        device.name
        for device, reading in zip(survey.devices, usable, strict=True)
        if reading.value == 0
    ]
    unread = [reading for reading in usable if reading.value is None]
    if not survey.devices or unread:
        trouble = unread[0].trouble if unread else survey.trouble or "no GPU was found"
        yield judge(name, None, subject=survey.source, note=trouble)
        return
    missing: int | None = max(len(lost), node.num_gpus - (len(usable) - len(lost)))
    note = f"lost: {', '.join(lost)}" if lost else f"{len(usable)} of {node.num_gpus}"
    if missing and survey.trouble and not lost:
        # The others may be there: nothing has looked at them.
        missing, note = None, survey.trouble
    yield judge(name, missing, subject=survey.source, note=note)


def _memory(device: Device, judge: Judge) -> Iterator[Evidence]:
    has_ecc = device.last("ecc_enabled").value == 1
    for key, name in COUNTERS.items():
        reading = counter(device.last(key))
        if reading.is_absent and not (has_ecc and key in ECC_COUNTERS):
            yield _absent(name, device)
            continue
        note = reading.trouble or ("ECC is on, and there is no count" if reading.is_absent else "")
        yield judge(name, reading.value, subject=device.name, note=note)


def _health(device: Device, judge: Judge) -> Iterator[Evidence]:
    yield _judged(device.last("recovery_action"), "gpu.recovery_action", device, judge=judge)
    for key, name in MARGINS.items():
        yield _judged(device.last(key), name, device, judge=judge)
    yield from _clocks(device, judge)
    for key, unit in INFORMATIVE.items():
        reading = device.last(key)
        yield Evidence(
            name=f"gpu.{key}",
            value=reading.value,
            unit=unit,
            subject=device.name,
            note=reading.trouble,
            better="higher" if key in ALIKE else "",
        )
    processes = device.last("processes")
    yield Evidence(
        name="gpu.processes",
        value=processes.value,
        subject=device.name,
        note=processes.text or processes.trouble,
    )


def _judged(reading: Reading, name: str, device: Device, *, judge: Judge) -> Evidence:
    if reading.is_absent:
        return _absent(name, device)
    note = reading.trouble
    if name == "gpu.recovery_action" and reading.value:
        note = f"the driver wants: {ACTIONS.get(int(reading.value), 'an action that is not known')}"
    return judge(name, reading.value, subject=device.name, note=note)


def _clocks(device: Device, judge: Judge) -> Iterator[Evidence]:
    reading = device.last("clock_reasons")
    mask = None if reading.value is None else int(reading.value)
    for name, bits in (("gpu.thermal_slowdowns", THERMAL), ("gpu.power_brakes", POWER_BRAKE)):
        if mask is None:
            yield judge(name, None, subject=device.name, note=reading.trouble or "not reported")
            continue
        active = [text for bit, text in REASONS.items() if mask & bits & bit]
        yield judge(name, len(active), subject=device.name, note=", ".join(active))
    every = [text for bit, text in REASONS.items() if mask is not None and mask & bit]
    yield Evidence(name="gpu.clock_reasons", value=mask, subject=device.name, note=", ".join(every))


def _absent(name: str, device: Device) -> Evidence:
    return Evidence(name=name, value=None, subject=device.name, note="this GPU does not report it")


CHECK = HealthCheck(
    name=NAME,
    position=80,
    run=check,
    needs=("num_gpus",),
    covers=(GPUS,),
    needs_gpu=True,
    gpu_vendor="nvidia",
    limits={
        "gpu.missing_gpus": none_of("GPUs"),
        "gpu.uncorrected_errors": none_of("errors"),
        "gpu.corrected_errors": at_most(
            20e6, "errors", "azurehpc-health-checks: corrected DRAM errors", most=1e12
        ),
        "gpu.sram_uncorrected_errors": at_most(
            4, "errors", "NVIDIA's guidance, as ml-engineering and sichek quote it", most=1e6
        ),
        "gpu.uncorrectable_remaps": at_most(511, "rows", "DCGM: 512 fail", most=1e6),
        "gpu.pending_remaps": none_of("remaps", "NVIDIA: a reset completes them"),
        "gpu.failed_remaps": none_of("remaps", "NVIDIA: the GPU has to be replaced"),
        "gpu.retired_pages": at_most(63, "pages", "DCGM: more fail", most=1e6),
        "gpu.pending_retirements": none_of("retirements", "NVIDIA: a reset completes them"),
        "gpu.recovery_action": none_of("action", "NVML: the driver's own verdict"),
        "gpu.slowdown_margin_celsius": at_least(5, "degrees", CHOSEN, least=1, most=100),
        "gpu.memory_margin_celsius": at_least(5, "degrees", CHOSEN, least=1, most=100),
        "gpu.thermal_slowdowns": none_of("reasons", "NVML: clocks held down by heat"),
        "gpu.power_brakes": none_of("reasons", "NVML: clocks held down by the power supply"),
    },
)
