"""Clusters of local nodes that a command makes: their folders, their settings, and their token."""

import hashlib
import os
import re
import secrets
from pathlib import Path

from runner.cli.clusters import (
    CLUSTER_FILE,
    LIVE_STATES,
    OWN,
    SPEC,
    STATES_FOLDER,
    existing_cluster,
    find_cluster,
    has_leader,
    read_spec,
    status_in,
    store_of,
)
from runner.errors import UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.pages import PagesSpec
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL
from runner.folder_modes import READABLE, close_folder
from runner.signer import settle_token
from runner.store.registry import exists
from runner.token_file import default_token_file, make_token

# Of a name that its folder gives, without the digits behind it; of those.
MAX_NAME_CHARACTERS, NUM_DIGITS = 24, 4


def described_cluster(where: str | None, file: Path, *, spares: int | None) -> ClusterSpec | None:
    """Return the cluster that `--cluster`, or a cluster.yaml beside the run's file or here, means; None: the run has none.

    Raises UserError for `spares`, which are set there.
    """
    folders = (file.absolute().parent, Path())
    files = [folder / CLUSTER_FILE for folder in folders if (folder / CLUSTER_FILE).is_file()]
    described = where or (str(files[0]) if files else None)
    if described is None:
        return None
    if spares is not None:
        raise UserError(
            f"--spares: {described} sets the number of spares; change `local.spares` there"
        )
    return find_cluster(described)


def state_for_run(file: Path, name: str) -> Path:
    """Return the state folder of a run without a described cluster: that of its folder, or one that an earlier release made for it.

    Raises UserError for one that an earlier release made in the working directory.
    """
    known = existing_cluster(file, name)
    beside = file.absolute().parent
    return Path(known.state) if known is not None else beside / STATES_FOLDER / OWN


def make_cluster(
    state: Path, run: RunSpec, *, spares: int, name: str = "", pages: PagesSpec | None = None
) -> ClusterSpec:
    """Make a cluster of local nodes that fits `run`, and write it into its state folder.

    A cluster with a supervisor stays as it is: the supervisor knows its nodes. One that is known keeps its name, and room for runs
    that are live in it. `name`: of a new one; without it, it is named after its folder. `pages`: where it pages, if anywhere.
    """
    state = state.absolute()
    local = LocalNodes(nodes=run.nodes, slots=run.ranks_per_node, spares=spares)
    if (state / SPEC).exists():
        known = settle_token(read_spec(state))
        if has_leader(known):
            return known
        name = known.name
        local = _with_room(local, known)
    name = name or folder_name(state)
    pages = pages or PagesSpec()
    spec = with_token(ClusterSpec(name=name, state=str(state), local=local, pages=pages))
    write_spec(spec)
    return spec


def folder_name(state: Path) -> str:
    """Name the cluster of a folder: two folders of one name have two names, so that neither takes the other's ranks for its own."""
    folder = state.parent.parent
    slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:MAX_NAME_CHARACTERS]
    digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:NUM_DIGITS]
    return f"{slug or 'folder'}-{digest}"


def _with_room(local: LocalNodes, known: ClusterSpec) -> LocalNodes:
    """Return nodes and slots that also hold the runs which are live in a cluster without a supervisor."""
    if not exists(known):
        return local
    with store_of(known) as store:
        status = status_in(store, known)
    if status is None or not any(run.state in LIVE_STATES for run in status.runs):
        return local
    was = known.local
    return LocalNodes(
        nodes=max(local.nodes, was.nodes),
        slots=max(local.slots, was.slots),
        spares=max(local.spares, was.spares),
    )


def lack_of_room(cluster: ClusterSpec, run: RunSpec) -> str:
    """Say why a run can never start on a cluster that was made for others; "" when it can."""
    local = cluster.local
    nodes = local.nodes + local.spares
    if run.nodes <= nodes and run.ranks_per_node <= local.slots:
        return ""
    return (
        f"nodes x ranks_per_node: {run.name!r} needs {run.nodes} x {run.ranks_per_node}, and the cluster of its folder was made "
        f"with {nodes} x {local.slots} for runs that are under way"
    )


def make_state_folder(state: Path) -> None:
    """Make the state folder of a cluster. Raises UserError if that fails."""
    try:
        close_folder(state, READABLE)
    except OSError as error:
        raise _unwritable(state, error) from error


def _unwritable(state: Path, error: OSError) -> UserError:
    return UserError(
        f"state folder {state} cannot be written ({error.strerror}); put run.yaml into a folder that this user may write, or "
        f"choose another place with `state` in a {CLUSTER_FILE}"
    )


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
        raise _unwritable(state, error) from error
