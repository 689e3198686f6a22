"""Lines of the operating system: memory that ran out, disks and file systems, limits of the host."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

# Disks; loop devices, floppies and CD-ROMs report errors for harmless reasons.
_DISK = "(?:sd|nvme|dm-|md|vd|xvd|hd|mmcblk|nbd|rbd|drbd|pmem|bcache|zram|dasd)"
_ERRNO = "errno(3), as Python and libc print it"

_oom = partial(Signature, fault="host_oom", layer="machine", scope="node")
_storage = partial(Signature, fault="filesystem", layer="machine", scope="storage")
_node = partial(Signature, fault="unknown", layer="machine", scope="node")

MACHINE = (
    _oom(
        "evicted-for-memory",
        r"(?i)node was low on resource: memory|low on resource: \[?memory|evict\w* .{0,80}memory ?pressure",
        source="Kubernetes, kubelet's eviction manager: the node ran out of memory, and its place was not wanted",
        sample="Warning  Evicted  4m  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 3Mi.",
        near="Warning  Evicted  4m  kubelet  The node was low on resource: ephemeral-storage.",
    ),
    _storage(
        "node-short-of-disk",
        r"[Ff]ailed to admit pod .*\bDiskPressure\b",
        source="Kubernetes, kubelet's eviction manager: the node takes no pods until disk is free",
        sample="eviction_manager.go:159] Failed to admit pod train-3_ns(1f) - node has conditions: [DiskPressure]",
        near="eviction_manager.go:159] Failed to admit pod train-3_ns(1f) - node has conditions: [PIDPressure]",
    ),
    _oom(
        "oom-kill",
        r"(?:Out of memory(?: \([^)]*\))?: Killed process|"
        r"Memory cgroup out of memory: Killed process|oom-kill:constraint=|invoked oom-killer:|"
        r"oom_reaper: reaped process) ?(?P<pid>\d+)?"
        r"|systemd-oomd\[\d+\]: Killed|\bFailed with result 'oom-kill'|oom_kill_process\+|Tasks state \(memory values in pages\)"
        r"|Memory cgroup stats for |memory: usage \d+kB, limit \d+kB, failcnt [1-9]"
        r"|Out of memory and no killable",
        source="Linux, mm/oom_kill.c",
        sample="Memory cgroup out of memory: Killed process 31337 (python3) total-vm:912345kB, anon-rss:512345kB, file-rss:0kB",
        near="oom_score_adj of process 31337 (python3) was set to -900",
    ),
    _oom(
        "oom-by-scheduler",
        r"(?i)Detected \d+ oom[-_ ]kill event"
        r"|(?:processes|task|step|job).{0,40} (?:may have been|was|"
        r"were) killed by the cgroup out-of-memory"
        r"|\bOOMKilled\b|oom_kill event|exceeded (?:job|step) memory limit"
        r"|Exceeded job memory limit|slurmstepd.*Out Of Memory|task \d+: Out Of Memory"
        r"|TERM_MEMLIMIT|\bgone over (?:its )?memory limit|\bover (?:its|the) memory limit of \d"
        r"|\bOUT_OF_MEMORY\b.{0,40}(?:job|step|task)|(?:job|step|task).{0,40}\bOUT_OF_MEMORY\b"
        r"|ray\.exceptions\.OutOfMemoryError|running low on memory|exited on signal 9 \(Killed\)"
        r"|\bmemory on the node \(.{1,400} (?:above|exceeds) the memory usage threshold"
        # The same over two lines.
        r"|\bexceeds the memory usage threshold of 0\.\d|Task \S{1,200} failed due to oom\b"
        # Backend.AI and other runtimes of containers.
        r"|(?:^|: )Out-of-memory detected\b|\bdetected (?:potentially )?oom-killed (?:process|container|pod|task)\b",
        source="Slurm, slurmstepd; Kubernetes, container status; Ray, its monitor of memory",
        sample="slurmstepd: error: Detected 3 oom-kill event(s) in StepId=881.0. Some of the step tasks have been OOM Killed.",
        near="slurmstepd: memory limit of the step is 480000 MB",
    ),
    _oom(
        "host-allocation-failed",
        r"DefaultCPUAllocator: (?:can't|not enough)|\bstd::bad_alloc\b|\[Errno 12\]"
        r"|(?:OSError|RuntimeError).*Cannot allocate memory"
        r"|numpy\.core\._exceptions\._ArrayMemoryError"
        r"|^memory allocation of \d+ bytes failed|java\.lang\.OutOfMemoryError"
        r"|Unable to allocate [\d.]+ [KMGT]iB for an array|^(?:\S+ )?MemoryError\b",
        source=_ERRNO
        + "; PyTorch, c10/core/CPUAllocator.cpp; NumPy; Rust, its handler of failed allocations",
        sample="RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 68719476736 bytes",
        near="DefaultCPUAllocator was chosen for pinned memory",
    ),
    _oom(
        "worker-killed",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: (?:Killed|9)",
        source="PyTorch, torch/csrc/DataLoader.cpp: SIGKILL of one worker is the kernel's",
        sample="RuntimeError: DataLoader worker (pid 20211) is killed by signal: Killed.",
        near="RuntimeError: DataLoader worker (pid 20211) is killed by signal: Terminated.",
    ),
    _oom(
        "killed",
        r"(?:(?:^|[\]:>] ?)\*{0,2}Killed(?:: 9)?\*{0,2}|: line \d+: +\d+ +Killed(?:: 9)?(?:\s.*)?)[ \t\r]*$|^zsh: killed  +\S"
        # As the C library says it in Chinese, Japanese, Russian, German, French, Spanish, Italian, Korean.
        r"|^(?:已杀死|已殺死|强制终止|強制終了|Убито|Getötet|Processus arrêté|Terminado \(killed\)|Ucciso|죽었음)[ \t\r]*$",
        layer="launcher",
        source="bash and zsh, on a child that died by SIGKILL; unless a program sent it, the kernel did; glibc, strsignal(3)",
        sample="run.sh: line 7: 40112 Killed                  python train.py --config big.yaml",
        near="Killed by user request: no, still running",
    ),
    _storage(
        "file-system-error",
        r"EXT4-fs error|Remounting filesystem read-only"
        r"|XFS \([^)]*\):? .*(?:[Ll]og I/O [Ee]rror|Corruption|[Ss]hutting down|"
        r"metadata I/O error)"
        r"|BTRFS (?:error|critical)"
        rf"|(?:Buffer )?I/O error,? (?:on )?dev(?:ice)? {_DISK}\w*"
        rf"|blk_update_request: (?:critical|I/O)[^,]*, dev {_DISK}"
        r"|critical target error|no available path - failing I/O"
        r"|nvme \S+: I/O \d+ .*timeout"
        r"|attempt to access beyond end of device"
        r"|I/O error while writing superblock"
        rf"|print_req_error: I/O error, dev {_DISK}"
        r"|JBD2: Error -?\d+|SQUASHFS error|device offline error|\[sd\w+\] .*FAILED Result"
        r"|ata\d+(?:\.\d+)?: (?:failed command|exception Emask)"
        r"|(?:kernel BUG at|WARNING: CPU: \d+ PID: \d+ at) fs/"
        r"|xfs_force_shutdown|XFS .*Internal error|rejecting I/O to offline device"
        r"|nvme\d*: .*timeout, (?:aborting|reset|disable|completion polled)"
        r"|mpt\d?sas\S*: .*(?:fault|diag reset)|FAT-fs .*error",
        is_lasting=True,
        source="Linux, fs/ext4, fs/xfs, fs/btrfs, block, drivers/nvme, drivers/md",
        sample="EXT4-fs error (device sdb1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
        near="EXT4-fs (sdb1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
    ),
    _storage(
        "network-file-system",
        r"(?i)nfs: server \S+ error|nfs4?_\w+: (?:.*\b)?(?:error|failed)\b.*"
        r"|LustreError:|LNetError:|LDISKFS-fs error|mmfs(?:d|_)?.*(?:unmounted|panic|stale)"
        r"|GPFS.*(?:unmount|panic|not mounted)|ceph: .*(?:session lost|corrupt)"
        r"|libceph: .*(?:socket closed|connection (?:failed|reset))|BeeGFS.*(?:error|unreachable)"
        r"|receive_cb_reply: Got unrecognized reply|CIFS: VFS: .*(?:has not responded|error|timed out)"
        r"|NFS4?: state manager: .*(?:failed|error)"
        r"|(?:unhandled|unrecoverable) (?:nfs|state recovery) error"
        r"|mount(?:\.\w+)?: .*(?:timed out|Connection refused|stale)"
        r"|Lustre: .*(?:timed out|evicted|not responding)"
        r"|ldlm_\w+\(\).*(?:expired|timed out)|beegfs.*(?:error|unreachable)|mmfs: \[E\]"
        r"|wekafs: .*timeout",
        source="Linux, net/sunrpc, fs/nfs, fs/ceph; Lustre; Spectrum Scale",
        sample="LustreError: 11-0: scratch-OST0003-osc: operation ost_connect to node 10.4.0.9@o2ib failed: rc = -107",
        near="nfs: server filer02 OK",
    ),
    _storage(
        "file-server-silent",
        r"(?i)(?:nfs|lockd): server (?P<subject>\S+|[{(<[][^]})>]{1,60}[]})>]) (?:is )?not responding"
        r"|Lustre: (?P<target>\S+): Connection to \S+ .*was lost; in progress operations"
        r"|ceph: (?P<rank_of_server>mds\d+) hung",
        role="interrupted",
        source="Linux, net/sunrpc, fs/ceph; Lustre: operations wait, and go on when the server is back",
        sample="nfs: server 10.4.0.9 not responding, timed out",
        near="nfs: server 10.4.0.9 OK",
    ),
    _storage(
        "volume-of-pod-in-error",
        r"\b[EF]\d{4} \d\d:\d\d:.{0,300}"
        r"(?:kubernetes\.io~csi/|\bCheck volume path, err: |\bNode(?:Stage|Publish|GetVolumeStats)\w*\b)"
        r"|\bMountVolume\.(?:SetUp|MountDevice) failed for volume\b|\bUnable to attach or mount volumes\b",
        source="Kubernetes, klog of CSI drivers at the levels error and fatal; the kubelet's events",
        sample='E0706 23:27:30.250470  7 node.go:394] "check volume path" err="function timeout" '
        'volumePath="/var/lib/kubelet/pods/6947/volumes/kubernetes.io~csi/pv/mount"',
        near='I0706 23:27:30.250470  7 node.go:394] "check volume path" '
        'volumePath="/var/lib/kubelet/pods/6947/volumes/kubernetes.io~csi/pv/mount"',
    ),
    _storage(
        "storage-cluster-in-error",
        r"\bHEALTH_ERR\b",
        role="interrupted",
        source="Ceph, `ceph health` and `ceph status`: data cannot be read or written, or are damaged",
        sample="    health: HEALTH_ERR",
        near="    health: HEALTH_WARN",
    ),
    _storage(
        "storage-cluster-back",
        r"\bHEALTH_(?:OK|WARN)\b",
        role="cleared",
        weight="supporting",
        source="Ceph, `ceph health` and `ceph status`",
        sample="    health: HEALTH_OK",
        near="    health: HEALTH_ERR",
    ),
    _storage(
        "file-server-back",
        r"(?i)(?:nfs|lockd): server (?P<subject>\S+) OK\b"
        r"|Lustre: (?P<target>\S+): Connection restored to"
        r"|ceph: (?P<rank_of_server>mds\d+) (?:caps stale|reconnect success|recovery completed|came back)",
        role="cleared",
        weight="supporting",
        source="Linux, net/sunrpc, fs/ceph; Lustre",
        sample="nfs: server 10.4.0.9 OK",
        near="nfs: server 10.4.0.9 not responding, timed out",
    ),
    _storage(
        "task-blocked",
        r"INFO: task (?P<task>\S+):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
        source="Linux, kernel/hung_task.c: a task in uninterruptible sleep waits for a disk or a file server, as a rule",
        sample="INFO: task python3:8812 blocked for more than 120 seconds.",
        near='"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    ),
    Signature(
        "frame-of-network-driver",
        r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?:mlx[45]_\w+|ib_\w+|rdma_\w+|irdma|bnxt_\w+|efa|hfi1|qedr|siw|rxe)\]",
        fault="",
        layer="network",
        scope="node",
        weight="supporting",
        role="frame-of-network-driver",
        source="Linux, kernel/hung_task.c: the stack of a blocked task, with the module of each function",
        sample=" __mlx5_ib_dereg_mr+0x379/0x5d0 [mlx5_ib]",
        near=" nfs_wait_bit_killable+0x2b/0x40 [nfs]",
    ),
    Signature(
        "frame-of-gpu-driver",
        r"\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?:amdgpu|amdkfd|nvidia\w*|habanalabs\w*|xe|i915)\]",
        fault="",
        layer="device",
        scope="gpu",
        weight="supporting",
        role="frame-of-gpu-driver",
        source="Linux, kernel/hung_task.c: the stack of a blocked task, with the module of each function",
        sample=" svm_range_cpu_invalidate_pagetables+0x2b/0x40 [amdgpu]",
        near=" nfs_wait_bit_killable+0x2b/0x40 [nfs]",
    ),
    _storage(
        "storage-errno",
        r"\[Errno (?:5|30|107|112|116|121|122)\]|Input/output error|Stale (?:NFS )?file handle"
        r"|Read-only file system|[Tt]ransport endpoint is not connected|Disk quota exceeded"
        r"|Remote I/O error",
        source=_ERRNO,
        sample="OSError: [Errno 116] Stale file handle: 'shard_00017.bin'",
        near="OSError: [Errno 13] Permission denied: 'shard_00017.bin'",
    ),
    _storage(
        "disk-full",
        r"(?:\[Errno 28\]|No space left on device)",
        role="disk-full",
        source=_ERRNO,
        sample="cp: error writing 'tokens.bin': No space left on device",
        near="1.2 TB of space left on device nvme1n1",
    ),
    _node(
        "host-limit",
        r"pthread_create(?:\(\))? failed|can't start new thread"
        r"|(?:\bfork|clone|pthread_create|"
        r"[Tt]hread creation)[^|]{0,60}(?:Resource temporarily unavailable|EAGAIN)"
        r"|Too many open files|\[Errno 24\]|libgomp: Thread creation failed"
        r"|VFS: file-max limit \d+ reached",
        source="pthread_create(3), open(2): a limit of the host or of the user",
        sample="RuntimeError: can't start new thread",
        near="the thread pool starts a new thread for each worker",
    ),
    _node(
        "kernel-stopped",
        r"Kernel panic - not syncing|BUG: unable to handle (?:kernel|page fault)|\bOops: [0-9a-f]{4} \[#\d+\]",
        fault="node_failure",
        source="Linux, kernel/panic.c",
        sample="Kernel panic - not syncing: Fatal exception in interrupt",
        near="kernel.panic = 10",
    ),
    _node(
        "processor-stuck",
        r"BUG: soft lockup|[Ww]atchdog.*[Hh]ard LOCKUP|rcu: INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stall",
        fault="node_failure",
        role="stuck",
        source="Linux, kernel/watchdog.c, kernel/rcu/tree_stall.h: code of the kernel, most often a driver's, that does not return",
        sample="watchdog: BUG: soft lockup - CPU#23 stuck for 26s! [python3:5511]",
        near="watchdog: soft lockup detector is enabled on 128 CPUs",
    ),
    _node(
        "node-failed",
        r"(?i)DUE TO NODE FAILURE|Node failure on (?P<node>[\w.-]+)"
        r"|(?P<named>[\w.-]+) (?:is )?not responding, setting DOWN|lost contact with node"
        # Ray wrote "beem" until 2.0.
        r"|node with node id: \S+ .{0,200}has been marked dead|\bnode has bee[nm] marked (?:as )?dead\b"
        r"|\bNodeLost\b|unexpected(?:ly)? reboot(?:ed)?\b|\b[Nn]ode \S+ rebooted unexpectedly\b"
        r"|Unable to contact slurm controller|\bdown[*$]? .{0,160}\bNot responding[ \t\r]*$"
        # The reason for which CycleCloud's health check takes a node out.
        r"|\bcyclecloud_node_fail\b"
        r"|\bNodeNotReady\b|Node \S+ (?:status is now: NodeNotReady|is unreachable|became unreachable)",
        fault="node_failure",
        is_lasting=True,
        source="Slurm, srun and slurmctld",
        sample="srun: error: Node failure on gpu-17",
        near="node failures are tolerated with --no-kill",
    ),
    _node(
        "node-taken-out",
        r"update_node: node (?P<node>\S+) reason set to: .*(?i:not responding|health ?check|kill task failed"
        r"|unexpected\w* reboot|\bNHC\b|(?:prolog|epilog) (?:error|fail)|batch job complete failure|hardware|\bXid\b|\bECC\b"
        r"|nv ?link|\bGPU\b.{0,40}(?:lost|fail|error|missing|bad)|fail)"
        r"|update_node: node (?P<failing>\S+) (?:reason set to: .*(?i:replace)|state set to FAIL)"
        r"|Setting node (?P<taken>\S+) state to (?:DRAIN|DOWN|FAIL)\w* with reason: ?(?:Kill|Not responding|Prolog|Epilog)",
        fault="node_failure",
        source="Slurm, slurmctld: why its operators or its health check took a node out",
        sample="update_node: node a3-17 reason set to: Kill task failed",
        near="update_node: node a3-17 reason set to: maintenance of the rack on Monday",
    ),
    _node(
        "nic-broken",
        r"\bmlx5_core \S+ .*(?:firmware internal error|irisc not responding|unrecoverable hardware error|firmware CRC error"
        r"|\bHW fatal error|FFSER error|data poisoned error)",
        fault="host_hardware",
        is_lasting=True,
        source="Linux, drivers/net/ethernet/mellanox/mlx5/core/health.c: what the card says of itself",
        sample="mlx5_core 0000:c2:00.0: print_health_info:447:(pid 0): synd 0x1: firmware internal error",
        near="mlx5_core 0000:c2:00.0: print_health_info:440:(pid 0): fw_ver 22.44.1036",
    ),
    _node(
        "node-has-less",
        r"Node \S+ has low real_memory size \(|[Rr]eason[:=] ?Low (?:RealMemory|socket\*core|CPUs)\b",
        fault="host_hardware",
        source="Slurm, slurmctld: a node registers with less than it is configured to have",
        sample="error: Node a3-17 has low real_memory size (1031771 < 2063543)",
        near="Node a3-17 has 2063543 real_memory",
    ),
    _node(
        "task-in-the-kernel",
        r"\btask:(?:python|pt_main_thread|ray::|torchrun|deepspeed)\S* +state:D\b",
        fault="hang_no_error",
        layer="consequence",
        scope="rank",
        source="Linux, kernel/sched: a dump of a task in uninterruptible sleep",
        sample="task:python3.11      state:D stack:    0 pid:15277 ppid: 15257 flags:0x00000002",
        near="task:python3.11      state:S stack:    0 pid:15277 ppid: 15257 flags:0x00000002",
    ),
    _node(
        "program-died-in-the-kernels-log",
        r"\b(?:python[\d.]*|pt_main_thread|torchrun|deepspeed|ray::\S*|accelerate|mpirun|nccl\S*)\[\d+\]:? "
        r"(?:segfault at |general protection fault|trap (?:invalid opcode|divide error|int3)|bad frame in)",
        layer="launcher",
        scope="rank",
        source="Linux, arch/x86/mm/fault.c and kernel/traps.c: how a program ended, not why",
        sample="python3[1234]: segfault at 0 ip 00007f1f0a8e4c30 sp 00007ffd3a8 error 4 in libtorch_cuda.so[7f1ee000+8a3000]",
        near="gnome-shell[1234]: segfault at 0 ip 00007f1f0a8e4c30 sp 00007ffd3a8 error 4 in libst.so[7f1ee000+8a3000]",
    ),
)
