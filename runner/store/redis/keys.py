"""The names of a cluster's keys on a Redis server."""

from runner.store.protocol import Lease


class Keys:
    """Keys that begin with `prefix`: those of a cluster, or of one instance of its server.

    `meta`: the store's id, the server's instance id, the newest version of a register. `names`: the names of all registers.
    `trims`: how far each stream was trimmed.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.meta, self.names, self.trims = f"{prefix}meta", f"{prefix}names", f"{prefix}trims"

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

    def of_instance(self, instance_id: int | str) -> "Keys":
        """Return the keys of what is volatile in one instance of the server."""
        return Keys(f"{self.prefix}~{instance_id}:")


def keys_of(cluster: str) -> Keys:
    """Return the keys of a cluster."""
    return Keys(f"stoker:{cluster}:")
