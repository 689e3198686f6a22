"""Executed tracebacks: programs that really raise, in the logs of several launchers; the verdict is the cause that was injected."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from tests.collect.tracebacks.injected import INJECTED, STEPS, WRITE, Injected
from tests.collect.tracebacks.launcher_logs import FORMS, PREFIXES, log_of
from tests.suite.share import current

JOB = Path(__file__).parent / "job"
SEED = 17
LEAST_RIGHT = 0.9
NUM_STEPS = 20
TIMEOUT_SECONDS = 240

pytestmark = pytest.mark.trainer


class Judged(NamedTuple):
    """One log and its verdict."""

    injected: Injected
    prefix: str
    form: str
    verdict: str

    @property
    def is_right(self) -> bool:
        """Whether the verdict is the injected cause."""
        return self.verdict in (self.injected.label, self.injected.accepted)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[Injected, str]:
    """Raise everything once, in one process."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("run") / "app"
    for source in sorted(JOB.rglob("*.txt")):
        target = folder / source.relative_to(JOB).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    asked = "\n".join(
        json.dumps({"module": one.module, "function": one.function, "when": one.when})
        for one in INJECTED
    )
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        input=asked,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={
            "PATH": "/usr/bin:/bin",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
        },
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(INJECTED), done.stderr[-2000:]
    return {one: answer["text"] for one, answer in zip(INJECTED, answers, strict=True)}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


def verdict_on(log: bytes, engine: Engine) -> str:
    """Return the fault of a log."""
    diagnosis = Diagnosis(engine=engine)
    file = diagnosis.log("job.log")
    file.feed(log)
    file.finish()
    verdicts = diagnosis.verdicts()
    return verdicts[0].cause.fault if verdicts else "healthy"


def table(judged: Sequence[Judged]) -> str:
    """Return a table: label, verdicts, and what was wrong."""
    by_label: dict[str, Counter[str]] = defaultdict(Counter)
    for one in judged:
        label = one.injected.label
        by_label[label][label if one.is_right else one.verdict] += 1
    rows = [
        f"  {label}: {verdicts[label]} of {sum(verdicts.values())}  "
        + ", ".join(f"{name} {num}" for name, num in verdicts.most_common() if name != label)
        for label, verdicts in sorted(by_label.items())
    ]
    wrong = Counter((one.injected.name, one.verdict) for one in judged if not one.is_right)
    rows += [f"    {name} -> {verdict}: {num}" for (name, verdict), num in sorted(wrong.items())]
    for what in ("prefix", "form"):
        parts: dict[str, list[bool]] = defaultdict(list)
        for one in judged:
            parts[getattr(one, what)].append(one.is_right)
        rows += [f"  {what} {name}: {sum(found)} of {len(found)}" for name, found in parts.items()]
    return "\n".join(rows)


def test_tracebacks_of_executed_programs_show_the_injected_cause(
    texts: dict[Injected, str], engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """In at least nine of ten logs: exceptions by modules by prefixes, mixed with other ranks, and cut."""
    assert all(texts.values()), [one.name for one, text in texts.items() if not text]
    combinations = [
        (one, prefix, form) for one in INJECTED for prefix in PREFIXES for form in FORMS
    ]
    judged = []
    share = current()
    for one, prefix, form in combinations:
        if not share.has(f"{one.name} {prefix} {form}"):
            continue
        dice = random.Random(f"{SEED} {one.name} {prefix} {form}")
        steps = NUM_STEPS if one.when in (STEPS, WRITE) else 0
        log = log_of(texts[one], prefix=prefix, form=form, steps=steps, dice=dice)
        judged.append(Judged(one, prefix, form, verdict_on(log, engine)))
    num_right = sum(one.is_right for one in judged)
    with capsys.disabled():
        print(f"\nexecuted tracebacks: {num_right} of {len(judged)} right\n{table(judged)}")
    assert num_right >= LEAST_RIGHT * len(judged)
