"""Parts of the kernel that are read: the catalogue of each, the class of its errors, and the words of its lines.

Drivers of GPUs have catalogues of their own. Of network cards and disk controllers those are read that servers have.
"""

from dataclasses import KW_ONLY, dataclass

from runner.facts.matches import Scope


@dataclass(frozen=True, slots=True)
class Area:
    """A folder or file, and all below it. `words`: one of them is in each line that names a device."""

    path: str
    fault: str = ""
    _: KW_ONLY
    scope: Scope = "node"
    words: tuple[str, ...] = ()


def _areas(paths: str, fault: str = "", scope: Scope = "node") -> tuple[Area, ...]:
    return tuple(Area(path, fault, scope=scope) for path in paths.split())


def _nic(path: str, *words: str) -> Area:
    return Area(path, "nccl_network", words=words)


def _disk(path: str, *words: str) -> Area:
    return Area(path, "filesystem", scope="storage", words=words)


_MEMORY = (
    *_areas(
        "mm/oom_kill.c mm/page_alloc.c mm/memcontrol.c mm/memcontrol-v1.c mm/vmalloc.c", "host_oom"
    ),
    *_areas(
        "mm/slub.c mm/slab_common.c mm/hugetlb.c mm/percpu.c mm/util.c mm/mempool.c", "host_oom"
    ),
    *_areas("mm/memory-failure.c mm/memory_hotplug.c", "host_hardware"),
    *_areas("mm/page_io.c mm/swapfile.c mm/filemap.c mm/readahead.c", "filesystem", "storage"),
    *_areas("mm/memory.c mm/rmap.c mm/mmap.c mm/vmscan.c mm/shmem.c mm/mempolicy.c mm/migrate.c"),
    *_areas("mm/debug.c mm/huge_memory.c mm/compaction.c mm/swap_slots.c mm/show_mem.c mm/hmm.c"),
)
_CORE = (
    *_areas("kernel/hung_task.c", "filesystem", "storage"),
    *_areas("kernel/watchdog.c kernel/watchdog_perf.c kernel/watchdog_buddy.c", "node_failure"),
    *_areas("kernel/rcu kernel/panic.c kernel/smp.c kernel/stop_machine.c", "node_failure"),
    *_areas(
        "arch/x86/kernel/dumpstack.c arch/x86/kernel/traps.c arch/x86/mm/fault.c", "node_failure"
    ),
    *_areas("arch/x86/kernel/nmi.c arch/x86/kernel/doublefault_32.c", "host_hardware"),
    *_areas("arch/arm64/kernel/traps.c arch/arm64/mm/fault.c lib/bug.c", "node_failure"),
    *_areas("kernel/sched kernel/workqueue.c kernel/softirq.c kernel/exit.c kernel/fork.c"),
    *_areas(
        "kernel/signal.c kernel/cpu.c kernel/irq kernel/kthread.c kernel/reboot.c kernel/power"
    ),
    *_areas("kernel/time kernel/module kernel/cgroup kernel/printk kernel/dma/swiotlb.c"),
    *_areas("arch/x86/kernel/smp.c arch/x86/kernel/smpboot.c arch/x86/kernel/tsc.c"),
    *_areas("arch/x86/kernel/tsc_sync.c arch/x86/kernel/process.c arch/x86/kernel/hpet.c"),
    *_areas("arch/x86/kernel/apic arch/x86/kernel/signal.c arch/x86/kernel/umip.c"),
    *_areas(
        "lib/dump_stack.c lib/nmi_backtrace.c lib/kobject.c lib/iov_iter.c drivers/base/power drivers/base/dd.c drivers/base/core.c"
    ),
)
_HARDWARE = (
    *_areas("arch/x86/kernel/cpu/mce drivers/ras drivers/acpi/apei", "host_hardware"),
    *_areas("drivers/firmware/efi/cper.c drivers/firmware/efi/cper-x86.c", "host_hardware"),
    *_areas("drivers/firmware/efi/cper-arm.c drivers/firmware/dmi_scan.c", "host_hardware"),
    *_areas("drivers/edac/amd64_edac.c drivers/edac/skx_base.c drivers/edac/skx_common.c"),
    *_areas("drivers/edac/i10nm_base.c drivers/edac/sb_edac.c drivers/edac/ghes_edac.c"),
    *_areas(
        "drivers/edac/edac_mc.c drivers/edac/mce_amd.c drivers/edac/edac_device.c", "host_hardware"
    ),
    *_areas("drivers/edac/edac_pci.c", "host_hardware"),
    *_areas("drivers/pci", "host_hardware"),
    *_areas("drivers/iommu/intel drivers/iommu/amd drivers/iommu/arm/arm-smmu-v3", "host_hardware"),
    *_areas("drivers/iommu/iommu.c drivers/iommu/dma-iommu.c drivers/iommu/iova.c"),
    *_areas(
        "drivers/thermal/thermal_core.c drivers/thermal/intel drivers/hwmon/pmbus", "thermal_power"
    ),
    *_areas(
        "drivers/cpufreq/cpufreq.c drivers/cpufreq/intel_pstate.c drivers/cpufreq/amd-pstate.c"
    ),
    *_areas("drivers/cpufreq/acpi-cpufreq.c drivers/cpufreq/cppc_cpufreq.c drivers/powercap"),
    *_areas("drivers/hwmon/coretemp.c drivers/hwmon/k10temp.c drivers/hwmon/acpi_power_meter.c"),
    *_areas("drivers/char/ipmi", "host_hardware"),
    *_areas("arch/x86/kernel/cpu/microcode"),
    *_areas("drivers/acpi/processor_thermal.c drivers/acpi/thermal.c", "thermal_power"),
    *_areas("drivers/acpi/processor_driver.c drivers/acpi/nfit drivers/acpi/osl.c"),
    *_areas("drivers/acpi/bus.c drivers/acpi/scan.c drivers/acpi/ec.c drivers/acpi/battery.c"),
    *_areas("arch/arm64/kernel/sdei.c drivers/firmware/arm_sdei.c drivers/cxl", "host_hardware"),
)
_RDMA = "drivers/infiniband"
_ETHERNET = "drivers/net/ethernet"
_NETWORK = (
    Area(f"{_RDMA}/core", "nccl_network"),
    _nic(f"{_RDMA}/hw/mlx5", "mlx5", "infiniband"),
    _nic(f"{_RDMA}/hw/mlx4", "mlx4", "infiniband"),
    _nic(f"{_RDMA}/hw/bnxt_re", "bnxt", "infiniband"),
    _nic(f"{_RDMA}/hw/irdma", "irdma", "ice ", "i40e", "infiniband"),
    _nic(f"{_RDMA}/hw/efa", "efa", "infiniband"),
    _nic(f"{_RDMA}/hw/hfi1", "hfi1"),
    _nic(f"{_RDMA}/hw/mana", "mana"),
    _nic(f"{_RDMA}/hw/erdma", "erdma"),
    _nic(f"{_RDMA}/sw/rxe", "rxe"),
    _nic(f"{_RDMA}/sw/siw", "siw"),
    _nic(f"{_RDMA}/sw/rdmavt", "rdmavt", "hfi1"),
    _nic(f"{_RDMA}/ulp/ipoib", "ib", "mlx"),
    Area(f"{_RDMA}/ulp/srp", "filesystem", scope="storage"),
    Area(f"{_RDMA}/ulp/iser", "filesystem", scope="storage"),
    Area(f"{_RDMA}/ulp/rtrs", "filesystem", scope="storage", words=("rtrs",)),
    _nic(f"{_ETHERNET}/mellanox/mlx5", "mlx5"),
    _nic(f"{_ETHERNET}/mellanox/mlx4", "mlx4"),
    _nic(f"{_ETHERNET}/mellanox/mlxfw", "mlx"),
    _nic(f"{_ETHERNET}/broadcom/bnxt", "bnxt_en"),
    _nic(f"{_ETHERNET}/broadcom/tg3.c", "tg3"),
    _nic(f"{_ETHERNET}/intel/ice", "ice "),
    _nic(f"{_ETHERNET}/intel/i40e", "i40e"),
    _nic(f"{_ETHERNET}/intel/iavf", "iavf"),
    _nic(f"{_ETHERNET}/intel/idpf", "idpf"),
    _nic(f"{_ETHERNET}/intel/ixgbe", "ixgbe"),
    _nic(f"{_ETHERNET}/intel/igb", "igb "),
    _nic(f"{_ETHERNET}/intel/igc", "igc "),
    _nic(f"{_ETHERNET}/intel/e1000e", "e1000e"),
    _nic(f"{_ETHERNET}/amazon/ena", "ena "),
    _nic(f"{_ETHERNET}/google/gve", "gve"),
    _nic(f"{_ETHERNET}/microsoft/mana", "mana"),
    _nic(f"{_ETHERNET}/pensando/ionic", "ionic"),
    _nic("drivers/net/hyperv", "hv_netvsc"),
    _nic("drivers/net/virtio_net.c", "virtio_net"),
    _nic("drivers/net/vmxnet3", "vmxnet3"),
    _nic("drivers/net/bonding", "bond"),
    _nic("drivers/net/team", "team"),
    *_areas("drivers/net/phy net/core net/sched/sch_generic.c net/rds net/smc", "nccl_network"),
    *_areas(
        "net/ipv4/tcp.c net/ipv4/tcp_input.c net/ipv4/tcp_timer.c net/ipv4/udp.c net/ipv4/route.c"
    ),
    *_areas("net/ipv4/arp.c net/socket.c net/unix net/netfilter/nf_conntrack_core.c"),
)
_STORAGE = (
    _disk("drivers/nvme/host", "nvme"),
    _disk("drivers/nvme/common", "nvme"),
    *_areas("block", "filesystem", "storage"),
    *_areas("drivers/md", "filesystem", "storage"),
    *_areas("drivers/ata", "filesystem", "storage"),
    *_areas(
        "drivers/scsi/scsi.c drivers/scsi/scsi_error.c drivers/scsi/scsi_lib.c drivers/scsi/scsi_scan.c"
        " drivers/scsi/scsi_logging.c drivers/scsi/scsi_ioctl.c drivers/scsi/scsi_pm.c"
        " drivers/scsi/scsi_sysfs.c drivers/scsi/scsi_transport_fc.c drivers/scsi/scsi_transport_sas.c"
        " drivers/scsi/scsi_transport_iscsi.c drivers/scsi/scsi_transport_srp.c drivers/scsi/sd.c"
        " drivers/scsi/ses.c drivers/scsi/sg.c drivers/scsi/hosts.c drivers/scsi/libiscsi.c"
        " drivers/scsi/libiscsi_tcp.c drivers/scsi/iscsi_tcp.c drivers/scsi/storvsc_drv.c"
        " drivers/scsi/virtio_scsi.c drivers/scsi/device_handler drivers/scsi/libsas",
        "filesystem",
        "storage",
    ),
    _disk("drivers/scsi/mpt3sas", "mpt3sas", "mpt2sas"),
    _disk("drivers/scsi/mpi3mr", "mpi3mr"),
    _disk("drivers/scsi/megaraid", "megaraid"),
    _disk("drivers/scsi/smartpqi", "smartpqi"),
    *_areas(
        "drivers/block/nbd.c drivers/block/rbd.c drivers/block/virtio_blk.c",
        "filesystem",
        "storage",
    ),
    *_areas("drivers/block/loop.c drivers/block/zram", "filesystem", "storage"),
)
_FILE_SYSTEMS = (
    _disk("fs/ext4", "EXT4-fs"),
    _disk("fs/jbd2", "JBD2"),
    _disk("fs/xfs", "XFS"),
    _disk("fs/btrfs", "BTRFS"),
    _disk("fs/smb/client", "CIFS"),
    _disk("fs/smb/common", "CIFS"),
    *_areas(
        "fs/nfs fs/nfs_common fs/lockd fs/fuse fs/ceph fs/overlayfs fs/9p", "filesystem", "storage"
    ),
    *_areas(
        "fs/iomap fs/netfs fs/cachefiles fs/quota fs/squashfs fs/erofs", "filesystem", "storage"
    ),
    *_areas(
        "fs/buffer.c fs/super.c fs/fs-writeback.c fs/direct-io.c fs/inode.c",
        "filesystem",
        "storage",
    ),
    *_areas(
        "fs/namespace.c fs/dcache.c fs/libfs.c fs/file_table.c fs/fhandle.c",
        "filesystem",
        "storage",
    ),
    *_areas("fs/file.c fs/exec.c fs/coredump.c fs/aio.c fs/locks.c fs/mpage.c fs/dax.c"),
    *_areas("net/sunrpc net/ceph net/9p", "filesystem", "storage"),
)

# The files that are written, with the parts in each.
AREAS: dict[str, tuple[Area, ...]] = {
    "linux_memory": _MEMORY,
    "linux_core": _CORE,
    "linux_hardware": _HARDWARE,
    "linux_network": _NETWORK,
    "linux_storage": _STORAGE,
    "linux_file_systems": _FILE_SYSTEMS,
}
# Left out below the parts: tests, benchmarks, debuggers, tools, and drivers that no server of this kind has.
LEFT_OUT = (
    "test", "torture", "trace.h", "/trace/", "selftest", "kunit", "dm-vdo", "md/bcache", "kgdb",
    "aer_inject", "einj", "mce/inject", "mce/p5", "mce/winchip", "rcuscale", "refscale",
    "energy_model", "module/kdb", "pci/controller", "pci/endpoint", "pci/switch", "pci/xen",
    "hotplug/cpq",
    "hotplug/ibmphp", "hotplug/shpchp", "hotplug/rp", "hotplug/pnv", "hotplug/s390", "hotplug/cpci",
    "hotplug/acpiphp_ibm", "ata/pata", "ata/sata_", "ata/ahci_", "ipmi/bt-bmc", "ipmi/kcs_bmc",
    "ipmi_poweroff", "ipmi/ipmb", "ipmi/ssif_bmc", "ipmi_powernv", "hotmod", "ipmi_si_parisc",
)  # fmt: skip
