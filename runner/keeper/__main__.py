"""Start the keeper. Run as a folder, this makes the folder importable as `runner.keeper` first."""

import sys
from pathlib import Path


def _make_importable() -> None:
    # Behind the standard library, and only for this import: nothing beside our package is to be found there.
    del sys.path[0]
    sys.path.append(str(Path(__file__).absolute().parents[2]))
    import runner.keeper  # noqa: F401 - from here on, the package knows where its modules lie

    sys.path.pop()


if __name__ == "__main__":
    if not __package__:
        _make_importable()
    from runner.keeper.main import main

    sys.exit(main())
