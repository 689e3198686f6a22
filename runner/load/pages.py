"""The `pages` section of cluster.yaml: a path, hours of a day and a time zone that can be ones."""

import os
import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from runner.load.problems import Problems, shown

HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
NAME = re.compile(r"[a-z0-9-]{1,40}")


def pages(given: Any, folder: Path, problems: Problems) -> Any:
    """Make the path of the section absolute, and note what is not valid; return the section.

    What the file of addresses holds, and its mode, are read when a page is sent: a mistake in it stops no supervisor.
    """
    if not isinstance(given, dict):
        return given
    path, hours = given.get("addresses_file"), given.get("quiet_hours")
    if isinstance(path, str) and path:
        given["addresses_file"] = os.path.abspath(folder / os.path.expanduser(path))
    for name in ("to", "escalate_to"):
        team = given.get(name)
        if isinstance(team, str) and team and not NAME.fullmatch(team):
            text = "is no name; give 1 to 40 characters of a-z, 0-9 and -, and put the address into addresses_file"
            # An address by mistake may hold a secret: it is not repeated.
            problems.add(("pages", name), text)
    if isinstance(hours, str) and hours and not HOURS.fullmatch(hours):
        problems.add(
            ("pages", "quiet_hours"), f"{shown(hours)} is not HH:MM-HH:MM, such as 22:00-07:00"
        )
    zone = given.get("time_zone")
    if isinstance(zone, str):
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, LookupError):
            text = f"{shown(zone)} is not a time zone that this machine knows, such as Europe/Paris"
            problems.add(("pages", "time_zone"), text)
    return given
