"""Clusters of local nodes that a command makes: where they stand, what they hold, and their token."""

import secrets
from pathlib import Path

from runner.cli.clusters import (
    CLUSTER_FILE,
    SPEC,
    STATES_FOLDER,
    existing_cluster,
    find_cluster,
    has_leader,
    read_spec,
    store_of,
)
from runner.errors import UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL
from runner.folder_modes import READABLE, close_folder
from runner.signer import settle_token
from runner.store.registry import exists
from runner.token_file import default_token_file, make_token


def cluster_for_run(
    where: str | None, run: RunSpec, *, file: Path, spares: int | None
) -> ClusterSpec:
    """Return the cluster to start the run of `file` on; without any, make one that fits the run and `spares`."""
    beside = file.absolute().parent
    described = where or next(
        (
            str(folder / CLUSTER_FILE)
            for folder in (beside, Path())
            if (folder / CLUSTER_FILE).is_file()
        ),
        None,
    )
    if described is not None:
        if spares is not None:
            raise UserError(
                f"--spares: {described} sets the number of spares; change `local.spares` there"
            )
        return find_cluster(described)
    known = existing_cluster(file, run.name)
    state = Path(known.state) if known is not None else beside / STATES_FOLDER / run.name
    return make_cluster(state, run, spares=spares or 0)


def make_cluster(state: Path, run: RunSpec, *, spares: int) -> ClusterSpec:
    """Make a cluster of local nodes that fits `run`, and write it into its state folder.

    A cluster with a supervisor stays as it is: the supervisor knows its nodes.
    """
    state = state.absolute()
    if (state / SPEC).exists():
        known = settle_token(read_spec(state))
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
            f"state folder {state} cannot be written ({error.strerror}); put run.yaml into a folder that this user may write, or "
            f"choose another place with `state` in a {CLUSTER_FILE}"
        ) from error
