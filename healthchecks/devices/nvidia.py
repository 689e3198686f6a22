"""NVIDIA GPUs: asked by NVML, and by nvidia-smi where the library fails; both in children with a deadline."""

from typing import Literal

from healthchecks.check import NodeFacts
from healthchecks.commands import Ending, run_together, run_until
from healthchecks.devices import nvidia_smi
from healthchecks.devices.endings import how_it_ended
from healthchecks.devices.readings import Survey, parse_lines
from runner.facts.specs.programs import module_command

PROBE = module_command("healthchecks.devices.nvml_probe")
# For one of the two: five seconds are what health daemons allow; without persistence mode the driver loads first. Chosen.
LIMIT_SECONDS = 8.0
# Of the check's deadline, so that the fallback, too, ends before it.
SHARE = 0.4

Topic = Literal["health", "links", "counters"]


def sampler(num_samples: int, window_seconds: float) -> tuple[str, ...]:
    """Return the command that samples what a load changes; `parse` reads what it prints."""
    return (*PROBE, "load", str(num_samples), str(window_seconds))


def parse(ending: Ending | OSError, limit_seconds: float) -> Survey:
    """Read what the library's probe printed. One that ended in the middle keeps what it had printed."""
    if isinstance(ending, OSError):
        return Survey(source="NVML", trouble=f"the probe could not be started: {ending}")
    lines = ending.output.decode(errors="replace").splitlines()
    return parse_lines(lines, source="NVML", ending=how_it_ended(ending, limit_seconds))


def survey(
    node: NodeFacts,
    topic: Topic,
    *,
    num_samples: int = 1,
    window_seconds: float = 0.0,
    share: float = SHARE,
) -> Survey:
    """Read all GPUs, within a share of the check's deadline; a library that was refused gives way to the tool."""
    limit = min(LIMIT_SECONDS, share * node.deadline_seconds)
    ending: Ending | OSError
    try:
        ending = run_until((*PROBE, topic, str(num_samples), str(window_seconds)), limit)
    except OSError as error:
        ending = error
    by_library = parse(ending, limit)
    if by_library.devices or not by_library.trouble:
        return by_library
    by_tool = _by_tool(topic, limit)
    if by_tool.devices:
        return by_tool
    trouble = "; ".join(each.trouble for each in (by_library, by_tool) if each.trouble)
    return Survey(source="NVML, nvidia-smi", trouble=trouble)


def _by_tool(topic: Topic, limit_seconds: float) -> Survey:
    commands = nvidia_smi.COMMANDS if topic == "links" else nvidia_smi.COMMANDS[:1]
    outputs = []
    endings = run_together({" ".join(command): command for command in commands}, limit_seconds)
    for name, ending in endings.items():
        trouble = _trouble(ending, limit_seconds)
        if trouble or isinstance(ending, OSError):
            return Survey(source="nvidia-smi", trouble=f"{name} {trouble}")
        outputs.append(ending.output)
    return nvidia_smi.parse(outputs[0], outputs[1:])


def _trouble(ending: Ending | OSError, limit_seconds: float) -> str:
    if isinstance(ending, OSError):
        return f"cannot be started: {ending}"
    ended = how_it_ended(ending, limit_seconds)
    printed = ending.output.decode(errors="replace").strip().splitlines()
    return f"{ended}: {printed[-1][:200]}" if ended and printed else ended
