"""The `store` section of cluster.yaml: an address that can be one, and files that are there and kept to their owner."""

import os
import stat
from pathlib import Path
from typing import Any

from runner.facts.specs.cluster import split_address
from runner.load.problems import Problems, shown
from runner.store.registry import BACK_ENDS, HOST_PORT, form_of

_FILES = ("password_file", "ca_file", "certificate_file", "key_file")
_SECRETS = ("password_file", "key_file")
_NEED_TLS = ("ca_file", "certificate_file", "key_file")


def store(given: Any, folder: Path, problems: Problems) -> Any:
    """Make every path of the section absolute, and note what is not valid; return the section."""
    if not isinstance(given, dict):
        return given
    address = given.get("address", "")
    form = form_of(address) if isinstance(address, str) else ""
    if form not in BACK_ENDS or (form == HOST_PORT and split_address(address) is None):
        problems.add(
            ("store", "address"),
            f"{shown(address)} is not HOST:PORT; write it as redis.example:6379, or [::1]:6379",
        )
    for name in _FILES:
        path = given.get(name)
        if isinstance(path, str) and path:
            given[name] = os.path.abspath(folder / os.path.expanduser(path))
            _check_file(name, path, given[name], problems)
    _check_together(given, problems)
    return given


def _check_file(name: str, given: str, path: str, problems: Problems) -> None:
    where = ("store", name)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        problems.add(where, f"{shown(given)}: {path} cannot be read: {error.strerror}; name a file")
        return
    if not stat.S_ISREG(mode) or not os.access(path, os.R_OK):
        problems.add(where, f"{shown(given)}: {path} is not a readable file; name another")
    elif name in _SECRETS and mode & (stat.S_IRWXG | stat.S_IRWXO):
        problems.add(
            where,
            f"{shown(given)}: {path} has mode {stat.S_IMODE(mode):o}: others may use it; `chmod 600 {path}`",
        )


def _check_together(plain: dict[str, Any], problems: Problems) -> None:
    """Note fields that need another one."""
    if not plain.get("address"):
        problem = "given without store.address; name a Redis server, or remove it"
        for name in ("database", "user", "tls", *_FILES):
            if plain.get(name):
                problems.add(("store", name), problem)
        return
    if not plain.get("tls"):
        for name in _NEED_TLS:
            if plain.get(name):
                problems.add(("store", name), "given without `tls: true`; add that, or remove it")
    if plain.get("key_file") and not plain.get("certificate_file"):
        problems.add(("store", "key_file"), "given without store.certificate_file; name both")
