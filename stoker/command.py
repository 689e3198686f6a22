"""The command `stoker`."""

import sys

from stoker import packages

# As in runner/cli/exit_codes.py, which may not be imported yet.
_INTERRUPTED = 130


def main() -> None:
    """Run the command; `runner.cli` has its parts."""
    try:
        packages.add_to_path()
        from runner.cli.main import main as run
    except KeyboardInterrupt:
        # Ctrl-C before anything began.
        sys.exit(_INTERRUPTED)
    run()
