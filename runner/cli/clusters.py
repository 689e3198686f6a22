"""Which cluster a command is about, and which supervisor holds its lease."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from runner.cli import output
from runner.errors import Forged, UserError, WireError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words
from runner.serve.leaders import Leader as Leader
from runner.serve.leaders import NoLeader as NoLeader
from runner.serve.leaders import leader_of as leader_of
from runner.serve.leaders import require_leader as require_leader
from runner.serve.leaders import require_own_store as require_own_store
from runner.serve.status_reader import read_status
from runner.signer import CLUSTER_NAME, settle_token, signer_of
from runner.store.protocol import Store
from runner.store.registry import exists, open_store

T = TypeVar("T")

CLUSTER_FILE = "cluster.yaml"
# Beside run.yaml: the state of clusters without a file of their own.
STATES_FOLDER = ".stoker"
SPEC = CLUSTER_NAME
# In it: the cluster that serves the runs of a folder, and that of the demo.
OWN, DEMO = "local", "demo"
LIVE_STATES = ("active", "waiting", "paused")


def find_cluster(where: str | None, *, only_reads: bool = False) -> ClusterSpec:
    """Return the cluster meant by `--cluster`: a cluster.yaml, a run.yaml, a folder of one, a state folder, or a name in `.stoker`.

    Without it: that of the nearest folder, from the working directory upwards, which has a cluster.yaml or a cluster in `.stoker`
    (see `_of_folder`). Its token file is settled: "" means that the cluster does not sign. Raises UserError with the choices.
    `only_reads`: nothing is asked of the cluster, so that of several the newest may be taken.
    """
    found = _nearest(only_reads) if where is None else _named(where, only_reads)
    return settle_token(found)


def _nearest(only_reads: bool) -> ClusterSpec:
    searched, foreign = searched_folders()
    for folder in searched:
        found = _of_folder(folder, only_reads)
        if found is not None:
            if folder != Path():
                output.print_note(f"cluster {found.name} of {folder}")
            return found
    passed_over = "".join(
        f"; {path} belongs to another user and is passed over" for path in foreign
    )
    raise UserError(
        f"no cluster here: neither {Path.cwd()} nor a folder above it has a {CLUSTER_FILE} or a cluster in {STATES_FOLDER}"
        f"{passed_over}; start one with `stoker run RUN.yaml`, or name one with --cluster: a RUN.yaml, its folder, a cluster.yaml"
    )


def searched_folders() -> tuple[list[Path], list[Path]]:
    """Return the working directory and the folders above it, and what of other users' lies in the latter, which is passed over."""
    try:
        above = Path.cwd().parents
    except OSError as error:
        raise UserError(
            f"the working directory cannot be read ({error.strerror}): change to one that exists"
        ) from error
    searched, foreign = [Path()], []
    for folder in above:
        found = [path for path in (folder / CLUSTER_FILE, folder / STATES_FOLDER) if path.exists()]
        theirs = [path for path in found if path.stat().st_uid not in (0, os.geteuid())]
        foreign += theirs
        searched += [] if theirs else [folder]
    return searched, foreign


def _of_folder(folder: Path, only_reads: bool) -> ClusterSpec | None:
    """Return the cluster of a folder, and print which of several: one with a supervisor before others, `local` before others.

    If several are left, one that `only_reads` takes the one with the newest status, and another one raises UserError.
    """
    if (folder / CLUSTER_FILE).is_file():
        return _load_cluster(folder / CLUSTER_FILE, only_reads)
    made = clusters_in(folder)
    if len(made) < 2:
        return made[0] if made else None
    left = [spec for spec in made if has_leader(spec)] or made
    if len(left) > 1:
        left = [spec for spec in left if Path(spec.state).name == OWN] or left
    if len(left) > 1 and not only_reads:
        names = ", ".join(spec.name for spec in left)
        raise UserError(
            f"several clusters in {folder / STATES_FOLDER}: {names}; choose one with --cluster NAME"
        )
    chosen = max(left, key=_published_at)
    others = ", ".join(spec.name for spec in made if spec is not chosen)
    output.print_note(
        f"cluster {chosen.name}; also in {folder / STATES_FOLDER}: {others}; --cluster NAME chooses another"
    )
    return chosen


def _published_at(spec: ClusterSpec) -> float:
    """Return when a cluster's status was published, Unix seconds; 0: never."""
    if not exists(spec):
        return 0.0
    with store_of(spec) as store:
        status = read_status(store)
    return status.wall if status is not None else 0.0


def clusters_in(folder: Path) -> list[ClusterSpec]:
    """Return the clusters whose state is in `.stoker` of a folder, by name."""
    return [read_spec(path.parent) for path in sorted((folder / STATES_FOLDER).glob(f"*/{SPEC}"))]


def store_of(cluster: ClusterSpec, *, create: bool = False) -> closing[Store]:
    """Open the cluster's store; raise UserError if the cluster was never started."""
    return closing(open_store(cluster, create=create))


@contextmanager
def open_cluster(
    where: str | None, *, only_reads: bool = False
) -> Iterator[tuple[ClusterSpec, Store]]:
    """Open the store of the cluster that `find_cluster` finds."""
    cluster = find_cluster(where, only_reads=only_reads)
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


def newest_run(status: ClusterStatus, name: str | None) -> RunStatus:
    """Return a run as `pick_run` does, and without a name, where no run is live, the newest."""
    is_live = any(run.state in LIVE_STATES for run in status.runs)
    return (
        status.runs[-1] if name is None and status.runs and not is_live else pick_run(status, name)
    )


def _named(where: str, only_reads: bool) -> ClusterSpec:
    path = Path(where)
    if path.is_file():
        return _load_file(path, only_reads)
    searched, _ = searched_folders()
    for folder in (path, *(above / STATES_FOLDER / where for above in searched)):
        if (folder / CLUSTER_FILE).is_file():
            return _load_cluster(folder / CLUSTER_FILE, only_reads)
        if (folder / SPEC).is_file():
            return read_spec(folder)
    known = [spec for folder in searched for spec in clusters_in(folder)]
    named = [spec for spec in known if spec.name == where]
    found = named[0] if named else _of_folder(path, only_reads)
    if found is not None:
        return found
    raise UserError(
        f"--cluster: {where!r} is neither a cluster.yaml, nor a RUN.yaml or a folder with a cluster, nor the name of one in "
        f"{STATES_FOLDER} ({known_words(where, [spec.name for spec in known])})"
    )


def _load_cluster(path: Path, only_reads: bool = False) -> ClusterSpec:
    # Imports yaml, which a cluster without a file of its own does not need.
    from runner.load.specs import load_cluster

    return load_cluster(path, only_reads=only_reads)


def _load_file(path: Path, only_reads: bool) -> ClusterSpec:
    from runner.load.specs import is_run_file, load_cluster, load_run

    if not is_run_file(path):
        return load_cluster(path, only_reads=only_reads)
    found = existing_cluster(path, load_run(path).name)
    if found is None:
        raise UserError(
            f"--cluster: {path} describes a run, and no cluster of its folder has run it; `stoker run {path}` starts one"
        )
    return found


def existing_cluster(run_file: Path, name: str) -> ClusterSpec | None:
    """Return the cluster that serves a run without `--cluster`; None if it is still to be made.

    That is the cluster.yaml beside its file or in the working directory, or else what `stoker run` made in `.stoker` beside its
    file: of an earlier release one for this name of a run, or that of the folder. Raises UserError for one that an earlier release
    made in `.stoker` of the working directory.
    """
    beside = run_file.absolute().parent
    for folder in (beside, Path()):
        if (folder / CLUSTER_FILE).is_file():
            return _load_cluster(folder / CLUSTER_FILE)
    for state in (name, OWN):
        if state != DEMO and (beside / STATES_FOLDER / state / SPEC).is_file():
            return read_spec(beside / STATES_FOLDER / state)
    earlier = (Path() / STATES_FOLDER / name).absolute()
    if name not in (OWN, DEMO) and (earlier / SPEC).is_file():
        raise UserError(
            f"the working directory has a cluster for runs named {name!r}, {earlier}, and {run_file} is elsewhere: since this "
            f"release, what belongs to a run stands beside its file; to go on there: `--cluster {shlex.quote(str(earlier))}`; to "
            f"begin again, start it from another directory, such as {beside}"
        )
    return None


def read_spec(state: Path) -> ClusterSpec:
    """Return the cluster that was written into a state folder, which may have been moved since. Raises UserError."""
    path = state / SPEC
    try:
        spec = wire.decode(path.read_bytes())
    except (OSError, WireError) as error:
        raise UserError(f"{path} cannot be read ({error}); remove {state} to start over") from error
    if not isinstance(spec, ClusterSpec):
        raise UserError(f"{path} holds a {type(spec).__name__}, not a cluster; remove {state}")
    return spec if _is_same(state, Path(spec.state)) else _moved(spec, str(state.absolute()))


def spec_of_copy(copy: Path) -> ClusterSpec | None:
    """Return the cluster whose journal was copied: of a state folder, or of what lies in one; None: it is not there."""
    folders = [copy, copy.parent] if copy.name in ("store", "journal") else [copy]
    if copy.is_file() and copy.parent.name in ("store", "journal"):
        folders.append(copy.parent.parent)
    found = [folder for folder in folders if (folder / SPEC).is_file()]
    return read_spec(found[0]) if found else None


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _moved(spec: ClusterSpec, state: str) -> ClusterSpec:
    """Return the cluster as it is after its state folder was moved or copied to `state`."""
    token_file, journal_folder = (
        state + path.removeprefix(spec.state) if path.startswith(f"{spec.state}/") else path
        for path in (spec.token_file, spec.journal_folder)
    )
    return replace(spec, state=state, token_file=token_file, journal_folder=journal_folder)


def has_leader(spec: ClusterSpec) -> bool:
    """Whether a living supervisor holds the cluster's lease, as seen from this machine."""
    if not exists(spec):
        return False
    with store_of(spec) as store:
        return leader_of(store).alive
