"""Verdicts on logs that a test holds in memory, as `stoker diagnose` gives them."""

from functools import cache

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts.causes import Verdict


@cache
def engine_of_all() -> Engine:
    """Return the engine with all patterns, which is made once in a process."""
    return engine_for()


def verdicts_of(*logs: str) -> list[Verdict]:
    """Diagnose the logs of one run; they are named log0, log1 and so on."""
    diagnosis = Diagnosis(engine=engine_of_all())
    for number, text in enumerate(logs):
        log = diagnosis.log(f"log{number}")
        log.feed(text.encode())
        log.finish()
    return diagnosis.verdicts()
