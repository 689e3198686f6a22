"""How a child that read devices ended, in words for the reason of a verdict."""

from healthchecks.commands import Ending


def how_it_ended(ending: Ending, limit_seconds: float) -> str:
    """Describe an ending that is not in order; "" for one that is."""
    if ending.hung:
        left = "" if ending.code is not None else f" (SIGKILL does not end pid {ending.pid})"
        return f"hung for {limit_seconds:g} s{left}"
    if ending.code == 0:
        return ""
    errors = ending.errors.decode(errors="replace").strip().splitlines()
    last = f": {errors[-1][:200]}" if errors else ""
    return f"ended with code {ending.code}{last}"
