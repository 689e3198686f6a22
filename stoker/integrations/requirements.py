"""What the callbacks need of a library and of the gang: checked at once, and refused in words that have the way out."""

import importlib.metadata
import sys
from collections.abc import Iterable
from typing import NoReturn

from stoker.agreement import world_size

# docs/contract.md: the settings cannot work, and a restart cannot help.
EXIT_BAD_SETTINGS = 78


def check_hooks(callback: type, hooks: Iterable[str], *, library: str, least: str) -> None:
    """Raise ImportError where a library's class of callbacks lacks hooks: it is older, or newer, than what is supported.

    `least`: the oldest version that has them.
    """
    missing = [name for name in hooks if not hasattr(callback, name)]
    if missing:
        raise ImportError(
            f"stoker: {library} {installed_version(library)} lacks the hooks {', '.join(missing)} of {callback.__name__}; "
            f"install {library}>={least}, or report steps with stoker.attach() alone (`stoker docs client`)"
        )


def installed_version(library: str) -> str:
    """Return the version of an installed package; "of unknown version" without its metadata."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def check_gang(num_processes: int, *, library: str, way_out: str) -> None:
    """End the process where the library trains with fewer or more processes than there are ranks: each would train alone."""
    num_ranks = world_size()
    if num_processes != num_ranks:
        refuse(
            f"{library} trains with {num_processes} process{'es' * (num_processes != 1)}, and the gang has {num_ranks} "
            f"rank{'s' * (num_ranks != 1)} (WORLD_SIZE); {way_out}"
        )


def refuse(why: str) -> NoReturn:
    """End the process: its settings cannot work, and Stoker stops the run instead of starting it again."""
    print(f"stoker: {why}", file=sys.stderr, flush=True)  # noqa: T201 - the last line of the rank's errors
    sys.exit(EXIT_BAD_SETTINGS)
