"""Start the warm process; the first argument is its socket to the keeper.

The user's modules are imported into this process, so ours must be neither in their way nor among them: a run may have a package
of the name `runner`, and a module of any name beside its script.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable


def _own_main() -> Callable[[], None]:
    """Import our modules by their paths, with no search path in between; return `main`, and leave none in `sys.modules`."""
    keeper = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    displaced = _take_out()
    for name, folder in (
        ("runner", os.path.dirname(keeper)),
        ("runner.keeper", keeper),
        ("runner.keeper.warm", os.path.join(keeper, "warm")),
    ):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    from runner.keeper.warm.main import main

    _take_out()
    sys.modules.update(displaced)
    return main


def _take_out() -> dict[str, types.ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "runner"]
    return {name: sys.modules.pop(name) for name in names}


if __name__ == "__main__":
    _own_main()()
