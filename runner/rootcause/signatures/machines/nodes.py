"""Whole machines that stopped, virtual ones too, and what is too hot or has no power."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_stopped = partial(Signature, fault="node_failure", layer="machine", scope="node", is_lasting=False)
_heat = partial(Signature, fault="thermal_power", layer="device", scope="node", is_lasting=True)

NODES = (
    _stopped(
        "kernel-damaged",
        r"\binvalid opcode: 0000 \[#[1-9]|\bOops: [^\[\n]{1,60}\[#[1-9]\d*\]|\blist_(?:del|add) corruption\b"
        r"|\bDetected non-responsive CSD lock\b",
        source="Linux, arch/*/kernel/traps.c, lib/list_debug.c, kernel/smp.c",
        sample="Oops: Kernel access of bad area, sig: 11 [#1]",
        near="Oops: 3 tasks were retried [#0]",
    ),
    _stopped(
        "kernel-was-dumped",
        r"\bkdump(?:\[\d+\])?:? (?:\S+: )?saving (?:vmcore\S*|to) \S|\bsaving vmcore complete\b"
        r"|^(?:<\d>)?(?:Panic|Oops|Emergency)#\d+ Part\d+",
        source="kexec-tools, kdump: it saves the memory of a kernel that panicked; Linux, fs/pstore",
        sample="kdump[611]: saving vmcore-dmesg.txt to /var/crash/127.0.0.1-2024-05-01/",
        near="kdump[611]: kdump kernel is ready, vmcore would be saved to /var/crash",
    ),
    _stopped(
        "reset-by-watchdog",
        r"\bWatchdog ?2?\b[^\n]{0,60}\| *(?i:hard reset|power cycle|power down)\b.{0,12}\|? ?Assert"
        r"|\bASR\d{4}\b.{0,8}The watchdog timer (?:expired|reset|powered|power cycled)|\bASR Detected by System ROM"
        r"|\bUnexpected power off\b.{0,8}\| Asserted",
        source="IPMI 2.0, sensors of the kinds watchdog 2 and ACPI power state; Dell's and HPE's recovery of a server that hangs",
        sample="SEL: 44 | 05/02/2024 | 03:11:00 | Watchdog2 #0x71 | Power cycle | Asserted",
        near="SEL: 44 | 05/02/2024 | 03:11:00 | Watchdog2 #0x71 | Timer interrupt | Deasserted",
    ),
    _stopped(
        "first-process-died",
        r"\bsystemd\[1\]: (?:Caught <(?:SEGV|ILL|FPE|BUS|QUIT|ABRT)>|Freezing execution)",
        source="systemd, src/core/crash-handler.c: nothing is started or ended on that machine any more",
        sample="systemd[1]: Caught <SEGV>, dumped core as pid 9112.",
        near="systemd[1]: Caught up with the clock",
    ),
    _stopped(
        "virtual-machine-died",
        r"\bKVM internal error\. Suberror: \d|(?i:\bkvm: entry failed, hardware error 0x)|\bkvm run failed [A-Z]"
        r"|\bqemu: hardware error: |\bqemu unexpectedly closed the monitor|\bDomain \d+ \(vcpu#\d+\) crashed\b"
        r"|\bvmkernel: .{0,60}(?:\bPSOD\b|@BlueScreen)|\b[Dd]omain \S+ (?:id=\d+ )?(?:terminated with )?state: crashed\b",
        source="QEMU and KVM, accel/kvm; libvirt, qemu_monitor.c; Xen, domain.c; ESXi",
        sample="2024-05-10 10:00:00.1+0000: 2212: error : internal error: qemu unexpectedly closed the monitor",
        near="2024-05-10 10:00:00.1+0000: 2212: info : qemu closed the monitor after the migration",
    ),
    _stopped(
        "member-silent",
        r"\bEventMemberFailed: (?P<node>\S+)|\bReason=Not responding \[",
        source="HashiCorp Serf, as Consul and Nomad print it; Slurm, scontrol show node",
        sample="consul: serf: EventMemberFailed: gpu7 10.0.0.7",
        near="consul: serf: EventMemberJoin: gpu7 10.0.0.7",
    ),
    _heat(
        "sensor-of-heat-critical",
        r"\b\w{0,12}(?:Temp|TEMP|FAN|Fan)\w{0,12}[^|\n]{0,20}\|[^|\n]{1,20}\| *(?:degrees C|RPM) *\| *(?:cr|nr|ucr|unr|lcr|lnr)\b"
        r"|\bReading(?:Above|Below)(?:Upper|Lower)(?:Critical|Fatal)Threshold\b"
        r"|\bSensorThresholdCritical(?:HighGoingHigh|LowGoingLow)\b"
        r"|\b(?:Temp|temperature|Fan)\b.{0,60}\btransitioned to (?:critical|non-recoverable) from a less severe state",
        source="ipmitool, sensor; Redfish, registries of messages on sensors and OpenBMC's; Lenovo's controller",
        sample="Inlet Temp       | 47.000     | degrees C  | ucr   | na | 5.000 | 10.000 | 38.000",
        near="Inlet Temp       | 27.000     | degrees C  | ok    | na | 5.000 | 10.000 | 38.000",
    ),
    _heat(
        "disk-hot",
        r"\bCritical Warning \(0x02\)|\bCritical Warning: +0x02\b|^ *- temperature is above or below threshold",
        is_lasting=False,
        source="smartmontools, smartd and smartctl: bit 1 of NVMe's critical warning",
        sample="smartd[1]: Device: /dev/nvme1, Critical Warning (0x02): Temperature",
        near="Critical Warning:                   0x00",
    ),
    _heat(
        "power-of-site-lost",
        r"\bBattery charge below low limit|\bUPS \S+ battery is low\b|\bExecuting automatic power-fail shutdown"
        r"|\bReached (?:remaining time percentage|run time) limit on batteries"
        r"|(?:^|[:|\]] *)(?:[Cc]oolant|[Ll]iquid|[Ww]ater) leak(?:age)? (?:was |has been )?detected"
        r"(?:\s*$|[.!,;]| (?:on|at|in|by|under) )",
        is_lasting=False,
        source="apcupsd; Network UPS Tools, upsmon; controllers of liquid cooling",
        sample="upsmon[9]: Executing automatic power-fail shutdown",
        near="upsmon[9]: UPS ups0@localhost on line power",
    ),
    _stopped(
        "member-of-cluster-lost",
        r"\bcorosync\b.{0,40}\[TOTEM \] (?:A processor failed|Failed to receive the leave message)"
        r"|\bNode \S{1,120} state is now lost\b|\bOur peer on the DC \(\S{1,120}\) is dead\b|^ *\* OFFLINE: \[ \w"
        r"|^ *\* Node \S{1,120}: (?:UNCLEAN|OFFLINE)\b",
        source="Corosync and Pacemaker: a member of the cluster does not answer any more; crm_mon",
        sample="corosync[228119]:  [TOTEM ] A processor failed, forming new configuration.",
        near="corosync[228119]:  [TOTEM ] A new membership (10.2.2.1:12) was formed. Members joined: 2",
    ),
)
