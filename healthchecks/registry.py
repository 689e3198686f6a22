"""Which checks there are: the modules of `healthchecks.checks`, each with its own declaration. No list names them."""

import pkgutil
from functools import cache
from importlib import import_module

import healthchecks.checks
from healthchecks.check import Judge, NodeFacts, Verdict
from healthchecks.declaration import HealthCheck

# A check whose module cannot be imported runs after all others, and is UNKNOWN.
LAST = 1_000_000


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, sorted. Imports none of them, so the control plane may ask."""
    return tuple(
        sorted(module.name for module in pkgutil.iter_modules(healthchecks.checks.__path__))
    )


def load(name: str) -> HealthCheck:
    """Import one check. Raises what its module raises."""
    check: HealthCheck = import_module(f"{healthchecks.checks.__name__}.{name}").CHECK
    return check


@cache
def all_checks() -> dict[str, HealthCheck]:
    """Return every check by name, in the order in which they run."""
    checks = sorted(map(_load_or_unknown, check_names()), key=lambda check: check.position)
    return {check.name: check for check in checks}


def _load_or_unknown(name: str) -> HealthCheck:
    try:
        return load(name)
    except Exception:  # noqa: BLE001 - one broken check must not take the others with it
        # Its child fails to import it too, and reports why.
        return HealthCheck(name=name, position=LAST, run=_no_verdict, limits={})


def _no_verdict(node: NodeFacts, judge: Judge) -> Verdict:
    raise NotImplementedError("the module of this check cannot be imported")
