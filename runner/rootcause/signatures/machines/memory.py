"""Memory of a host that ran out, as those say it who end processes for it, and allocators that got none."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_oom = partial(Signature, fault="host_oom", layer="machine", scope="node")

HOST_MEMORY = (
    _oom(
        "panic-for-memory",
        r"Kernel panic - not syncing: (?:Out of memory\b|System is deadlocked on memory)"
        r"|Out of memory: .{0,40}\bpanic_on_oom is enabled",
        source="Linux, mm/oom_kill.c: a kernel that stops instead of ending a process",
        sample="Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
        near="Kernel panic - not syncing: Fatal exception in interrupt",
    ),
    _oom(
        "ended-by-memory-daemon",
        r"\bsending SIG(?:TERM|KILL) to process [1-9]\d*\b.{0,80}\b(?:badness|oom_score|VmRSS)\b"
        r"|\blow memory! at or below SIG(?:TERM|KILL) limits"
        r"|\bsystemd-oomd killed (?:[1-9]\d*|some) process|\bhas been killed by the OOM killer\b"
        r"|\bThe kernel OOM killer killed some processes in this unit"
        r"|\boomd(?:\[\d+\])?: .{0,120}\bkilled \S+\.(?:service|scope|slice)\b|\blowmemorykiller: Kill(?:ing)? '"
        r"|\bTaskOOM event &?TaskOOM\{",
        source="earlyoom; systemd and systemd-oomd, their messages on a unit; oomd; Android's killer; containerd",
        sample='earlyoom[812]: sending SIGTERM to process 4411 uid 0 "python3": badness 1245, VmRSS 400212 MiB',
        near="earlyoom[812]: sending SIGTERM when mem <= 10.00% and swap <= 10.00%,",
    ),
    _oom(
        "ended-for-its-limit-of-memory",
        r"\bkilled as a result of limit of /\S|\bkilled by YARN for exceeding (?:\w+ )?memory limits"
        r"|\brunning (?:\d+B )?beyond (?:the )?'?(?:physical|virtual|PHYSICAL|VIRTUAL)'? memory limits?\b"
        r"|\bexceed(?:s|ed) (?:job )?(?:hard|soft) limit \"?[hs]_(?:vmem|rss|data)\b"
        r"|\bgone over (?:cgroup|its cgroup) memory limit\b|\bexceeded \d{2,3}% memory budget\b"
        r"|^oom_kill [1-9]\d*\s*$|\bmemory\.events: oom_kill [1-9]",
        source="Linux, mm/memcontrol.c and memory.events of a control group; YARN; Grid Engine; HTCondor; Dask",
        sample="Task in /slurm/uid_1000/job_44/step_0 killed as a result of limit of /slurm/uid_1000/job_44",
        near="oom_kill 0",
    ),
    _oom(
        "runtime-got-no-memory",
        r"\bThere is insufficient memory for the Java Runtime Environment to continue"
        r"|\bos::commit_memory\(.{1,80} failed; error=|\bNative memory allocation \((?:mmap|malloc)\) failed to"
        r"|\bMmapAligned\(\) failed|\bUnable to allocate [1-9]\d* \(new failed\)"
        r"|\bcannot allocate vector of size \d|\bKilled signal terminated program \S"
        r"|\bmalloc: \*\*\* (?:mach_vm_map|mmap|mach_vm_allocate)\(size=\d+\) failed"
        r"|^(?:ERROR: )?(?:LoadError: )?OutOfMemoryError\(\)",
        source="HotSpot, os_linux.cpp; TCMalloc, system-alloc.cc; R, memory.c; GCC's driver; libmalloc of macOS; Julia",
        sample="# There is insufficient memory for the Java Runtime Environment to continue.",
        near="# Native memory tracking of the Java Runtime Environment is off.",
    ),
)
