"""Which cluster is meant, and who leads it. A cluster's folder holds its store, so that one path says it all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.errors import TemporaryError, UserError, WireError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL, LEASE
from runner.facts.wording import known_words
from runner.serve.status_reader import read_status
from runner.signer import CLUSTER_NAME, default_token_file, make_token, settle_token
from runner.store.protocol import Store
from runner.store.registry import exists, open_store

CLUSTER_FILE = "cluster.yaml"
# where clusters without a file of their own keep their state, in the working directory
STATES_FOLDER = ".stoker"
SPEC = CLUSTER_NAME
# states of runs that go on
LIVE_STATES = ("active", "waiting")


class NoLeader(TemporaryError):
    """There is no supervisor to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads a cluster, as far as can be told from here."""

    # host:pid:start; "" for nobody
    holder: str = ""
    alive: bool = False


def find_cluster(where: str | None) -> ClusterSpec:
    """Return the cluster meant by `--cluster`: a file, a state folder, or the name of one in `.stoker`.

    Without it: `cluster.yaml` in the working directory, else the one cluster in `.stoker` (the one that is led, if there are
    several). Its token file is settled: "" stands for a cluster that goes unsigned. Raises UserError with the choices.
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
            "start one with `stoker run RUN.yaml`, or say where with --cluster"
        )
    names = ", ".join(spec.name for spec in made)
    raise UserError(f"several clusters in {STATES_FOLDER}: {names}; say which with --cluster NAME")


def cluster_for_run(where: str | None, run: RunSpec, *, spares: int | None) -> ClusterSpec:
    """Return the cluster a run is started on; without any, one is made up that fits the run and `spares`."""
    if where is not None or Path(CLUSTER_FILE).is_file():
        if spares is not None:
            raise UserError(
                f"--spares: {where or CLUSTER_FILE} says how many spares there are; change `local.spares` there"
            )
        return find_cluster(where)
    return make_cluster(Path(STATES_FOLDER) / run.name, run, spares=spares or 0)


def make_cluster(state: Path, run: RunSpec, *, spares: int) -> ClusterSpec:
    """Make up a cluster of local nodes that fits `run`, and keep it in its state folder.

    One that is led already stays as it is: its nodes are known to its supervisor.
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
    """Return a cluster that is about to be led, its token file settled; a new one that lives on this machine alone gets a token.

    One that has a journal and no token stays as it is: agents of an older release do not sign.
    """
    if cluster.local.nodes > 0 and not cluster.store.address and _is_new(cluster):
        token_file = cluster.token_file or default_token_file(cluster.state)
        try:
            make_token(token_file)
        except OSError as error:
            raise UserError(
                f"token_file: {token_file} cannot be written ({error.strerror}); choose another place in {CLUSTER_FILE}"
            ) from error
    return settle_token(cluster)


def _is_new(cluster: ClusterSpec) -> bool:
    if not exists(cluster):
        return True
    with store_of(cluster, create=True) as store:
        return store.last(JOURNAL) == 0


def write_spec(cluster: ClusterSpec) -> None:
    """Write the cluster into its state folder, for its agents and for whoever looks; raise UserError when it cannot be."""
    state = Path(cluster.state)
    scratch = state / f"{SPEC}.part"
    try:
        state.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(wire.encode(cluster) + b"\n")
        scratch.rename(state / SPEC)
    except OSError as error:
        raise UserError(
            f"state folder {state} cannot be written ({error.strerror}); choose another place in {CLUSTER_FILE}"
        ) from error


def local_clusters() -> list[ClusterSpec]:
    """Return the clusters that have their state in the working directory, by name."""
    return [_read_spec(path.parent) for path in sorted(Path(STATES_FOLDER).glob(f"*/{SPEC}"))]


@contextmanager
def store_of(cluster: ClusterSpec, *, create: bool = False) -> Iterator[Store]:
    """Open the cluster's store; raise UserError when it was never started."""
    with closing(open_store(cluster, create=create)) as store:
        yield store


def require_status(store: Store, cluster: ClusterSpec) -> ClusterStatus:
    """Return the View; raise UserError when nobody has published one."""
    view = read_status(store)
    if view is None:
        raise UserError(
            f"cluster {cluster.name!r} has nothing to show yet: no supervisor has published a View in {cluster.state}; "
            "start one with `stoker supervise`, or wait a second if one is starting"
        )
    return view


def leader_of(store: Store) -> Leader:
    """Say who leads; a holder that died on this machine does not count as alive, however long its lease still runs."""
    current = store.lease_holder(LEASE)
    if current is None:
        return Leader()
    from runner.supervisor.lease import is_known_dead

    alive = current.expires_in_seconds > 0 and not is_known_dead(current.holder)
    return Leader(holder=current.holder, alive=alive)


def require_leader(store: Store, cluster: ClusterSpec) -> Leader:
    """Return who leads; raise NoLeader otherwise."""
    leader = leader_of(store)
    if leader.alive:
        return leader
    last = f"; the last one was {leader.holder}" if leader.holder else ""
    raise NoLeader(
        f"no supervisor leads cluster {cluster.name!r} ({cluster.state}){last}: nobody would act on this; "
        "start one with `stoker supervise`"
    )


def status_age_seconds(view: ClusterStatus) -> float:
    """Return how old a View is, by this machine's wall clock."""
    return max(0.0, time.time() - view.wall)


def pick_run(view: ClusterStatus, name: str | None) -> RunStatus:
    """Return the run that `name` (or number) means; the newest of that name. Without one: the only live run, or the only run."""
    if name is not None:
        for run in reversed(view.runs):
            if name in (run.name, str(run.run)):
                return run
        raise UserError(
            f"no run {name!r} in cluster {view.cluster!r}; {known_words(name, [r.name for r in view.runs])}"
        )
    candidates = [run for run in view.runs if run.state in LIVE_STATES] or list(view.runs)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UserError(
            f"cluster {view.cluster!r} has no run yet; start one with `stoker run RUN.yaml`"
        )
    names = ", ".join(f"{run.name} ({run.run})" for run in candidates)
    raise UserError(
        f"which run? cluster {view.cluster!r} has {names}; name one, or give its number"
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
        raise UserError(
            f"{path} cannot be read ({error}); remove {state} to start afresh"
        ) from error
    if not isinstance(spec, ClusterSpec):
        raise UserError(f"{path} holds a {type(spec).__name__}, not a cluster; remove {state}")
    return spec


def has_leader(spec: ClusterSpec) -> bool:
    """Whether a supervisor leads the cluster, as far as can be told from here."""
    if not exists(spec):
        return False
    with store_of(spec) as store:
        return leader_of(store).alive
