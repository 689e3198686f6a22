"""`python -m tools.catalogues [NAME ...]`: make catalogues, all or some. What cannot be read here is named and stays as it is.

A maker is a module of this package, or of a package in it, with `NAMES` (of the files that it writes, without `.jsonl`) and
`make(name)`, which returns the rows that it wrote by level and raises `SourceMissing` where its source is not at hand.
"""

import importlib
import pkgutil
import sys
from types import ModuleType

import tools.catalogues
from tools.catalogues.sources import SourceMissing


def makers() -> dict[str, ModuleType]:
    """Return the module that makes each catalogue."""
    found: dict[str, ModuleType] = {}
    for one in pkgutil.walk_packages(tools.catalogues.__path__, "tools.catalogues."):
        if one.name.endswith("__main__"):
            continue
        module = importlib.import_module(one.name)
        for name in getattr(module, "NAMES", ()):
            if name in found:
                raise ValueError(f"{name} is made by {found[name].__name__} and {module.__name__}")
            found[name] = module
    return found


def main(names: list[str]) -> int:
    """Make catalogues; return how many of those that were named could not be made."""
    known = makers()
    if unknown := [name for name in names if name not in known]:
        print(f"no catalogue {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return 2
    missing = 0
    for name in names or sorted(known):
        try:
            levels = known[name].make(name)
        except SourceMissing as error:
            missing += 1
            print(f"{name}: left as it is: {error}")
        else:
            counts = ", ".join(f"{num} {level}" for level, num in sorted(levels.items()))
            print(f"{name}: {counts}")
    return 1 if names and missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
