"""processes: ranks can open the files and start the threads that they need, under every limit that applies here.

It reads the limits of this process, of its control group and of the machine. Then it opens files and starts threads, since
a limit that it does not know may apply as well. A rank inherits the limits of the process that starts it: run it as that user.
"""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from healthchecks import cgroups
from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, HealthCheck, at_least, at_least_on

NAME = "processes"
PROC_SYS = Path("/proc/sys")
LOADAVG = Path("/proc/loadavg")
# Opened at once by the probe. Chosen, not measured.
NUM_FILES = 256
# Started at once by the probe. Chosen, not measured.
NUM_THREADS = 32
# Chosen. A rank of the demo has 27 on two cores; data loaders, compilers and NCCL's proxies come on top.
CPU_RANK_THREADS, GPU_RANK_THREADS = 128, 512
FILES_WAY_OUT = "raise it: `ulimit -n` and `fs.file-max`, or --ulimit nofile of the container"
THREADS_WAY_OUT = "raise that limit (`ulimit -u`, --pids-limit of the container, `sysctl kernel`), or end other programs"
# Means "no limit", which is no number.
UNLIMITED = float(1 << 30)


def least_free_threads(node: NodeFacts) -> tuple[float, str]:
    """Return how many a node needs, and why."""
    if node.num_gpus:
        num_ranks = max(node.slots, node.num_gpus)
        return num_ranks * GPU_RANK_THREADS, "chosen: 512 for a rank with a GPU"
    return node.slots * CPU_RANK_THREADS, "chosen: 128 for a rank without a GPU; the demo's have 27"


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Read limits and use, then open files and start threads."""
    return Verdict(check=NAME, evidence=(*_files(judge), *_threads(judge), *_probe(judge)))


def _files(judge: Judge) -> Iterator[Evidence]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judge("processes.open_files_soft", _finite(soft), subject="RLIMIT_NOFILE")
    yield judge("processes.open_files_hard", _finite(hard), subject="RLIMIT_NOFILE")
    path = PROC_SYS / "fs/file-nr"
    try:
        allocated, _, most = map(int, path.read_text().split())
    except (OSError, ValueError) as error:
        yield judge("processes.free_files", None, subject="machine", note=str(error))
    else:
        # Where there is no limit the kernel writes its largest integer.
        yield judge("processes.free_files", min(most - allocated, UNLIMITED), subject="machine")


def _threads(judge: Judge) -> Iterator[Evidence]:
    """Yield how many threads may still be started: by the machine's limits, this user's and the control group's."""
    name = "processes.free_threads"
    try:
        used = int(LOADAVG.read_text().split()[3].partition("/")[2])
        for limit in ("pid_max", "threads-max"):
            most = int((PROC_SYS / "kernel" / limit).read_text())
            yield judge(name, most - used, subject=limit)
    except (OSError, ValueError, IndexError) as error:
        yield judge(name, None, subject="machine", note=str(error))
    try:
        room = cgroups.headroom(cgroups.PIDS)
    except (OSError, ValueError) as error:
        yield judge(name, None, subject="control group", note=str(error))
    else:
        if room is not None:
            yield judge(name, room, subject="control group")
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() == 0 or soft == resource.RLIM_INFINITY:
        yield Evidence(name=name, value=None, subject="RLIMIT_NPROC", note="no limit for this user")
    else:
        yield judge(name, soft - _threads_of(os.getuid()), subject="RLIMIT_NPROC")


def _threads_of(user: int) -> int:
    """Count threads of one user's processes; those of others are not inspected."""
    threads = 0
    for process in psutil.process_iter():
        try:
            if process.uids().real == user:
                threads += process.num_threads()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return threads


def _probe(judge: Judge) -> Iterator[Evidence]:
    opened, trouble = open_files(NUM_FILES)
    yield judge("processes.opened_files", opened, subject="probe", note=trouble)
    started, trouble = start_threads(NUM_THREADS)
    yield judge("processes.started_threads", started, subject="probe", note=trouble)


def open_files(count: int) -> tuple[int | None, str]:
    """Open so many files at once and close them; return how many could be opened, and the error that stopped it.

    None instead of a number when it was not for want of descriptors.
    """
    descriptors: list[int] = []
    try:
        while len(descriptors) < count:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        number = len(descriptors) if error.errno in (errno.EMFILE, errno.ENFILE) else None
        return number, str(error)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return len(descriptors), ""


def start_threads(count: int) -> tuple[int, str]:
    """Run so many threads at once; return how many could be started, and the error that stopped it."""
    done = threading.Event()
    threads: list[threading.Thread] = []
    trouble = ""
    try:
        for _ in range(count):
            thread = threading.Thread(target=done.wait)
            thread.start()
            threads.append(thread)
    except RuntimeError as error:
        trouble = str(error)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    return len(threads), trouble


def _finite(limit: int) -> float:
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


CHECK = HealthCheck(
    name=NAME,
    position=20,
    run=check,
    runs_beside=True,
    seconds={"passive": 0.4},
    needs=("slots", "num_gpus"),
    limits={
        "processes.open_files_soft": at_least(
            1024,
            "files",
            "Linux: INR_OPEN_CUR in include/uapi/linux/fs.h",
            most=1e9,
            way_out=FILES_WAY_OUT,
        ),
        "processes.open_files_hard": at_least(
            4096,
            "files",
            "Linux: INR_OPEN_MAX in include/uapi/linux/fs.h",
            most=1e9,
            way_out=FILES_WAY_OUT,
        ),
        "processes.free_files": at_least(65_536, "files", CHOSEN, most=1e12, way_out=FILES_WAY_OUT),
        "processes.free_threads": at_least_on(
            least_free_threads, "threads", most=4194304, way_out=THREADS_WAY_OUT
        ),
        "processes.opened_files": at_least(256, "files", "size of the probe", most=256),
        "processes.started_threads": at_least(32, "threads", "size of the probe", most=32),
    },
)
