"""Words of machines: memory daemons, allocators, controllers, storage, virtual machines, and what healthy ones say."""

import pytest

from tests.rootcause.hosts.test_machine_logs import fault_of


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("host_oom", "systemd[1]: run-r12.scope: systemd-oomd killed 112 process(es) in this unit."),
        ("host_oom", "systemd[1]: user@1000.service: The kernel OOM killer killed some processes in this unit."),
        ("host_oom", "oomd: 10.11 11.00 kill memory above 90%: killed system.slice/train.service"),
        ("host_oom", 'containerd: level=info msg="TaskOOM event &TaskOOM{ContainerID:abc}"'),
        (
            "host_oom",
            "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
            "Container killed by YARN for exceeding memory limits. 9.0 GB of 9 GB physical memory used.",
        ),
        (
            "host_oom",
            "Container [pid=1,containerID=c] is running beyond physical memory limits. Current usage: "
            "64.1 GB of 64 GB physical memory used",
        ),
        ("host_oom", "c++: fatal error: Killed signal terminated program cc1plus"),
        ("host_oom", "R: cannot allocate vector of size 37.3 Gb"),
        (
            "host_oom",
            "distributed.nanny - WARNING - Worker tcp://10.0.0.1:40331 (pid=3112) exceeded 95% memory "
            "budget. Restarting...",
        ),
        ("host_oom", "sge_execd: job 3311 exceeded hard limit h_vmem (400G) - initiate terminate method"),
        (
            "host_oom",
            "HTCondor: Job has gone over cgroup memory limit of 65536 megabytes. Last measured usage: "
            "64000 megabytes.",
        ),
        ("host_oom", "kernel: Tasks in /slurm/uid_1000/job_44/step_0 killed as a result of limit of /slurm/uid_1000/job_44"),
        ("host_hardware", "Kernel panic - not syncing: Timeout: Not all CPUs entered broadcast exception handler"),
        ("host_hardware", 'EDAC MC3: UE row 0, channel-a= 0 channel-b= 1 labels "-": : amd64_edac'),
        ("host_hardware", "EDAC amd64: MC0: uncorrected DRAM ECC error"),
        ("host_hardware", "Memory failure: 0x3c1: unhandlable page."),
        ("host_hardware", "Memory failure: 0x3c1: recovery action for reserved kernel page: Ignored"),
        (
            "host_hardware",
            "nvme 0000:c5:00.0:    [14] CmpltTO                (First)\nnvme 0000:c5:00.0: PCIe Bus "
            "Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
        ),
        (
            "host_hardware",
            "EEH: Frozen PHB#4-PE#fd detected\nEEH: This PCI device has failed 5 times in the last hour "
            "and has been permanently disabled.",
        ),
        ("host_hardware", "smartd[1]: Device: /dev/sdc [SAT], Failed SMART usage Attribute: 5 Reallocated_Sector_Ct."),
        ("host_hardware", "- NVM subsystem reliability has been degraded"),
        ("host_hardware", "- media has been placed in read only mode"),
        ("host_hardware", "mdadm[822]: Fail event detected on md device /dev/md0, component device /dev/nvme2n1"),
        ("host_hardware", "megaraid_sas 0000:18:00.0: 1221 (1s/0x0001/CRIT) - VD 00/0 is now DEGRADED"),
        ("host_hardware", "ixgbe 0000:3b:00.0 eth2: Received ECC Err, initiating reset"),
        ("host_hardware", "XCC: An uncorrectable bus error has occurred on bus PCIe Slot 3"),
        ("host_hardware", "XCC: Uncorrectable error detected for DIMM 12 on Subsystem System Board"),
        ("host_hardware", "XCC: Fault in slot PCI 4 on system"),
        ("host_hardware", "Cisco UCS: F0185 DIMM 2/B1 on server 3/1 operability: inoperable"),
        (
            "host_hardware",
            "iLO: Server Critical Fault (Service Information: Runtime Fault, System Board, Auxiliary "
            "Main (17h))",
        ),
        ("device_vanished", "pciehp 0000:16:01.0:pcie204: Slot(3): Surprise Removal"),
        ("device_vanished", "nvme nvme7: Removing after reset failure status: -19"),
        (
            "device_vanished",
            "mlx5_core 0000:5e:00.0: mlx5_pci_err_detected Device state = 2 health sensors: 1 "
            "pci_status: 1. Enter, pci channel state = 3\nmlx5_core 0000:5e:00.0: PCI channel offline, permanent failure",
        ),
        (
            "device_vanished",
            "mpt3sas_cm0: log_info(0x31110d00)\nmpt3sas_cm0: removing handle(0x0009), "
            "sas_addr(0x5000)\nsd 1:0:0:0: device_block\nsd 1:0:0:0: [sdb] Stopping disk failed: Result: hostbyte=DID_NO_CONNECT",
        ),
        ("device_vanished", "sd 1:0:0:0: Device offlined - not ready after error recovery"),
        ("node_failure", "invalid opcode: 0000 [#1] SMP PTI"),
        ("node_failure", "list_del corruption. prev->next should be ffff, but was dead"),
        ("node_failure", "Oops: Kernel access of bad area, sig: 11 [#1]"),
        ("node_failure", "kdump[611]: saving vmcore-dmesg.txt to /var/crash/"),
        ("node_failure", "SEL: 44 | 05/02/2024 | 03:11:00 | Watchdog2 #0x71 | Power cycle | Asserted"),
        ("node_failure", "SEL: 46 | 05/02/2024 | 03:11:00 | System ACPI Power State | Unexpected power off | Asserted"),
        ("node_failure", "iLO: ASR Detected by System ROM"),
        ("node_failure", "ASR0001: The watchdog timer reset the system."),
        ("node_failure", "consul: serf: EventMemberFailed: gpu7 10.0.0.7"),
        ("node_failure", "qemu-system-x86_64: KVM internal error. Suberror: 1\nextra data[0]: 0x80000b0e"),
        ("node_failure", "kvm: entry failed, hardware error 0x80000021"),
        ("node_failure", "qemu: hardware error: vfio: DMA mapping failed, unable to continue"),
        ("node_failure", "esx: vmkernel: Lost heartbeat; @BlueScreen: #PF Exception 14 in world 1"),
        ("host_hardware", "SEL: 6 | 05/02/2024 | 03:11:00 | Power Unit | Redundancy Lost | Asserted"),
        (
            "thermal_power",
            "Exhaust Temp     | 82.000     | degrees C  | nr    | na        | na        | na        | "
            "70.000    | 75.000    | 80.000",
        ),
        (
            "thermal_power",
            "FAN4             | 0.000      | RPM        | nr    | 300.000   | 500.000   | 700.000   | "
            "25300.000 | 25400.000 | 25500.000",
        ),
        (
            "thermal_power",
            "XCC: Ambient temperature has exceeded the critical threshold: Sensor Ambient Temp has "
            "transitioned to critical from a less severe state.",
        ),
        ("thermal_power", 'Redfish: "MessageId": "SensorEvent.1.0.ReadingAboveUpperCriticalThreshold"'),
        ("thermal_power", "apcupsd[812]: Power failure.\napcupsd[812]: Battery charge below low limit."),
        ("filesystem", "JBD2: Detected IO errors while flushing file data on sda1-8"),
        ("filesystem", "BTRFS info (device sdb1): forced readonly"),
        ("filesystem", "ZFS: pool 'tank' has encountered an uncorrectable I/O failure"),
        ("filesystem", "errors: Permanent errors have been detected in the following files:"),
        ("filesystem", "cannot import 'tank': I/O error\n\tDestroy and re-create the pool from a backup source."),
        ("filesystem", "mount: /scratch: can't read superblock on /dev/sdb1."),
        (
            "filesystem",
            "mount: /data: wrong fs type, bad option, bad superblock on /dev/nvme1n1, missing codepage "
            "or helper program, or other error.",
        ),
        ("filesystem", "mount error(112): Host is down"),
        ("filesystem", "mount error: no mds server is up or the cluster is laggy"),
        ("filesystem", "ceph-fuse[221]: ceph mount failed with (110) Connection timed out"),
        ("filesystem", "systemd[1]: Dependency failed for Local File Systems."),
        ("filesystem", "systemd[1]: Failed to mount data.mount - /data."),
        ("filesystem", "systemd-fsck[312]: /dev/sda1: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY."),
        ("filesystem", "fsck.ext4: Bad magic number in super-block while trying to open /dev/sdb1"),
        ("filesystem", "device-mapper: thin: 253:4: out of data space; queueing IO"),
        ("filesystem", "device-mapper: snapshots: Invalidating snapshot: Unable to allocate exception."),
        ("filesystem", "multipathd[1]: mpathb: Entering recovery mode: max_retries=12"),
        ("filesystem", "session1: session recovery timed out after 120 secs"),
        (
            "filesystem",
            "nvme nvme5: starting error recovery\nnvme nvme5: Reconnecting in 10 seconds...\nnvme nvme5: "
            "Failed reconnect attempt 1",
        ),
        ("filesystem", "rbd: rbd0: write 4096 at 0 result -110"),
        ("filesystem", "md: md0: super_written gets error=-5"),
        ("filesystem", "LNet: 1131:0:(o2iblnd_cb.c:3370:kiblnd_check_conns()) Timed out RDMA with 10.0.0.1@o2ib (107)"),
        ("filesystem", "mmlsmount: GPFS is down on this node. mmgetstate: state unknown"),
        ("filesystem", "weka status\nIO status: STOPPED 12 minutes ago (4 failures)"),
        ("filesystem", "wekafs: Lost connection to wekanode; IO is blocked"),
        (
            "filesystem",
            "beegfs: python(3312) [Messaging (RPC)] >> Unable to connect to, is the node offline? "
            "node: beegfs-storage st3 [ID: 3]; Message type: WriteLocalFile (3015)",
        ),
        ("filesystem", "[FhgfsOpsHelper_writefileEx] Node storage target is offline. targetID: 301"),
        (
            "filesystem",
            "mountpoint_s3: WARN read{req=12 ino=3}: mountpoint_s3::fuse: read failed with errno 5: "
            "failed to get object: Client error: ServiceError",
        ),
        (
            "filesystem",
            "org.apache.hadoop.ipc.RemoteException: "
            "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create file. Name node is in safe mode.",
        ),
        (
            "filesystem",
            "API: SYSTEM()\nError: Drive http://node3:9000/data/d1 returned an unexpected error: drive "
            "is faulty, please investigate (*fmt.wrapError)",
        ),
        ("filesystem", "XMinioStorageFull: Storage backend has reached its minimum free drive threshold."),
        ("filesystem", "Error: Read failed. Insufficient number of drives online (cmd.InsufficientReadQuorum)"),
        ("filesystem", "ls: reading directory '/data': Structure needs cleaning"),
        ("filesystem", "EROFS: read-only file system, open '/x'"),
        ("filesystem", "EIO: i/o error, read"),
        ("filesystem", "cvmfs: Failed to initialize root file catalog (16 - file catalog failure)"),
        ("filesystem", "WARNING: /scratch is 100% full, writes are failing"),
    ],
)  # fmt: skip
def test_what_machines_say_of_their_faults(fault: str, line: str) -> None:
    """One line each is enough."""
    assert fault_of(f"{line}\n") == fault


@pytest.mark.parametrize(
    "line",
    [
        "systemd[1]: Failed to mount sys-kernel-debug.mount - Kernel Debug File System.",
        "kernel: ata3.00: supports DRM functions and may not be fully accessible",
        "kernel: ata3.00: disabling queued TRIM support",
        "kernel: sd 0:0:0:0: [sda] Stopping disk",
        "Container limits: memory 64Gi; oom_kill_disable 0 under_oom 0 oom_kill 0",
        "mdadm: monitoring /dev/md0 for Fail event, DegradedArray event, and SparesMissing event",
        "kdump: To save vmcore to /var/crash set path /var/crash",
        "kdumpctl[1]: kdump: Rebuilding /boot/initramfs-6.5kdump.img",
        "memory leak detection is enabled; no leak detected",
        "ZFS: Loaded module v2.2.2, ZFS pool version 5000, ZFS filesystem version 5",
        "status: Some supported and requested features are not enabled on the pool.",
        "status: One or more devices is currently being resilvered.  The pool will continue to "
        "function, possibly in a degraded state.",
        'nvme nvme3: Removing ctrl: NQN "nqn.2014-08.org"',
        'nvme nvme3: Removing ctrl: NQN "nqn.2014-08.org.nvmexpress.discovery"',
        "nvme nvme3: resetting controller",
        "kernel: XFS (nvme0n1): Unmounting Filesystem",
        "mmfsd: [N] Unmounting file system fs1 on request",
        "2024-05-10_10:10:12.001+0000: [I] Command: mmumount fs01",
        "CUDA: OutOfMemoryError() handler is installed",
        "The watchdog timer expired callback is registered",
        "/dev/loop4 is 100% full",
        "/snap/core is 100% full",
        "/dev/loop3        64M   64M     0 100% /snap/core20/1974",
        "systemd[1]: Caught <HUP>, reloading.",
        "rpc: DER_TIMEDOUT(-1011) is retried",
        "daos INFO: error injection for DER_IO(-2001) is off",
        "R: rm(list=ls()) frees memory for vector of size 1 Gb",
        "make: gcc: warning: some signal",
        "qemu: hardware acceleration: kvm",
        "ice 0000:3b:00.0: The DDP package was successfully loaded: ICE OS Default Package version 1.3.30.0",
        "igb 0000:04:00.0: removed PHC on eno1",
        "mlx5_core 0000:5e:00.0: E-Switch: Disable: mode(LEGACY), nvfs(0), necvfs(0), active vports(0)",
        "[Hardware Error]: event severity: corrected\npcieport 0000:5d:00.0:    [ 0] RxErr                  (First)",
        "ASR is disabled; Watchdog timer expired action: none",
        "Power Supply Redundancy: Fully Redundant",
        "rbd0: capacity 1099511627776 features 0x3d",
        "drbd r0/0 drbd0: disk( Attaching -> UpToDate )",
        "drbd r0/0 drbd0: disk( UpToDate -> Detaching ) -> Diskless",
        "mount: (hint) your fstab has been modified, but systemd still uses the old version; use "
        "'systemctl daemon-reload' to reload.",
        "systemd[1]: scratch.mount: Mount process exited, code=exited, status=0/SUCCESS",
        "oomd: monitoring system.slice/train.service",
        "SLURM: JobAcctGatherParams=OverMemoryKill; job not killed",
        " - temperature: 41 C, threshold 85 C",
        "leak test: liquid leak detected = 0",
        "step 3 loss 2.1 gpu_temp | 61 | degrees C | ok",
        '            "OOMKilled": false,',
        "podman: container died oomKilled=false exitCode=0",
        "6 | 01/01/2024 | 00:00:01 | Power Unit #0x01 | Power off/down | Asserted",
        'Container exited with "OOMKilled":false',
    ],
)  # fmt: skip
def test_what_healthy_machines_say_in_the_same_words(line: str) -> None:
    """Settings, counters of zero, and what is over."""
    assert fault_of(f"{line}\n") == ""


def test_disks_of_other_hosts_that_are_reached_again_are_over() -> None:
    """Until then all that reads from them waits."""
    lost = "nvme nvme5: Reconnecting in 10 seconds...\nnvme nvme5: Failed reconnect attempt 1\n"
    back = "nvme nvme5: Successfully reconnected (2 attempts)\n"
    steps = "step 3 loss 2.25\n{}step 4 loss 2.125\n"
    assert fault_of(lost) == "filesystem"
    assert fault_of(steps.format(lost + back)) == ""
