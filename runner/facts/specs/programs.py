"""Commands that start Stoker's own modules as processes of their own."""

import sys


def module_command(module: str, *arguments: str, python: str = "") -> tuple[str, ...]:
    """Return the command that runs a module of `runner`, `healthchecks` or `trainer` in an interpreter that has Stoker.

    `python` is by default the one that runs this. The module is found by way of `stoker.module`, in a checkout and in a wheel. -P:
    a file in the working folder must not pass for a module.
    """
    return (python or sys.executable, "-P", "-m", "stoker.module", module, *arguments)
