"""The kernel, by subsystem."""

from runner.rootcause.families.family import GONE, HEAD, kernel, storage

KERNEL = (
    kernel(
        "storage-device-gone",
        r"\b(?:nvme\d*(?:n\d+)?|sd[a-z]{1,2}|scsi|ata\d+(?:\.\d+)?|mlx[45]\w*|bnxt\w*|ena|ice|i40e|pcieport|pciehp"
        r"|usb)\b" + GONE,
        "device_vanished",
        sample="pcieport 0000:80:01.0: pciehp: Slot(4): Link Down, card not present",
        confidence=0.7,
    ),
    storage(
        "kernel-file-systems",
        HEAD
        + r"(?:(?:EXT[234]-fs|JBD2|XFS|BTRFS|F2FS|EROFS|overlayfs|OVL|NFS[Dv]?\d?|SUNRPC|lockd|CIFS|SMB[23]?|ceph|libceph"
        r"|9p(?:net)?\w*|gfs2|ocfs2|squashfs|zfs|virtiofs|CUSE|netfs|CacheFiles|Lustre\w*|LNet\w*|ptlrpc|ldlm|obdclass|GPFS"
        r"|mmfs\w*"
        r"|beegfs\w*|weka\w*|orangefs|vastnfs|juicefs)\b|(?:fuse|RPC|AFS|SPL|dax|\w{2,12}fs): )"
        r"|\b\w{2,12}fs \(\w+\): |server \S{1,80} not responding|I/O error|Stale file handle"
        r"|Transport endpoint is not connected"
        r"|\bLustreError\b|\bLNetError\b",
        sample="XFS (nvme0n1p1): Metadata corruption detected at xfs_agf_verify",
        near="the offset fits: 12",
        confidence=0.8,
    ),
    kernel(
        "kernel-hardware",
        r"\b(?:EDAC|mce|mcelog|Hardware Error|pcieport|pciehp|PCIe Bus Error|DMAR|AMD-Vi|iommu|ipmi\w*"
        # In capitals alone, and not the model of this name.
        r"|(?-i:GHES|APEI|AER|BMC|BERT: (?:Error records|Total records|\[)|CPER|IERR)"
        r"|microcode|machine check|memory failure|cxl\w*|rasdaemon|i10nm|skx\w*|ghes_edac|SError|NMI|IOCK|Firmware (?:Warn"
        r"|Bug)|ACPI"
        r"|sdei|hwmon|PMBus|bad page|page table|soft offline|hardware memory corruption)\b",
        "host_hardware",
        sample="mce: [Hardware Error]: Machine check events logged",
        confidence=0.7,
    ),
    storage(
        "block-devices",
        HEAD
        + r"(?:(?:nvme\d*(?:n\d+)?|nvme[-_]\w+|sd[a-z]{1,2}|ata\d+(?:\.\d+)?|blk_\w+|md/?raid\d*|md\d+|device-mapper|dm-\d+"
        r"|megaraid\w*"
        r"|mpt[23]sas\w*|mpi3mr\w*|smartpqi|ahci|virtio_(?:blk|scsi)|loop\d+|bcache|drbd|nbd\d*|rbd\d*|zram\d*|sed_opal)\b"
        r"|(?:scsi|raid\d+|ata)\d*[:(\[]|(?:block|bio|dm)[: ] ?(?:sd|nvme|dm-|vd|md|loop)\w*:)",
        scope="storage",
        sample="md/raid1:md0: Disk failure on sdb1, disabling device",
        near="the block size is 512",
        confidence=0.6,
    ),
    kernel(
        "network-cards",
        HEAD
        + r"(?:(?:mlx\w*|bnxt\w*|bnx2x|i40e|iavf|idpf|ixgbe\w*|igb|igc|e1000e?|irdma|iw_cxgb4|cxgb4|hfi1|qib|ib_\w+"
        r"|infiniband|rdma\w*"
        r"|rtrs\w*|qede?|qedr|hns\w*|hinic\w*|hv_netvsc|virtio_net|vmxnet3|enic|usnic|ocrdma|be2net|erdma|rdmavt|tg3|r8169"
        r"|ionic|mana\w*"
        r"|bond\d+|bonding|eth\d+|en[ops]\d\w*|NETDEV WATCHDOG|RDMA CMA|QPLIB|user_mad|mdio_bus|libphy|pktgen)\b"
        r"|(?:ice|ena|efa|gve|sfc|nfp|smc|rds|tls|tcp|team|bond|mlx) [0-9a-f]{4}:|(?:ena|efa|gve|sfc|nfp|smc|rds|tcp|bond"
        r"|mlx)[:(\[])"
        r"|\b(?:eth\d+|en[ops]\d\w*|ib\d+): |\b(?:transmit queue|link (?:is )?(?:down|lost)|carrier lost|port (?:is )?down)\b",
        "nccl_network",
        layer="network",
        scope="fabric",
        sample="mlx5_core 0000:5d:00.0: poll_health: device's health compromised",
        near="3 ice creams were counted",
        confidence=0.6,
    ),
)  # fmt: skip
