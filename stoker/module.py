"""`python -P -m stoker.module NAME ARGUMENTS`: runs one of Stoker's own modules as `python -m NAME` would, wherever it lies.

`runner/facts/specs/programs.py` makes these commands.
"""

import runpy
import sys

from stoker import packages


def main() -> None:
    """Run the module that the first argument names."""
    if len(sys.argv) < 2:
        sys.exit(
            "usage: python -P -m stoker.module NAME [ARGUMENTS]; NAME: runner.agent, healthchecks, trainer ..."
        )
    del sys.argv[0]
    packages.add_to_path()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
