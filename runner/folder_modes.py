"""Which users may enter a folder of the cluster or write into it: others could change what is believed there, or hold its locks."""

import logging
import os
import stat
from pathlib import Path

from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec

# The most that a folder grants. Others hold no lock in the store and in a node's folder; ranks of other users go through the state
# folder; supervisors that are users of one group share archived entries.
PRIVATE, READABLE, SHARED = 0o700, 0o755, 0o775
_LOG = logging.getLogger("stoker")


def close_folder(folder: Path, most: int = PRIVATE) -> None:
    """Make a folder, or take the rights beyond `most` from one that grants more, and log that.

    Raises UserError when it belongs to another user or cannot be closed, OSError when it cannot be made.
    """
    make_folder(folder, most)
    found, owner = folder.stat(), os.geteuid()
    if owner and found.st_uid not in (0, owner):
        raise UserError(
            f"{folder} belongs to user {found.st_uid}, and this process to user {owner}; run it as that user, or name another"
        )
    problem = _excess(folder, most)
    if problem:
        try:
            folder.chmod(stat.S_IMODE(found.st_mode) & (most | 0o7000))
        except OSError as error:
            raise UserError(f"{problem} ({error.strerror})") from error
        _LOG.warning("%s; its mode has been changed", problem)


def make_folder(folder: Path, most: int = READABLE) -> None:
    """Make a folder, and those above it that are missing, for no more users than `most` and READABLE grant."""
    for each, mode in (*((above, READABLE) for above in reversed(folder.parents)), (folder, most)):
        if not each.is_dir():
            each.mkdir(mode=mode, exist_ok=True)


def exposures(cluster: ClusterSpec) -> list[str]:
    """Describe what other users of this machine may do with the cluster's folders, sockets and token: nothing, if all is well."""
    state = Path(cluster.state)
    journal, token = Path(cluster.journal_folder or state / "journal"), Path(cluster.token_file)
    most = {state: READABLE, state / "runs": READABLE, state / "store": PRIVATE, journal: SHARED}
    most |= dict.fromkeys([*state.glob("nodes/*"), *state.glob("nodes/*/*.sock")], PRIVATE)
    if cluster.token_file:
        most[token] = PRIVATE
    if cluster.pages.addresses_file:
        most[Path(cluster.pages.addresses_file)] = PRIVATE
    found = [_excess(path, limit) for path, limit in most.items()]
    for path in dict.fromkeys((state, journal, token)):
        found += _replaceable(path)
    return [problem for problem in dict.fromkeys(found) if problem]


def _excess(path: Path, most: int) -> str:
    """Describe a path that grants others more than `most`; "" for one that does not, or that is missing."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return ""
    if not mode & 0o777 & ~most:
        return ""
    what, change = ("use", "go-rwx") if most == PRIVATE else ("write into", "go-w")
    return f"{path} has mode {mode:o}: others may {what} it; `chmod {change} {path}`"


def _replaceable(path: Path) -> list[str]:
    """Describe the folders above a path in which every user may put something else in its place."""
    return [
        f"{above} has mode {stat.S_IMODE(mode):o}: every user may replace {path}; `chmod o-w {above}`"
        for above in path.resolve().parents
        if above.exists()
        and (mode := above.stat().st_mode) & stat.S_IWOTH
        and not mode & stat.S_ISVTX
    ]
