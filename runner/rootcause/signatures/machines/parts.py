"""Lines of the kernel about parts of a host that are broken or do not start: disks, network cards, GPUs and their drivers."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_ADDRESS = r"(?P<device>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# Drivers of cards that nodes of clusters have: of networks, and of disks.
_CARDS = (
    r"(?:mlx[45]_(?:core|ib)|bnxt_(?:en|re)|i?ice|i40e|iavf|idpf|ixgbe\w*|igb|igc|e1000e|irdma|efa|ena|gve|mana|ionic|hfi1"
    r"|qede?|cxgb4|sfc|tg3|be2net|enic|hns3|hinic\w*|liquidio|atlantic|nfp|fm10k"
    r"|nvme|megaraid_sas|mpt[23]sas|mpi3mr|smartpqi|aacraid|ahci|hpsa|isci|virtio-pci)"
)
_GPUS = r"(?:nvidia|amdgpu|habanalabs|xe|nvidia-nvswitch|drv_devmng\w*)"
_PROBE = "Linux, drivers/base/dd.c: the driver of a device that is there could not start it"
_DISK = r"(?:sd|nvme|md|vd|xvd|hd|mmcblk|pmem|dm-)"

_part = partial(Signature, fault="host_hardware", layer="machine", scope="node", is_lasting=True)

PARTS = (
    _part(
        "card-does-not-start",
        rf"\b{_CARDS}: probe of {_ADDRESS} failed with error -\d"
        rf"|\b{_ADDRESS.replace('device', 'probed')}: probe with driver {_CARDS} failed with error -\d",
        is_lasting=False,
        source=_PROBE,
        sample="ice: probe of 0000:04:00.0 failed with error -5",
        near="snd_hda_intel: probe of 0000:00:1f.3 failed with error -2",
    ),
    _part(
        "gpu-driver-does-not-start",
        rf"\b{_GPUS}: probe of {_ADDRESS} failed with error -\d"
        rf"|\b{_ADDRESS.replace('device', 'probed')}: probe with driver {_GPUS} failed with error -\d",
        fault="gpu_lost",
        # A driver that does not know the GPU says so in a line of its own.
        layer="consequence",
        scope="gpu",
        is_lasting=False,
        source=_PROBE,
        sample="amdgpu 0000:c1:00.0: probe with driver amdgpu failed with error -110",
        near="amdgpu 0000:c1:00.0: probe with driver amdgpu is deferred",
    ),
    _part(
        "nic-does-not-start",
        r"\bmlx5_core \S+ .*(?:\bhandle_hca_cap\w* failed|\bmlx5_(?:load|init)_one(?:_light)? failed"
        r"|\bmlx5_function_(?:setup|enable|open) failed|\benable hca failed|\binit hca failed|\bset_hca_ctrl failed"
        r"|\bFirmware over \d+ MS in (?:pre-)?initializing state, aborting"
        r"|\bfailed to allocate (?:init|boot) pages|\bfailed initializing command interface)",
        source="Linux, drivers/net/ethernet/mellanox/mlx5/core/main.c: the card, or its firmware, does not come up",
        sample="mlx5_core 0000:c2:00.0: mlx5_function_setup:1188:(pid 812): enable hca failed",
        near="mlx5_core 0000:c2:00.0: mlx5_function_setup:1188:(pid 812): enable hca has been done",
    ),
    _part(
        "disk-broken",
        r"\bSense Key : (?:Medium|Hardware) Error\b|\bAdd\. Sense: (?:Unrecovered read error|Peripheral device write fault"
        r"|Logical unit (?:failure|does not respond|failed self)|Internal target failure|Write error|Mechanical positioning"
        r"|Failure prediction threshold exceeded)"
        rf"|critical medium error, dev {_DISK}|\bata\d+(?:\.\d+)?: error: \{{ (?:\w+ )*(?:UNC|AMNF|TRK0NF)\b"
        r"|\bmd/\w+\S*: *Disk failure on \S+ ?(?:detected)?, (?:disabling|failing)"
        r"|\bnvme\d*: (?:Disabling device after reset failure|controller is down; will reset: CSTS=0x[0-9a-f]*[0-9a-e])"
        r"|\(sct 0x2 / sc 0x8[0-4]\)|\bUnrecovered Read Error \(sct",
        role="broken-disk",
        source="Linux, drivers/scsi, ata, nvme, md: the disk itself reports an error of its medium, or an array gave it up",
        sample="sd 2:0:0:0: [sdc] tag#12 Add. Sense: Unrecovered read error",
        near="sd 2:0:0:0: [sdc] tag#12 Add. Sense: Power on, reset, or bus device reset occurred",
    ),
    _part(
        "disk-warns",
        r"\bcritical_warning +: +0x(?:[1-9a-f]|0[1-9a-f])"
        r"|\bSMART (?:overall-health self-assessment test result|Health Status): +FAIL",
        is_lasting=False,
        source="nvme-cli, smart-log; smartmontools, smartctl",
        sample="critical_warning                    : 0x4",
        near="critical_warning                    : 0",
    ),
    _part(
        "drive-state-of-raid",
        r"\b(?:PD|VD)\b.{0,60}\b(?:state changed|changed state)\b.{0,60}\bto (?:FAILED|UNCONFIGURED[ _]BAD|OFFLINE|DEGRADED)"
        r"|\bpuncture\w* (?:bad )?block",
        source="MegaRAID, its event log as the kernel and storcli print it",
        sample="megaraid_sas 0000:18:00.0: 8123 (712s/0x0002/CRIT) - State change on PD 05(e0x20/s5) state changed to FAILED",
        near="megaraid_sas 0000:18:00.0: 8123 (712s/0x0002/info) - State change on PD 05(e0x20/s5) state changed to ONLINE",
    ),
    _part(
        "raid-controller-broken",
        r"\b(?:megaraid_sas|megasas|mpi3mr\d*|mpt[23]sas_cm\d+|hpsa|smartpqi|aacraid)\b.*(?:\bAdapter is DEAD|\bFW in FAULT state"
        r"|\bcontroller (?:lockup detected|(?:is )?offline)|\bSAS host is non-operational|\bUnrecoverable controller"
        r"|\bAdapter (?:is )?(?:dead|failed)|\bController encountered a fatal error)",
        source="Linux, drivers/scsi: megaraid, mpt3sas, mpi3mr, hpsa, smartpqi: the controller of the disks answers no more",
        sample="megaraid_sas 0000:18:00.0: FW in FAULT state!!",
        near="megaraid_sas 0000:18:00.0: FW now in Ready state",
    ),
    _part(
        "disk-failed-in-table",
        r"\bmd\d+ : active raid\d+ .*\[\d+\]\(F\)|\b\d{1,3}:\d{1,3} +\d+ +(?:UBad|UBUnsp|Failed|Offln) +\S"
        r"|\b\d+/\d+ +RAID\d+ +(?:Dgrd|Pdgd|OfLn) "
        r"|\b(?:sd[a-z]{1,2}|nvme\d+n\d+|wwn-\S+|ata-\S+) +(?:FAULTED|UNAVAIL|REMOVED) +\d+ +\d+ +\d+\b",
        is_lasting=False,
        source="/proc/mdstat, storcli and zpool status: the state of each disk",
        sample="md0 : active raid1 sdb1[1](F) sda1[0]",
        near="md0 : active raid1 sdb1[1] sda1[0]",
    ),
    _part(
        "link-narrower-in-table",
        r"\bLnkSta:.{0,60}\bWidth x\d+ \(downgraded\)",
        # Ports that nothing needs print it, too.
        layer="consequence",
        is_lasting=False,
        source="lspci -vv: a link of fewer lanes than the device has; of a lower speed, it only saves power",
        sample="        LnkSta: Speed 16GT/s (ok), Width x8 (downgraded)",
        near="        LnkSta: Speed 2.5GT/s (downgraded), Width x16 (ok)",
    ),
    _part(
        "memory-corrupted-below-a-process",
        r"Sending SIGBUS to \S+ due to hardware memory corruption"
        r"|\bKilling \S+ due to hardware memory corruption",
        source="Linux, mm/memory-failure.c: a process read a page whose memory is damaged",
        sample="Memory failure: 0x4a5c1: Sending SIGBUS to python:8812 due to hardware memory corruption",
        near="Memory failure: 0x4a5c1: recovery action for clean LRU page: Recovered",
    ),
    _part(
        "link-not-trained",
        r"\bpcieport \S+: (?:broken device, retraining|retraining failed|Data Link Layer Link Active not set in)",
        # Of ports with nothing behind them, too, while a machine starts.
        layer="consequence",
        is_lasting=False,
        source="Linux, drivers/pci/quirks.c and pci.c: the link to a device does not come up",
        sample="pcieport 0000:5d:01.0: broken device, retraining non-functional downstream link at 2.5GT/s",
        near="pcieport 0000:5d:01.0: the link is retrained",
    ),
    _part(
        "hardware-did-not-correct-it",
        r"\bevent severity: (?:fatal|recoverable|deferred)\b|\b(?:mcelog|MCE)\b.{0,40}\bUncorrected error\b"
        r"|^Uncorrected error\b",
        role="uncorrected",
        is_lasting=False,
        source="Linux, drivers/firmware/efi/cper.c; mcelog: of one report, whose other lines say what happened",
        sample="{359}[Hardware Error]: event severity: fatal",
        near="{359}[Hardware Error]: event severity: corrected",
    ),
    _part(
        "memory-corrected-too-often",
        r"(?i)\bcorrected (?:\w+ )?(?:memory )?errors? .{0,60}\bexceed(?:s|ed)? (?:the )?threshold",
        source="mcelog and rasdaemon: a module of memory that is about to fail, by how often it was corrected",
        sample="mcelog: corrected DIMM memory error count exceeded threshold: 10 in 24h",
        near="mcelog: corrected DIMM memory error count is below the threshold: 3 in 24h",
    ),
    _part(
        "card-out-of-reach",
        r"\b(?:nvme|mlx5_core|ice|i40e|bnxt_en|pcieport) \S+: (?:[Cc]an't|[Uu]nable to|[Rr]efused to) change power state"
        r" from \S+ to D0.{0,4}(?:config space|device) inaccessible"
        r"|\b(?:igb|igc|e1000e?|ixgbe\w*)\b.{0,80}\b(?:Failed to read reg 0x[0-9a-f]+!|PCIe link lost|(?:Adapter|Device) removed)",
        fault="device_vanished",
        layer="device",
        source="Linux, drivers/pci/pci.c, drivers/net/ethernet/intel: nothing answers at the address of the device",
        sample="nvme 0000:5e:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
        near="nvme 0000:5e:00.0: power state changed from D3cold to D0",
    ),
)
