"""Which cluster a command is about, and which supervisor holds its lease."""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from runner.cli import output
from runner.errors import Forged, TemporaryError, UserError, WireError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL, LEASE
from runner.facts.wording import known_words
from runner.folder_modes import READABLE, close_folder
from runner.serve.status_reader import read_status
from runner.signer import CLUSTER_NAME, settle_token, signer_of
from runner.store.protocol import Store
from runner.store.registry import exists, open_store
from runner.token_file import default_token_file, make_token

T = TypeVar("T")

CLUSTER_FILE = "cluster.yaml"
# In the working directory: the state of clusters without a file of their own.
STATES_FOLDER = ".stoker"
SPEC = CLUSTER_NAME
LIVE_STATES = ("active", "waiting")


class NoLeader(TemporaryError):
    """No supervisor holds the cluster's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The holder of a cluster's lease, as seen from this machine."""

    # host:pid:start; "": the lease is free.
    holder: str = ""
    alive: bool = False


def find_cluster(where: str | None) -> ClusterSpec:
    """Return the cluster meant by `--cluster`: a file, a state folder, or the name of one in `.stoker`.

    Without it: `cluster.yaml` in the working directory, else the one cluster in `.stoker` (the one with a supervisor, if there
    are several). Its token file is settled: "" means that the cluster does not sign. Raises UserError with the choices.
    """
    return settle_token(_found(where))


def _found(where: str | None) -> ClusterSpec:
    if where is not None:
        return _named(where)
    if Path(CLUSTER_FILE).is_file():
        return _load_file(Path(CLUSTER_FILE))
    made = local_clusters()
    if len(made) > 1:
        made = [spec for spec in made if has_leader(spec)] or made
    if len(made) == 1:
        return made[0]
    if not made:
        raise UserError(
            f"no cluster here: {Path.cwd()} has neither {CLUSTER_FILE} nor a cluster in {STATES_FOLDER}; "
            "start one with `stoker run RUN.yaml`, or name one with --cluster"
        )
    names = ", ".join(spec.name for spec in made)
    raise UserError(f"several clusters in {STATES_FOLDER}: {names}; choose one with --cluster NAME")


def cluster_for_run(where: str | None, run: RunSpec, *, spares: int | None) -> ClusterSpec:
    """Return the cluster to start a run on; without any, make one that fits the run and `spares`."""
    if where is not None or Path(CLUSTER_FILE).is_file():
        if spares is not None:
            raise UserError(
                f"--spares: {where or CLUSTER_FILE} sets the number of spares; change `local.spares` there"
            )
        return find_cluster(where)
    return make_cluster(Path(STATES_FOLDER) / run.name, run, spares=spares or 0)


def make_cluster(state: Path, run: RunSpec, *, spares: int) -> ClusterSpec:
    """Make a cluster of local nodes that fits `run`, and write it into its state folder.

    A cluster with a supervisor stays as it is: the supervisor knows its nodes.
    """
    state = state.absolute()
    if (state / SPEC).exists():
        known = settle_token(_read_spec(state))
        if has_leader(known):
            return known
    local = LocalNodes(nodes=run.nodes, slots=run.ranks_per_node, spares=spares)
    spec = with_token(ClusterSpec(name=run.name, state=str(state), local=local))
    write_spec(spec)
    return spec


def with_token(cluster: ClusterSpec) -> ClusterSpec:
    """Return the cluster with its token file settled, before a supervisor starts; a new cluster of one machine gets a token.

    One that has a journal and no token stays unsigned: agents of an older release do not sign.
    """
    if cluster.local.nodes > 0 and not cluster.spans_machines and _is_new(cluster):
        make_token_file(cluster.token_file or default_token_file(cluster.state))
    return settle_token(cluster)


def make_token_file(path: str) -> bool:
    """Make a token unless it exists; return whether it was made. Raises UserError if that fails."""
    try:
        return make_token(path)
    except OSError as error:
        raise UserError(
            f"token_file: {path} cannot be written ({error.strerror}); choose another place in {CLUSTER_FILE}"
        ) from error


def require_own_store(store: Store, cluster: ClusterSpec) -> None:
    """Raise UserError if a cluster of the same name, with another token, has written this store."""
    from runner.journal.journal import Journal

    if Journal(store, signer=signer_of(cluster)).is_of_another_cluster():
        token = cluster.token_file
        raise UserError(
            f"name: {store} holds the journal of another cluster {cluster.name!r}, whose token is not "
            f"{f'in {token}' if token else 'here: this one has none'}; give this cluster (state {cluster.state}) another name, or "
            "another store; if it is the same cluster, copy the token file of the machine that led it"
        )


def _is_new(cluster: ClusterSpec) -> bool:
    if not exists(cluster):
        return True
    with store_of(cluster, create=True) as store:
        return store.last(JOURNAL) == 0


def write_spec(cluster: ClusterSpec) -> None:
    """Write the cluster into its state folder, for its agents and for commands; raise UserError if that fails."""
    state = Path(cluster.state)
    # Supervisors that start at the same moment must not rename each other's file.
    scratch = state / f"{SPEC}.{secrets.token_hex(4)}.part"
    try:
        close_folder(state, READABLE)
        scratch.touch(mode=0o644)
        scratch.write_bytes(wire.encode(cluster) + b"\n")
        scratch.rename(state / SPEC)
    except OSError as error:
        raise UserError(
            f"state folder {state} cannot be written ({error.strerror}); choose another place in {CLUSTER_FILE}"
        ) from error


def local_clusters() -> list[ClusterSpec]:
    """Return the clusters whose state is in the working directory, by name."""
    return [_read_spec(path.parent) for path in sorted(Path(STATES_FOLDER).glob(f"*/{SPEC}"))]


def store_of(cluster: ClusterSpec, *, create: bool = False) -> closing[Store]:
    """Open the cluster's store; raise UserError if the cluster was never started."""
    return closing(open_store(cluster, create=create))


@contextmanager
def open_cluster(where: str | None) -> Iterator[tuple[ClusterSpec, Store]]:
    """Open the store of the cluster that `find_cluster` finds."""
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        yield cluster, store


def status_in(store: Store, cluster: ClusterSpec) -> ClusterStatus | None:
    """Return the published status, with a note when it does not verify; None if there is none."""
    try:
        return read_status(store, signer_of(cluster))
    except (Forged, UserError) as error:
        output.print_note(f"NOT VERIFIED, what follows may be made up: {error}")
        return read_status(store)


def require_status(store: Store, cluster: ClusterSpec) -> ClusterStatus:
    """Return the published status as `status_in` does; raise UserError if there is none."""
    status = status_in(store, cluster)
    if status is None:
        raise UserError(
            f"cluster {cluster.name!r} has no status yet: no supervisor has published one in {cluster.state}; "
            "start one with `stoker supervise`, or wait a second if one is starting"
        )
    return status


def leader_of(store: Store) -> Leader:
    """Return the lease's holder; one that died on this machine is not alive, even before its lease expires."""
    current = store.lease_holder(LEASE)
    if current is None:
        return Leader()
    from runner.supervisor.lease import is_known_dead

    alive = current.expires_in_seconds > 0 and not is_known_dead(current.holder)
    return Leader(holder=current.holder, alive=alive)


def require_leader(store: Store, cluster: ClusterSpec) -> Leader:
    """Return the lease's holder; raise NoLeader if there is none alive."""
    leader = leader_of(store)
    if leader.alive:
        return leader
    last = f"; the last one was {leader.holder}" if leader.holder else ""
    raise NoLeader(
        f"no supervisor holds the lease of cluster {cluster.name!r} ({cluster.state}){last}, so nothing would act on this; "
        "start one with `stoker supervise`"
    )


def status_age_seconds(status: ClusterStatus) -> float:
    """Return the age of a status, by this machine's wall clock."""
    return max(0.0, time.time() - status.wall)


def pick(known: Mapping[str, T], name: str, sought: str) -> T:
    """Return what has a name; raise UserError that there is no `sought`, with the known names."""
    if name not in known:
        raise UserError(f"no {sought}; {known_words(name, list(known))}")
    return known[name]


def pick_run(status: ClusterStatus, name: str | None) -> RunStatus:
    """Return the newest run of that name, or with that number; without a name the only live run, or the only run."""
    if name is not None:
        for run in reversed(status.runs):
            if name in (run.name, str(run.run)):
                return run
        raise UserError(
            f"no run {name!r} in cluster {status.cluster!r}; {known_words(name, [r.name for r in status.runs])}"
        )
    candidates = [run for run in status.runs if run.state in LIVE_STATES] or list(status.runs)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UserError(
            f"cluster {status.cluster!r} has no run yet; start one with `stoker run RUN.yaml`"
        )
    names = ", ".join(f"{run.name} ({run.run})" for run in candidates)
    raise UserError(
        f"which run? cluster {status.cluster!r} has {names}; name one, or give its number"
    )


def _named(where: str) -> ClusterSpec:
    path = Path(where)
    if path.is_file():
        return _load_file(path)
    for folder in (path, Path(STATES_FOLDER) / where):
        if (folder / CLUSTER_FILE).is_file():
            return _load_file(folder / CLUSTER_FILE)
        if (folder / SPEC).is_file():
            return _read_spec(folder)
    names = [spec.name for spec in local_clusters()]
    raise UserError(
        f"--cluster: {where!r} is neither a file nor a state folder, nor the name of a cluster in {STATES_FOLDER} "
        f"({known_words(where, names)})"
    )


def _load_file(path: Path) -> ClusterSpec:
    # Imports yaml, which a cluster without a file of its own does not need.
    from runner.load.specs import load_cluster

    return load_cluster(path)


def _read_spec(state: Path) -> ClusterSpec:
    path = state / SPEC
    try:
        spec = wire.decode(path.read_bytes())
    except (OSError, WireError) as error:
        raise UserError(f"{path} cannot be read ({error}); remove {state} to start over") from error
    if not isinstance(spec, ClusterSpec):
        raise UserError(f"{path} holds a {type(spec).__name__}, not a cluster; remove {state}")
    return spec


def has_leader(spec: ClusterSpec) -> bool:
    """Whether a living supervisor holds the cluster's lease, as seen from this machine."""
    if not exists(spec):
        return False
    with store_of(spec) as store:
        return leader_of(store).alive
