"""No rule without a proof: a test makes each limit of each check fire, by a change of the world or of recorded bytes."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from _pytest.mark.structures import ParameterSet

from healthchecks.registry import all_checks
from tests.healthchecks.check_harness import FIRED, verdict_of

FOLDER = Path(__file__).parent
LIMITS = {name for check in all_checks().values() for name in check.limits}


def proven_by(module: ModuleType) -> Iterator[str]:
    """Yield the limits that tests of a module are marked to prove; `proofs` of conftest.py has each test keep its word."""
    for name, test in vars(module).items():
        if not name.startswith("test_"):
            continue
        for mark in getattr(test, "pytestmark", []):
            yield from _limits_of(mark)
            if mark.name == "parametrize":
                cases = [case for case in mark.args[1] if isinstance(case, ParameterSet)]
                for case in cases:
                    for own in case.marks:
                        yield from _limits_of(own)


def _limits_of(mark: Any) -> tuple[str, ...]:
    mark = getattr(mark, "mark", mark)
    return mark.args if mark.name == "proves" else ()


def files_of_tests() -> Iterator[ModuleType]:
    """Import every file of tests in this folder."""
    for path in sorted(FOLDER.rglob("test_*.py")):
        if path != Path(__file__):
            spec = importlib.util.spec_from_file_location(f"proofs_of_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            yield module


def test_every_limit_has_a_proof() -> None:
    """A limit that no test makes fire is a rule that may be dead; a proof of no limit is a misspelt name."""
    proven = {name for module in files_of_tests() for name in proven_by(module)}
    assert sorted(LIMITS - proven) == []
    assert sorted(proven - LIMITS) == []


def test_what_fires_is_seen_and_what_passes_is_not() -> None:
    """The harness notes the limit that a check was beyond, and no other, so that a proof cannot claim what did not happen."""
    assert not FIRED
    verdict_of("clock", {"clock.earliest_year": 2199})
    assert {"clock.earliest_year"} == FIRED
