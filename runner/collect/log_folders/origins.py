"""Origins: which rank, node and launch wrote a file, by the parts of its path and by the files beside it.

What is written in a line outranks all of this. A number is a rank only where a word says so, or where the files of one launch
count from 0 without a gap; a culprit must not be named by a guess.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

# A number of so many digits or more that words do not explain is a job's.
JOB_DIGITS = 4
# Of a rank or a node; longer numbers are something else.
MAX_DIGITS = 6
MAX_JOB_DIGITS = 19
Launch = tuple[int, ...]
# Of a log whose older parts are beside it.
NEWEST_PART = "part 0"

_WORDS = {
    "local": r"local[-_.]?rank|lrank|device|cuda|local",
    "rank": r"global[-_.]?rank|rank|task|proc|process|worker|replica|trainer",
    "node": r"node[-_.]?rank|node|host|server|machine",
    "launch": r"attempt|restart|retry|try",
    "job": r"slurm|job[-_.]?id",
    "none": (
        r"epoch|step|iter|iteration|ckpt|checkpoint|version|part|shard|exp|seed|trial|phase|stage|lora|low|v|line|pid|batch"
    ),
}
_BEFORE = {what: re.compile(rf"(?:^|[^a-z])(?:{words})[-_.= ]?$") for what, words in _WORDS.items()}
_NUMBER = re.compile(r"[0-9]+")
# Not one that begins a hash: worker-0a1b of Ray.
_WHOLE_NUMBER = re.compile(r"[0-9]+(?![0-9a-zA-Z])")
_STREAMS = frozenset({"stdout", "stderr", "out", "err", "output", "error", "log", "logs"})
# Folders whose children are nodes.
_OF_NODES = frozenset({"nodes", "hosts", "machines"})
_HOST = re.compile(
    r"(?:ip-\d+-\d+-\d+-\d+|\d+\.\d+\.\d+\.\d+"
    r"|(?:[a-z]+[a-z0-9]*[-_])*(?:node|host|gpu(?=\D?\d{3})|dgx|hgx|nid|compute|server|machine|cn|gn|n)[-_]?\d+[a-z]?)"
    r"(?:\.[a-z][\w.\-]*)?",
    re.IGNORECASE,
)
_KERNEL = re.compile(r"(?:^|[^a-z])(?:dmesg|kern|kernel|kmsg|messages|syslog|journal)(?:[^a-z]|$)")
_SHORT_HOST = re.compile(
    r"(?<![a-z0-9])(?:ip-\d+-\d+-\d+-\d+|(?:node|host|gpu|dgx|hgx|nid|cn|gn)[-_]?\d{2,}[a-z]?)(?![a-z0-9])",
    re.IGNORECASE,
)
_ANY_HOST = re.compile(r"(?=.*\d)[a-z][\w.\-]*", re.IGNORECASE)
_KERNEL_WORDS = "dmesg|kern|kernel|kmsg|messages|syslog|journal"
_BETWEEN = re.compile(rf"_|(?:^|[-.])(?:{_KERNEL_WORDS})(?:[-.]|$)")
_ENDINGS = re.compile(r"(?:\.(?:txt|log|out|err|gz|xz|bz2|zst))+$")
_ROTATED = re.compile(r"(.+)\.([1-9]\d{0,4})(?:\.(?:gz|bz2|xz|zst))?")
_ATTEMPT_FOLDER = re.compile(r"attempt_(\d+)")
_STOKER_ATTEMPT = re.compile(r"\d+\.\d+\.\d+")
_ARRAY_JOB = re.compile(r"slurm-(\d+)_(\d+)\.")
# Of `kubectl cluster-info dump`, of a node's /var/log/pods, and of its /var/log/containers.
_POD_FILES = frozenset({"logs.txt", "previous.txt"})
_POD_FOLDER = re.compile(r"[a-z0-9\-]+_([a-z0-9.\-]+)_[0-9a-f\-]{32,36}")
_POD_LINK = re.compile(r"([a-z0-9.\-]+)_[a-z0-9\-]+_.+-[0-9a-f]{64}\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The writer of a file. None or "": not known. `launch` orders what was started one after the other; (): not known."""

    rank: int | None = None
    local_rank: int | None = None
    node: str = ""
    launch: Launch = ()
    launch_name: str = ""
    is_kernel: bool = False
    is_of_pod: bool = False


def origins_of(paths: Sequence[str], roots: Mapping[str, str] | None = None) -> dict[str, Origin]:
    """Return the origin of each path. `roots`: path -> the folder above it that was named, whose own name says nothing."""
    roots = roots or {}
    parts_of = {path: _parts(path, roots.get(path, "")) for path in paths}
    origins = {path: _by_words(parts) for path, parts in parts_of.items()}
    of_ranks = {path: parts_of[path] for path in paths if not _is_of_host(origins[path])}
    rotated = _rotated(of_ranks)
    for path, age in rotated.items():
        name = f"part {age}" if age else NEWEST_PART
        origins[path] = replace(origins[path], launch=(-age,), launch_name=name)
    _by_numbers({path: of_ranks[path] for path in of_ranks if path not in rotated}, origins)
    _local_where_repeated(origins)
    _global_where_alone(origins)
    return origins


def _parts(path: str, root: str) -> tuple[str, ...]:
    inside = os.path.relpath(path, root) if root else os.path.basename(path)
    return tuple(inside.split(os.sep))


def _is_of_host(origin: Origin) -> bool:
    """Whether no rank alone writes a file: the kernel does, or all processes of a pod."""
    return origin.is_kernel or origin.is_of_pod


# ---- by words


def _by_words(parts: tuple[str, ...]) -> Origin:
    """Return what the words in a path say."""
    if pod := _pod_of(parts):
        return Origin(node=pod, is_of_pod=True)
    origin = Origin()
    folders, name = parts[:-1], parts[-1]
    for above, folder in zip(("", *folders), folders, strict=False):
        origin = _of_folder(origin, above, folder)
    if _KERNEL.search(name.lower()):
        host = origin.node or _host_in(name, is_kernel=True)
        return replace(origin, node=host, rank=None, local_rank=None, is_kernel=True)
    if (array := _ARRAY_JOB.match(name)) and len(array[1]) < MAX_JOB_DIGITS:
        launch = (int(array[1]), int(array[2][:MAX_DIGITS]))
        return replace(origin, launch=launch, launch_name=f"job {array[1]}_{array[2]}")
    for match in _WHOLE_NUMBER.finditer(name):
        origin = _of_number(origin, name[: match.start()].lower(), match[0])
    return replace(origin, node=origin.node or _host_in(name))


def _pod_of(parts: tuple[str, ...]) -> str:
    if len(parts) > 1 and parts[-1] in _POD_FILES:
        return parts[-2]
    if link := _POD_LINK.fullmatch(parts[-1]):
        return link[1]
    return next((pod[1] for part in parts[:-1] if (pod := _POD_FOLDER.fullmatch(part))), "")


def _of_folder(origin: Origin, above: str, folder: str) -> Origin:
    lower = folder.lower()
    if attempt := _ATTEMPT_FOLDER.fullmatch(lower):
        number = attempt[1][:MAX_DIGITS]
        return replace(origin, launch=(int(number),), launch_name=f"attempt {number}")
    if above == "attempts" and _STOKER_ATTEMPT.fullmatch(folder):
        launch = tuple(int(number[:18]) for number in folder.split("."))
        return replace(origin, launch=launch, launch_name=f"attempt {folder}")
    if _ATTEMPT_FOLDER.fullmatch(above.lower()) and folder.isdigit() and len(folder) <= MAX_DIGITS:
        return replace(origin, local_rank=int(folder))
    if above.lower() in _OF_NODES or _HOST.fullmatch(folder):
        return replace(origin, node=folder)
    for match in _NUMBER.finditer(lower):
        if match.end() == len(lower):
            origin = _of_number(origin, lower[: match.start()], match[0])
    return origin


def _of_number(origin: Origin, before: str, number: str) -> Origin:
    """Add what the word before a number says of it."""
    if len(number) >= MAX_JOB_DIGITS:
        return origin
    what = next((what for what, known in _BEFORE.items() if known.search(before)), "")
    value = int(number)
    if what == "rank" and len(number) <= MAX_DIGITS:
        return replace(origin, rank=value)
    if what == "local" and len(number) <= MAX_DIGITS:
        return replace(origin, local_rank=value)
    if what == "launch":
        return replace(origin, launch=(*origin.launch, value), launch_name=f"attempt {value}")
    if what == "job" and not origin.launch:
        return replace(origin, launch=(value,), launch_name=f"job {value}")
    return origin


def _host_in(name: str, *, is_kernel: bool = False) -> str:
    """Return the host that a file's name holds: gpu-017.log, dmesg-gpu-017.txt, n3.example.org_dmesg."""
    tokens = [token for token in _BETWEEN.split(_ENDINGS.sub("", name)) if token]
    hosts = [token for token in tokens if _HOST.fullmatch(token)]
    if not hosts and is_kernel:
        # Beside the name of a kernel's log, only a host is left.
        hosts = [token for token in tokens if _ANY_HOST.fullmatch(token)]
    if not hosts:
        # Beside a job's name or number: train-81234-gpu017.out.
        hosts = list(dict.fromkeys(_SHORT_HOST.findall(name)))
    return hosts[0] if len(hosts) == 1 else ""


# ---- by numbers


@dataclass(slots=True)
class _Family:
    """Files of one folder whose names differ in numbers only."""

    paths: list[str]
    values: list[tuple[str, ...]]
    # What is before each number.
    befores: list[str]


def _families(parts_of: Mapping[str, tuple[str, ...]]) -> Iterable[_Family]:
    groups: dict[tuple[str, ...], _Family] = {}
    for path, parts in parts_of.items():
        name = parts[-1]
        key = (*parts[:-1], _stream_free(_NUMBER.sub("#", name)))
        family = groups.get(key)
        if family is None:
            befores = [name[: found.start()].lower() for found in _NUMBER.finditer(name)]
            family = groups[key] = _Family([], [], befores)
        family.paths.append(path)
        family.values.append(tuple(_NUMBER.findall(name)))
    return groups.values()


def _stream_free(template: str) -> str:
    """Return a name without the word for its stream: rank 3's output and its errors are of one family."""
    return re.sub(r"(?<![a-z])(?:stdout|stderr|out|err)(?![a-z])", "*", template.lower())


def _by_numbers(parts_of: Mapping[str, tuple[str, ...]], origins: dict[str, Origin]) -> None:
    """Add launches and ranks where numbers without a word count: %j-%n-%t of Slurm, 0.log to 7.log."""
    for family in _families(parts_of):
        if len(family.paths) < 2:
            continue
        columns = list(zip(*family.values, strict=True))
        open_columns = [
            at
            for at, before in enumerate(family.befores)
            if not any(known.search(before) for known in _BEFORE.values())
            if all(len(value) < MAX_JOB_DIGITS for value in columns[at])
        ]
        jobs = [at for at in open_columns if min(map(len, columns[at])) >= JOB_DIGITS]
        if len(jobs) == 1 and len(set(columns[jobs[0]])) > 1:
            for path, value in zip(family.paths, columns[jobs[0]], strict=True):
                if not origins[path].launch:
                    origins[path] = replace(
                        origins[path], launch=(int(value),), launch_name=f"job {value}"
                    )
        _dense_ranks(family, columns, [at for at in open_columns if at not in jobs], origins)


def _rotated(parts_of: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the age of parts of one log: train.log is 0, train.log.1 is 1, train.log.2.gz is 2; nothing of other files."""
    paths = {parts: path for path, parts in parts_of.items()}
    ages: dict[str, int] = {}
    for parts, path in paths.items():
        found = _ROTATED.fullmatch(parts[-1])
        if found is not None and (base := paths.get((*parts[:-1], found[1]))) is not None:
            ages[base], ages[path] = 0, int(found[2])
    return ages


def _dense_ranks(
    family: _Family, columns: list[tuple[str, ...]], wanted: list[int], origins: dict[str, Origin]
) -> None:
    """Take the last number that counts from 0 without a gap within each launch as the rank."""
    paths = family.paths
    if any(
        origins[path].rank is not None or origins[path].local_rank is not None for path in paths
    ):
        return
    for at in reversed(wanted):
        of_launch: dict[Launch, list[int]] = defaultdict(list)
        for path, value in zip(paths, columns[at], strict=True):
            of_launch[origins[path].launch].append(int(value))
        if all(_is_dense(values) for values in of_launch.values()):
            for path, value in zip(paths, columns[at], strict=True):
                origins[path] = replace(origins[path], rank=int(value))
            return


def _is_dense(values: list[int]) -> bool:
    """Whether numbers are 0 to n - 1, each as often as the others: an output and an error file of each rank, say."""
    distinct = sorted(set(values))
    is_whole = distinct == list(range(len(distinct))) and len(distinct) > 1
    return is_whole and len(values) in (len(distinct), 2 * len(distinct))


def _local_where_repeated(origins: dict[str, Origin]) -> None:
    """Take numbers for local ranks where several nodes of one launch have the same."""
    nodes_of: dict[tuple[Launch, int], set[str]] = defaultdict(set)
    for one in origins.values():
        if one.rank is not None and one.node:
            nodes_of[one.launch, one.rank].add(one.node)
    repeated = {launch for (launch, _), nodes in nodes_of.items() if len(nodes) > 1}
    for path, one in origins.items():
        if one.rank is not None and one.node and one.launch in repeated:
            origins[path] = replace(one, rank=None, local_rank=one.rank)


def _global_where_alone(origins: dict[str, Origin]) -> None:
    """Take local ranks for ranks where all are of one node: no node is named, or only one, and no number comes twice."""
    local = {path: one for path, one in origins.items() if one.local_rank is not None}
    above = {os.path.dirname(_without_rank(path)) for path, one in local.items() if not one.node}
    places = {re.sub(r"attempt_\d+", "", folder) for folder in above}
    if len({one.node for one in local.values() if one.node}) > 1 or len(places) > 1:
        return
    for path, one in local.items():
        if one.rank is None:
            origins[path] = replace(one, rank=one.local_rank)


def _without_rank(path: str) -> str:
    """Return a path without a last folder that is only a number."""
    folder = os.path.dirname(path)
    return folder if os.path.basename(folder).isdigit() else path
