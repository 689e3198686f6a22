"""Storage: mounts that failed, file systems and pools that gave up, disks of other hosts, services that hold files."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_storage = partial(Signature, fault="filesystem", layer="machine", scope="storage")

STORAGE = (
    _storage(
        "mount-failed",
        r"\bmount(?:\.\w+)?: .{0,160}(?:\bcan't read superblock|\bwrong fs type, bad option, bad superblock"
        r"|\bmount system call failed|\bspecial device \S+ does not exist)"
        r"|\bmount\.\w+: (?:No route to host|Network is unreachable|Host is down|Input/output error) for "
        r"|(?:^|[\]:] )mount error ?(?:\((?:2|5|6|16|101|110|111|112|113|115)\)|(?:2|5|110|111|112|113) = |: no mds server)"
        r"|\bceph mount failed with \(|\bFailed to mount (?:\S+\.mount - )?/\S"
        r"|\bDependency failed for (?:\S+\.mount - )?(?:/\S|Local File Systems|Remote File Systems)"
        r"|\S+\.mount: (?:Mounting timed out|Mount process exited, code=exited, status=(?:[1-9]|\d\d))"
        r"|\bTimed out waiting for device (?:/dev/(?:disk|mapper|md|nvme|sd)|dev-(?:disk|mapper|md|nvme|sd))"
        r"|\bmount\(\w+\): (?:\w+: )?mount failure \S|\bNFS4: Couldn't follow remote path"
        r"|\breadFromProcess: sub-process: .{1,300}(?:\bError 5\d\d\b|\btimeout|\bdeadline|\bconnection re)",
        source="util-linux, mount(8); mount.cifs and mount.ceph; systemd, units of mounts; autofs; gcsfuse",
        sample="systemd[1]: Failed to mount mnt-data.mount - /mnt/data.",
        near="systemd[1]: Mounted mnt-data.mount - /mnt/data.",
    ),
    _storage(
        "file-system-gave-up",
        r"\bJBD2: Detected IO errors while flushing|\bBTRFS (?:info|warning|error) .{1,60}(?:\bforced readonly"
        r"|\bcsum (?:hole found|failed))|\bF2FS-fs \(\S+\): .{0,60}(?:\binconsistent|\bcorrupt)"
        r"|\berofs: .{0,60}\bcorrupt|\bDelayed block allocation failed for inode \d|\bThis should not happen!! Data will be lost"
        r"|\bUNEXPECTED INCONSISTENCY; RUN fsck MANUALLY|\bBad magic number in super-block while"
        r"|: Structure needs cleaning\.?(?:[\s'\"(]|$)"
        r"|\boverlayfs: failed to create directory \S+ \(errno: \d+\); mounting read-only"
        r"|\b(?:cannot access|reading directory|cannot open) .{1,200}: Cannot send after transport endpoint shutdown",
        source="Linux, fs/ext4, jbd2, btrfs, f2fs, erofs, overlayfs; e2fsck; EUCLEAN and ESHUTDOWN, as coreutils print them",
        sample="BTRFS info (device sdb1: state EA): forced readonly",
        near="BTRFS info (device sdb1): using free-space-tree",
    ),
    _storage(
        "pool-gave-up",
        r"\b[Pp]ool '\S+' has encountered an uncorrectable I/O failure|\berrors: Permanent errors have been detected"
        r"|\bstatus: One or more devices (?:are faulted|could not be (?:used|opened)|(?:has|have) (?:experienced|been removed))"
        r"|\bzed(?:\[\d+\])?: eid=\d+ class=(?:io_failure|data|io|probe_failure|deadman|vdev\.open_failed|vdev\.no_replicas)\b"
        r"|\bcannot import '\S+': (?:I/O error|one or more devices is|pool .{0,20}damaged)",
        source="OpenZFS, zpool status and import, its event daemon, module/zfs/spa_misc.c",
        sample="WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.",
        near="status: One or more devices is currently being resilvered.",
    ),
    _storage(
        "block-device-gave-up",
        r"\bdevice-mapper: (?:thin|snapshots): .{0,60}(?:\bout[- ]of[- ]data[- ]space|\bInvalidating snapshot)"
        r"|\bEntering recovery mode: max_retries=\d|\bsession recovery timed out after \d+ secs"
        r"|\biscsid: cannot make a connection to \S|\brbd\d+: .{0,60}\bresult -\d"
        r"|\bdisk\( ?UpToDate -> (?:Failed|Diskless) ?\)|\bmd: \S+ super_written gets error=-?[1-9]"
        r"|\bpaused \(I/O error\)",
        source="Linux, drivers/md, scsi_transport_iscsi, rbd, drbd; multipath-tools; open-iscsi; libvirt: a virtual disk",
        sample="session1: session recovery timed out after 120 secs",
        near="session1: session recovery is complete",
    ),
    _storage(
        "remote-disk-silent",
        r"\bnvme (?P<subject>nvme\d+): (?:Failed reconnect attempt [1-9]|Removing controller(?: \(-?\d+\))?\.\.\."
        r"|(?:rdma|tcp) connection establishment failed|failed to connect socket: -\d|queue \d+: timeout cid)",
        role="interrupted",
        source="Linux, drivers/nvme/host/fabrics.c, rdma.c, tcp.c: disks of other hosts, until they are reached again",
        sample="nvme nvme5: Failed reconnect attempt 3",
        near="nvme nvme5: Successfully reconnected (3 attempts)",
    ),
    _storage(
        "remote-disk-back",
        r"\bnvme (?P<subject>nvme\d+): Successfully reconnected\b",
        role="cleared",
        weight="supporting",
        source="Linux, drivers/nvme/host/rdma.c, tcp.c",
        sample="nvme nvme5: Successfully reconnected (3 attempts)",
        near="nvme nvme5: Failed reconnect attempt 3",
    ),
    _storage(
        "parallel-file-system-down",
        r"\bLNet: .{0,120}(?:\bTimed out (?:RDMA|tx) with \S+@|\bunexpected network error while)"
        r"|\bThe current file system manager failed|\bGPFS is down on this node|\bLocal panic of \S"
        r"|\[[EX]\] Unmounting file system \S|\bDaemon failed to start; quorum lost|\bLost membership in cluster\b"
        r"|\bIO status: STOPPED\b|\bwekafs\w*: .{0,60}(?:\btimed out|\bLost connection|\bIO is blocked|\bhung)"
        r"|\bUnable to connect to, is the node offline\?|\bstorage target is offline\b"
        r"|\b(?:ERR|ERROR|[Ff]ailed)\b.{0,200}\bDER_(?:TIMEDOUT|UNREACH|NOSPACE|IO|EXCLUDED|DATA_LOSS|NO_SERVICE|HG)\(-\d"
        r"|\bhas not responded in the last \d+ seconds, disconnecting|\blibceph: (?:mon|osd|mds)\d+ .{0,60}\bsocket error on",
        source="Lustre, LNet; IBM Storage Scale, mmfs.log; WEKA; BeeGFS, MessagingTk; DAOS; GlusterFS; Linux, net/ceph",
        sample="beegfs: Unable to connect to, is the node offline? node: beegfs-storage st3 [ID: 3]; Message type: 3015",
        near="beegfs: Connected: beegfs-storage st3 [ID: 3] (protocol: RDMA)",
    ),
    _storage(
        "object-store-down",
        r"\bcurl\.cpp:\w+\(\d+\): ### giving up|\bmountpoint_s3\S*: \w+ failed with errno 5\b"
        r"|\balluxio\.\S{1,80}Exception: Failed to connect to (?:master|worker|remote)"
        r"|\breached its minimum free drive threshold|\bXMinio(?:StorageFull|ServerNotInitialized|BackendDown)\b"
        r"|\bcmd\.(?:StorageFull|InsufficientReadQuorum|InsufficientWriteQuorum)\b|\bdrive is faulty, please investigate"
        r"|\bnamenode\.SafeModeException\b|\bCVMFS\b.{0,40}\bfile catalog failure|\bFailed to initialize root file catalog \(\d",
        source="s3fs-fuse, curl.cpp; Mountpoint for Amazon S3; Alluxio; MinIO, cmd/object-api-errors.go; HDFS; CernVM-FS",
        sample="Storage backend has reached its minimum free drive threshold. Please delete a few objects to proceed.",
        near="The minimum free drive threshold is 10 %.",
    ),
    _storage(
        "errno-of-storage-in-other-words",
        r"\bE(?:ROFS: read-only file system|IO: i/o error|STALE: stale file handle|DQUOT: disk quota"
        r"|NOSPC: no space left on device)"
        r"|\bAudit daemon has no space left|"
        r"(?:^|[\s:])/(?:scratch|local|data|mnt|tmp|home|var|work|lustre|gpfs|nvme|raid)\S* is (?:at )?(?:99|100)% full\b"
        r"|\b(?:inode|disk) usage (?:is )?(?:at )?100(?:\.0+)?%(?: on /|[,;.]?\s*$)",
        source="libuv, uv_strerror, as Node.js prints it; auditd; monitors of disks",
        sample="Error: EROFS: read-only file system, open '/scratch/x'",
        near="/scratch is 82% full",
    ),
)
