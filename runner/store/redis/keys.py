"""The names of a cluster's keys on a Redis server."""

from __future__ import annotations

from dataclasses import dataclass

from runner.store.protocol import Lease


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that begin with `prefix`: those of a cluster, or of one instance of its server."""

    prefix: str

    @property
    def meta(self) -> str:
        """The store's id, the server's instance id, the newest version of a register."""
        return f"{self.prefix}meta"

    @property
    def names(self) -> str:
        """The names of all registers."""
        return f"{self.prefix}names"

    @property
    def trims(self) -> str:
        """How far each stream was trimmed."""
        return f"{self.prefix}trims"

    def stream(self, name: str) -> str:
        """Return a stream's key."""
        return f"{self.prefix}s:{name}"

    def register(self, name: str) -> str:
        """Return a register's key."""
        return f"{self.prefix}r:{name}"

    def lease(self, lease: Lease | str | None) -> str:
        """Return a lease's key; for None a key that always exists, since a script needs one."""
        if lease is None:
            return self.meta
        return f"{self.prefix}l:{lease if isinstance(lease, str) else lease.name}"

    def of_instance(self, instance_id: int | str) -> Keys:
        """Return the keys of what is volatile in one instance of the server."""
        return Keys(f"{self.prefix}~{instance_id}:")


def keys_of(cluster: str) -> Keys:
    """Return the keys of a cluster."""
    return Keys(f"stoker:{cluster}:")
