"""Lines that ranks and kernels write, searched as an agent's log reader searches them."""

from functools import cache

from msgspec.structs import replace

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts.matches import Match

# As an agent's reader sends them.
MAX_MATCHES, MAX_TEXT = 50, 500


@cache
def _engine() -> Engine:
    return engine_for()


@cache
def matches_in(text: str, file: str, rank: int | None = None) -> tuple[Match, ...]:
    """Return the matches in the lines of a file; `rank`: of which it is the output."""
    diagnosis = Diagnosis(engine=_engine())
    log = diagnosis.log(file, rank=rank)
    log.feed(f"{text}\n".encode())
    log.finish()
    return diagnosis.scanned(MAX_MATCHES, text=MAX_TEXT).matches


def kernel_matches(text: str) -> tuple[Match, ...]:
    """Return the matches in lines of a kernel's log."""
    return tuple(replace(match, of_kernel=True) for match in matches_in(text, "kernel"))
