"""Executed tracebacks: programs that really raise, in the logs of several launchers; the verdict is the cause that was injected."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from tests.collect.tracebacks.executed import TIMEOUT_SECONDS, logs_of, played, raised
from tests.collect.tracebacks.injected import Injected
from tests.suite.share import current

LEAST_RIGHT = 0.9

# The program that raises has a limit of its own.
pytestmark = [pytest.mark.trainer, pytest.mark.timeout(TIMEOUT_SECONDS + 120)]


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
    """Raise once, in one process, what this share plays."""
    pytest.importorskip("torch")
    return raised(tmp_path_factory.mktemp("run"), played(current()))


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
    judged = [
        Judged(log.injected, log.prefix, log.form, verdict_on(log.text, engine))
        for log in logs_of(texts, current())
    ]
    num_right = sum(one.is_right for one in judged)
    with capsys.disabled():
        print(f"\nexecuted tracebacks: {num_right} of {len(judged)} right\n{table(judged)}")
    assert num_right >= LEAST_RIGHT * len(judged)
