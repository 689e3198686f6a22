"""Programs that really raise, run once each, and the logs that several launchers would have made of what they printed."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.collect.tracebacks.injected import INJECTED, STEPS, WRITE, Injected
from tests.collect.tracebacks.launcher_logs import FORMS, PREFIXES, log_of
from tests.suite.share import Share, part_of

JOB = Path(__file__).parent / "job"
SEED = 17
NUM_STEPS = 20
TIMEOUT_SECONDS = 240
# Of the four, which plays what imports Transformers: that takes as long as all else.
PART_OF_TRANSFORMERS = part_of("Transformers")


class ExecutedLog(NamedTuple):
    """The log of a program that raised what was injected."""

    injected: Injected
    prefix: str
    form: str
    text: bytes


def played(share: Share) -> list[Injected]:
    """Return what a share raises: in one part of four what needs Transformers, in the others all else."""
    if share.part is None:
        return list(INJECTED)
    of_transformers = share.part == PART_OF_TRANSFORMERS
    return [one for one in INJECTED if one.needs_transformers == of_transformers]


def _is_played(name: str, share: Share) -> bool:
    """Whether a share plays a log of what needs no Transformers: a third of them in each of the other parts."""
    while part_of(name) == PART_OF_TRANSFORMERS:
        name += "'"
    return share.has(name)


def raised(folder: Path, injected: Sequence[Injected]) -> dict[Injected, str]:
    """Raise what is injected, in one process that runs below `folder`; return what was printed. Needs torch."""
    job = folder / "app"
    for source in sorted(JOB.rglob("*.txt")):
        target = job / source.relative_to(JOB).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    asked = "\n".join(
        json.dumps({"module": one.module, "function": one.function, "when": one.when})
        for one in injected
    )
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=job,
        input=asked,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={
            "PATH": "/usr/bin:/bin",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(job),
            "OMP_NUM_THREADS": "1",
        },
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(injected):
        raise RuntimeError(f"{len(answers)} of {len(injected)} answers: {done.stderr[-2000:]}")
    return {one: answer["text"] for one, answer in zip(injected, answers, strict=True)}


def logs_of(texts: Mapping[Injected, str], share: Share) -> Iterator[ExecutedLog]:
    """Yield the logs of a share: each text by each prefix of a launcher, whole, cut, or between those of other ranks.

    Of what needs Transformers all logs are in the one part that raises it.
    """
    for one in texts:
        for prefix in PREFIXES:
            for form in FORMS:
                name = f"{one.name} {prefix} {form}"
                if not (one.needs_transformers or _is_played(name, share)):
                    continue
                dice = random.Random(f"{SEED} {name}")
                steps = NUM_STEPS if one.when in (STEPS, WRITE) else 0
                log = log_of(texts[one], prefix=prefix, form=form, steps=steps, dice=dice)
                yield ExecutedLog(one, prefix, form, log)
