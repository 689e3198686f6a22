"""Users that ranks run as: the one who submitted the run, where the agent can switch to that user."""

import contextlib
import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import PermanentError

# The keeper's ability to start ranks as another user.
ABILITY = "user"


class NoSuchUser(PermanentError):
    """Ranks cannot run as the user that the plan names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUser:
    """A user other than the agent's own."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """What a login would set."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find_user(name: str) -> RankUser | None:
    """Return the user that ranks are to become; None when that is the agent's own. Raises NoSuchUser."""
    if not name:
        return None
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise NoSuchUser(
            f"user {name!r}, who submitted the run, is not known on this node; all nodes must know the same users"
        ) from None
    mine = os.geteuid()
    if entry.pw_uid == mine:
        return None
    if mine != 0:
        raise NoSuchUser(
            f"user {name!r} submitted the run, but the agent of this node runs as {_name_of(mine)!r} and cannot start ranks as "
            f"another user; run the agent as root, or as {name!r}, or submit the run as {_name_of(mine)!r}"
        )
    return RankUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir)


def require_ability(user: RankUser | None, abilities: Sequence[str]) -> None:
    """Raise NoSuchUser when a keeper cannot start ranks as another user: those of older releases would start them as root."""
    if user is not None and ABILITY not in abilities:
        raise NoSuchUser(
            f"user {user.name!r}: the keeper of this node is of an older release and starts ranks as itself only; "
            "end what runs on this node, and stop its agent (SIGTERM), so that another keeper is started"
        )


def change_owner(path: Path, user: RankUser) -> None:
    """Change the owner of a folder or file of root's to a user; files of other users, and links, are left alone."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # Some file systems keep root out; the ranks fail with a message of their own.
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        descriptor = os.open(path, flags)
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if status.st_uid == 0 and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
            os.fchown(descriptor, user.uid, user.gid)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
