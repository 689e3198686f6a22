"""Which checks there are: the modules of `healthchecks.checks` and of its folders, each with its declaration. No list has them."""

import os
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import healthchecks.checks
from healthchecks.check import Judge, NodeFacts, Verdict
from healthchecks.declaration import HealthCheck, Limit

# A check whose module cannot be imported runs after all others, and is UNKNOWN.
LAST = 1_000_000


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, sorted. Imports none of them, so the control plane may ask."""
    return tuple(sorted(_modules()))


def load(name: str) -> HealthCheck:
    """Import one check. Raises what its module raises, and KeyError for a name that none has."""
    check: HealthCheck = import_module(_modules()[name]).CHECK
    return check


def _modules() -> dict[str, str]:
    """Return the module of each check by the check's name."""
    return _modules_in(tuple(healthchecks.checks.__path__))


@cache
def _modules_in(folders: tuple[str, ...]) -> dict[str, str]:
    found = _below(folders, f"{healthchecks.checks.__name__}.")
    return {name.rpartition(".")[2]: name for name in found}


def _below(folders: tuple[str, ...], prefix: str) -> Iterator[str]:
    """Yield the modules of folders and of those in them, of which none is imported."""
    for module in pkgutil.iter_modules(folders, prefix):
        if module.ispkg:
            inner = module.name.rpartition(".")[2]
            yield from _below(
                tuple(os.path.join(each, inner) for each in folders), f"{module.name}."
            )
        else:
            yield module.name


@cache
def all_checks() -> dict[str, HealthCheck]:
    """Return every check by name, in the order in which they run."""
    checks = sorted(map(_load_or_unknown, check_names()), key=lambda check: check.position)
    return {check.name: check for check in checks}


def declared_limits() -> dict[str, Limit]:
    """Return the limits of all checks, by name."""
    return {name: limit for check in all_checks().values() for name, limit in check.limits.items()}


def _load_or_unknown(name: str) -> HealthCheck:
    try:
        return load(name)
    except Exception:  # noqa: BLE001 - one broken check must not take the others with it
        # Its child fails to import it too, and reports why.
        return HealthCheck(name=name, position=LAST, run=_no_verdict, limits={})


def _no_verdict(node: NodeFacts, judge: Judge) -> Verdict:
    raise NotImplementedError("the module of this check cannot be imported")
