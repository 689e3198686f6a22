"""memory_patterns: the memory of each GPU, and of the host, keeps what many patterns write to it.

Solid words, own addresses, moving inversions, random words, modulo-20, moves of blocks; at the level `deep` all of them again and
again with other random words, and bit fade. How much memory is tested follows from the time and from what is free. The probe of the
same name does the work. Each wrong value comes with the positions and bits of the words, and with what a second reading gave:
the same again points to a cell, another value to the path. What ECC has corrected shows in the GPUs' counters alone: they are read
before and after, and heat, power and clocks in between.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from healthchecks import cgroups
from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import DEFINED, HealthCheck, at_most
from healthchecks.probe import devices_of, judge_answers, num_threads
from healthchecks.soak.evidence import judge_soak, soak_limits
from healthchecks.soak.watch import run_watched

NAME = "memory_patterns"
PATTERNS = (
    *(f"solid {byte}" for byte in ("00", "ff", "aa", "55", "33", "cc")),
    "own address",
    "moving inversions",
    "random",
    "modulo 20",
    "block move",
)
DEEP_PATTERNS = (*PATTERNS, "bit fade")
# Of the host's available memory. From tools that do the same, ../shared: at most half of it.
HOST_SHARE = 0.5
# A test of less says nothing. Chosen, not measured.
LEAST_BYTES = 16 << 20
# Tested first, to choose the size of the rest by.
FIRST_BYTES = 32 << 20
# Random words differ from one to the next of so many runs; chosen.
NUM_SEEDS = 1 << 16
MAX_NAMED = 4


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Test the memory of all devices at the same time."""
    patterns = DEEP_PATTERNS if node.level == "deep" else PATTERNS
    devices = devices_of(node)
    asked = [ask(device, patterns, repeats=node.level == "deep") for device in devices]
    answers, watched = run_watched(NAME, node, asked)
    evidence = judge_answers(
        zip(devices, answers, strict=True),
        lambda numbers: judge_numbers(numbers, patterns, judge),
        lambda device, why: judge("memory_patterns.wrong_words", None, subject=device, note=why),
    )
    return Verdict(check=NAME, evidence=(*evidence, *judge_soak(NAME, watched, judge)))


def ask(device: str, patterns: tuple[str, ...], *, repeats: bool) -> dict[str, Any]:
    """Return what the probe of one device is asked."""
    return {
        "device": device,
        "patterns": patterns,
        "repeats": repeats,
        "seed": int.from_bytes(os.urandom(4), "little") % NUM_SEEDS,
        "first_bytes": FIRST_BYTES,
        "most_bytes": int(HOST_SHARE * _available()),
        "num_workers": num_threads(),
    }


def judge_numbers(
    numbers: Mapping[str, Any], patterns: tuple[str, ...], judge: Judge
) -> Iterator[Evidence]:
    """Judge one device: how much was tested, and every pattern that it had to run."""
    device = str(numbers["device"])
    tested = float(numbers["bytes"])
    yield Evidence(name="memory_patterns.tested_bytes", value=tested, unit="bytes", subject=device)
    if tested < LEAST_BYTES:
        note = f"{tested:g} bytes could be tested, {LEAST_BYTES} are needed"
        yield judge("memory_patterns.wrong_words", None, subject=device, note=note)
    for pattern in patterns:
        subject = f"{device} {pattern}"
        found = numbers["patterns"].get(pattern)
        if found is None:
            note = "not run: there was no time left"
            yield judge("memory_patterns.wrong_words", None, subject=subject, note=note)
            continue
        wrong = float(found["wrong_words"])
        note = describe_errors(found) if wrong else ""
        yield judge("memory_patterns.wrong_words", wrong, subject=subject, note=note)
    for key in ("fill_bytes_per_second", "verify_bytes_per_second"):
        value = float(numbers[key])
        yield Evidence(name=f"memory_patterns.{key}", value=value, unit="bytes/s", subject=device)


def describe_errors(found: Mapping[str, Any]) -> str:
    """Describe wrong words: where the first are, which bits, and what a second reading gave."""
    positions = found["positions"][:MAX_NAMED]
    where = ", ".join(f"word {each['word']} xor {each['xor']}" for each in positions)
    bits = ", ".join(f"{bit}: {count}" for bit, count in found["bits"].items())
    same, changed = found["read_again_same"], found["read_again_changed"]
    return (
        f"{where}; words by wrong bit: {bits}; read again: {same} with the same value, which points to cells, "
        f"{changed} with another, which points to the path"
    )


def _available() -> int:
    available = psutil.virtual_memory().available
    room = cgroups.headroom(cgroups.MEMORY)
    return available if room is None else max(0, min(available, room))


CHECK = HealthCheck(
    name=NAME,
    position=220,
    run=check,
    needs=("num_gpus", "gpu_vendor", "sysfs", "python"),
    seconds={"quick": 8.0, "standard": 20.0, "deep": 1200.0},
    limits={
        **soak_limits(NAME),
        "memory_patterns.wrong_words": at_most(0, "words", DEFINED, most=0),
    },
)
