"""Messages about the memory, the core and the hardware of the host that their folder does not judge, with the reason."""

from tools.catalogues.linux.override import ANY_LEVEL, SET_UP, Override

_MEMORY_LEFT = r"out of memory|no memory|not enough memory|unable to allocate|allocation fail|failed to allocate"

_MEMORY: tuple[Override, ...] = (
    Override(
        ("mm/oom_kill.c", "mm/memcontrol.c"),
        r"^oom-kill:constraint|^Tasks state|^oom_reaper: reaped|memory: usage .*failcnt|Memory cgroup stats",
        "host_oom",
        "part of the report of a kill, which the kernel writes at level info",
        levels=ANY_LEVEL,
    ),
    Override(("mm/oom_kill.c",), r"COMPACTION|VM_FAULT_OOM leaked", "", "no memory ran out"),
    Override(
        ("mm/",),
        r"BUG: Bad (?:page|rss)",
        "host_hardware",
        "page tables or counters are corrupt: memory of the host, or the kernel",
        lasting=True,
    ),
    Override(
        (
            "mm/slub.c",
            "mm/slab",
            "mm/vmalloc.c",
            "mm/page_alloc.c",
            "mm/percpu.c",
            "mm/huge",
            "mm/memcontrol",
        ),
        _MEMORY_LEFT,
        "host_oom",
        "the kernel itself gets no memory",
    ),
    Override(("mm/page_io.c",), r"^swapon|^swapfile", "", "swap is set up"),
    Override(
        ("mm/swapfile.c", "mm/memory_hotplug.c", "mm/hugetlb.c"), "", "", "swap or memory is set up"
    ),
    Override(
        (
            "mm/slub.c",
            "mm/slab",
            "mm/vmalloc.c",
            "mm/page_alloc.c",
            "mm/percpu.c",
            "mm/util.c",
            "mm/memcontrol",
        ),
        r"^(?!.*(?:oom|out of memory|allocation failure|Killed))",
        "",
        "no memory ran out: a check of arguments or of the allocator's own state",
    ),
)
_CORE: tuple[Override, ...] = (
    Override(
        ("arch/x86/mm/fault.c",), "segfault at", "", "a program died; its own output says of what"
    ),
    Override(
        ("arch/x86/mm/fault.c",),
        "MCE: Killing",
        "host_hardware",
        "a process touched memory that the hardware reports as corrupt",
        lasting=True,
    ),
    Override(
        ("arch/x86/kernel/traps.c",), "attempts to use CLI|Split lock", "", "a program of a user"
    ),
    Override(
        ("kernel/panic.c",),
        r"^WARNING: CPU|^Disabling lock|Stop-A|boot prom",
        "",
        "the kernel goes on",
    ),
    Override(("kernel/watchdog.c",), "Detect HardIRQ|Utilization every", "", "detail of a report"),
    Override(
        ("kernel/reboot.c",),
        r"^HARDWARE PROTECTION|^Hardware protection",
        "host_hardware",
        "the kernel shuts the node down since a sensor asks for it",
    ),
    Override(
        ("kernel/reboot.c",),
        r"^(?:Restarting system|Power down|System halted)",
        "node_failure",
        "the node leaves",
    ),
    Override(
        ("kernel/exit.c",),
        r"Attempted to kill|killing interrupt|recursive fault|^Oops",
        "node_failure",
        "the kernel cannot go on",
    ),
    Override(
        ("kernel/workqueue.c",), "workqueue lockup", "node_failure", "a CPU of the kernel hangs"
    ),
    Override(
        ("kernel/smp.c", "kernel/rcu"),
        r"^(?!.*(?:stall|starved|CSD lock|csd|Offline CPU|last ran))",
        "",
        "no report of a CPU that hangs",
    ),
    Override(("kernel/rcu",), "stall ended|suppressed|notifier", "", "no stall by itself"),
    Override(
        ("kernel/cpu.c",),
        "failed to report (?:alive|dead)",
        "host_hardware",
        "a CPU does not answer",
    ),
)
_HARDWARE: tuple[Override, ...] = (
    Override(
        ("arch/x86/kernel/cpu/mce",),
        r"Using only|MSR access|^Rebuild|Erratum|Fake|mcelog --ascii|Firmware Bug",
        "",
        "says nothing of an error",
    ),
    Override(
        ("arch/x86/kernel/cpu/mce",),
        r"Machine check(?: events logged|: )|Machine Check(?:%s|\)| Exception)|Uncorrected|not recovered|poison",
        "host_hardware",
        "the CPU reports an error of itself or of memory",
        lasting=True,
    ),
    Override(
        ("drivers/pci/hotplug/pciehp",),
        r"Card not present|Link Down$|No device found|no response from device",
        "device_vanished",
        "a card left its slot; pciehp writes it at level info",
        levels=ANY_LEVEL,
    ),
    Override(
        ("drivers/pci",),
        r"device inaccessible|config space inaccessible|device is gone|surprise",
        "device_vanished",
        "the device answers no reads",
        levels=ANY_LEVEL,
    ),
    Override(
        ("drivers/pci/hotplug/pciehp",),
        "Power fault",
        "host_hardware",
        "the slot lost power",
        lasting=True,
    ),
    Override(
        ("drivers/pci/pcie/dpc.c",),
        "containment event",
        "host_hardware",
        "the port cut off a device after an uncorrectable error",
        levels=ANY_LEVEL,
        lasting=True,
    ),
    Override(
        ("drivers/pci/pcie/err.c",),
        r"recovery failed|can't recover",
        "host_hardware",
        "the device did not come back; written at level info",
        levels=ANY_LEVEL,
        lasting=True,
    ),
    Override(
        ("drivers/pci/pcie/aer.c",),
        "severity=%s",
        "",
        "the severity is in the text: see the rows for each",
    ),
    Override(
        ("drivers/pci/pcie/aer.c",),
        "TLP Header|aer_|error status/mask|Error of this Agent|buffer overflow in recovery",
        "host_hardware",
        "detail of a report of an error on PCIe",
        levels=("error",),
    ),
    Override(
        ("drivers/pci",),
        "not ready .*after|timed out waiting for",
        "host_hardware",
        "the device hangs",
    ),
    Override(
        ("drivers/pci",),
        "",
        "",
        "resources and settings of the bus, of which most machines have some",
    ),
    Override(
        ("drivers/iommu",),
        r"handling fault status|fault addr|fault index|Event logged|Completion-Wait|CMD_SYNC timeout"
        r"|Invalidation \w+(?: |-)?\w* ?Error|Command buffer timeout|event 0x",
        "host_hardware",
        "a device accessed memory that is not its own, or the IOMMU does not answer",
    ),
    Override(("drivers/iommu",), "", "", "set-up of the IOMMU"),
    Override(
        ("drivers/thermal", "drivers/acpi", "arch/x86"),
        r"critical temperature|above threshold|Critical trip|overheat",
        "thermal_power",
        "the CPU or the board is too hot",
    ),
    Override(
        ("drivers/thermal", "drivers/cpufreq", "drivers/acpi/thermal"),
        "",
        "",
        "set-up, or a governor",
    ),
    Override(
        ("drivers/edac/edac_mc.c",),
        r"%d UE ",
        "host_hardware",
        "memory that cannot be corrected",
        lasting=True,
    ),
    Override(
        ("drivers/edac",),
        r"^\[Hardware Error\]|\bUE\b|[Uu]ncorrect|fatal",
        "host_hardware",
        "an error that the memory controller reports",
    ),
    Override(
        ("drivers/acpi/apei",),
        r"^(?:\[Firmware|ERST|BERT|HEST|EINJ)|table",
        "",
        "tables of the firmware",
    ),
    Override(
        (
            "drivers/edac",
            "drivers/acpi",
            "drivers/char/ipmi",
            "arch/x86/kernel/cpu",
            "drivers/hwmon",
            "drivers/ras",
        ),
        SET_UP,
        "",
        "set-up of the driver",
    ),
)
HOST_OVERRIDES: tuple[Override, ...] = (*_MEMORY, *_CORE, *_HARDWARE)
