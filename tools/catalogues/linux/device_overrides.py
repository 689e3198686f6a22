"""Messages about network cards, disks and file systems that their folder does not judge, with the reason."""

from tools.catalogues.linux.override import ANY_LEVEL, SET_UP, Override

_NET = ("drivers/infiniband", "drivers/net", "net/core", "net/sched")
_DISKS = ("drivers/nvme", "drivers/scsi", "drivers/ata", "drivers/md", "drivers/block", "block")
_MACHINE = ("drivers/", "arch/")
_FILES = ("fs/", "net/sunrpc", "net/ceph", "net/9p")
_MEMORY_LEFT = r"out of memory|no memory|not enough memory|unable to allocate|allocation fail|failed to allocate"
_SET_UP = (
    r"(?:fail\w*|unable|could ?n.?t|cannot|can't|can not|error\b.*) (?:to |in )?(?:un)?"
    r"(?:register|allocat|creat|init|request|map|get |parse|set ?up|add |find|load|enable|reserve|"
    r"ioremap|remap|claim|install|obtain|attach|start)"
    r"|(?:regist\w+|init\w*|alloc\w*|creat\w+|setup|request\w*|ioremap|probe) (?:has )?fail"
    r"|not support|unsupported|deprecated|invalid argument|unknown (?:option|parameter|module)"
    r"|out of memory|sysfs|debugfs|\bkobj|module_param|command line|\boption|hotmod|retry get|message count"
)
_DISKS = ("drivers/nvme", "drivers/scsi", "drivers/ata", "drivers/md", "drivers/block", "block")
_MACHINE = ("drivers/", "arch/")
_FILES = ("fs/", "net/sunrpc", "net/ceph", "net/9p")
_MEMORY_LEFT = r"out of memory|no memory|not enough memory|unable to allocate|allocation fail|failed to allocate"
_SET_UP = (
    r"(?:fail\w*|unable|could ?n.?t|cannot|can't|can not|error\b.*) (?:to |in )?(?:un)?"
    r"(?:register|allocat|creat|init|request|map|get |parse|set ?up|add |find|load|enable|reserve|"
    r"ioremap|remap|claim|install|obtain|attach|start)"
    r"|(?:regist\w+|init\w*|alloc\w*|creat\w+|setup|request\w*|ioremap|probe) (?:has )?fail"
    r"|not support|unsupported|deprecated|invalid argument|unknown (?:option|parameter|module)"
    r"|out of memory|sysfs|debugfs|\bkobj|module_param|command line|\boption|hotmod|retry get|message count"
)
_FILES = ("fs/", "net/sunrpc", "net/ceph", "net/9p")
_MEMORY_LEFT = r"out of memory|no memory|not enough memory|unable to allocate|allocation fail|failed to allocate"
_SET_UP = (
    r"(?:fail\w*|unable|could ?n.?t|cannot|can't|can not|error\b.*) (?:to |in )?(?:un)?"
    r"(?:register|allocat|creat|init|request|map|get |parse|set ?up|add |find|load|enable|reserve|"
    r"ioremap|remap|claim|install|obtain|attach|start)"
    r"|(?:regist\w+|init\w*|alloc\w*|creat\w+|setup|request\w*|ioremap|probe) (?:has )?fail"
    r"|not support|unsupported|deprecated|invalid argument|unknown (?:option|parameter|module)"
    r"|out of memory|sysfs|debugfs|\bkobj|module_param|command line|\boption|hotmod|retry get|message count"
)

_LINKS: tuple[Override, ...] = (
    Override(
        _NET,
        r"\blink is down|\blink down\b|link status (?:definitely )?down|link was lost|Lost carrier",
        "nccl_network",
        "a port went down; most drivers write it at level info, since a port also goes down on purpose",
        levels=ANY_LEVEL,
    ),
    Override(
        _NET,
        r"PCIe link lost|adapter removed|surprise removal|PCI slot is unavailable|PCI channel offline|"
        r"PCI reads still not working|device (?:is )?(?:gone|lost|disappeared)|hw is not accessible",
        "device_vanished",
        "the card answers no reads any more",
        lasting=True,
    ),
    Override(
        _NET,
        r"high temperature|temperature (?:threshold|too|reached|has gone)|overheat|chip temperature",
        "thermal_power",
        "the card or its cable is too hot",
    ),
    Override(_NET, r"being removed|detach|unregister|deprecated", "", "a driver is unloaded"),
    Override(
        ("drivers/net", "drivers/infiniband"),
        r"ethtool|not support|unsupported|invalid (?:parameter|argument|option|value)|must be|module parameter"
        r"|VF %|SR-?IOV|\bPTP\b|\bPHC\b|devlink|VLAN|\bDCB|flow (?:rule|steering|table)|mirror|offload",
        "",
        "a setting of the card that its driver refuses, or a part of it that runs do not use",
    ),
    Override(("drivers/net", "net/"), SET_UP, "", "set-up of the card or of the stack"),
    Override(
        ("drivers/net/ethernet/mellanox/mlx5/core/steering",),
        "",
        "",
        "steering of flows for virtual machines",
    ),
    Override(
        ("net/ipv4", "net/ipv6", "net/core"),
        r"neighbour: .*overflow|Possible SYN flooding|TCP: out of memory",
        "nccl_network",
        "connections are dropped by a limit of the host",
    ),
    Override(
        ("net/core",), r"^(?!.*(?:csum failure|timed out|Dead loop))", "", "checks of the stack"
    ),
)
_STORAGE: tuple[Override, ...] = (
    Override(
        ("drivers/md",),
        r"Disk failure on",
        "host_hardware",
        "an array gave up a disk that failed",
        lasting=True,
    ),
    Override(
        ("drivers/nvme/host",),
        r"controller is down|Disabling device|Device not ready|Removing after probe|IO queues lost|"
        r"persistent internal error|state error detected|probe failed",
        "host_hardware",
        "the controller of the disk does not answer",
        lasting=True,
    ),
    Override(
        ("drivers/nvme/host",),
        r"timeout|keep-?alive|I/O|status|capacity|media|error",
        "filesystem",
        "requests to the disk fail or are slow",
        scope="storage",
    ),
    Override(("drivers/nvme/host",), "", "", "features and settings of the disk"),
    Override(
        _DISKS,
        r"IRQ status == 0xffffffff|device (?:is gone|removal)|is not present|host adapter is dead|surprise",
        "device_vanished",
        "the disk or its controller is gone",
    ),
    Override(
        ("drivers/md",),
        r"device-mapper|^Invalid|^Unknown|argument|parameter|feature|^Cannot (?:alloc|parse)"
        r"|deprecated|unsupported",
        "",
        "a table of the device mapper that cannot work",
    ),
    Override(
        ("drivers/scsi", "drivers/ata", "drivers/md", "drivers/block"),
        SET_UP,
        "",
        "set-up of the driver",
    ),
    Override(
        _DISKS,
        r"deprecated|not support|unsupported|module parameter|invalid (?:option|parameter|argument)|sysfs",
        "",
        "set-up of a driver",
    ),
)
# Where file systems read the options that they are mounted with.
_MOUNTS = (
    "fs/ext4/super.c", "fs/xfs/xfs_super.c", "fs/btrfs/super.c", "fs/overlayfs/params.c",
    "fs/fuse/inode.c", "fs/nfs/fs_context.c", "fs/nfs/super.c", "fs/smb/client/fs_context.c",
    "fs/smb/client/connect.c", "fs/ceph/super.c", "fs/9p/v9fs.c", "net/9p", "fs/squashfs/super.c",
    "fs/erofs/super.c",
)  # fmt: skip
_FILE_SYSTEMS: tuple[Override, ...] = (
    Override(
        ("net/sunrpc", "fs/lockd", "fs/nfs/"),
        r"not responding|timed out$",
        "filesystem",
        "the file server does not answer; written at level notice",
        levels=ANY_LEVEL,
        scope="storage",
    ),
    Override(
        ("fs/ceph", "net/ceph"),
        r"\bhung\b|session (?:lost|rejected)|caps (?:stale|went stale)|reconnect denied|blocklisted"
        r"|socket (?:closed|error)",
        "filesystem",
        "the client lost its server; written at level info in part",
        levels=ANY_LEVEL,
        scope="storage",
    ),
    Override(
        ("fs/btrfs",),
        r"Transaction aborted|force(?:d|s) readonly",
        "filesystem",
        "the file system is read-only from here on",
        scope="storage",
        lasting=True,
    ),
    Override(
        _MOUNTS,
        r"mount option|unrecogni[sz]ed|unknown (?:option|parameter)|invalid (?:option|argument|mount)|"
        r"mutually exclusive|can't mount with|option .* requires|requires? (?:the )?option|compiled with",
        "config_error",
        "how it was mounted, not the storage",
        levels=("error",),
        scope="user",
    ),
    Override(
        _FILES,
        r"deprecated|experimental|out of memory|no memory|ENOMEM",
        "",
        "says nothing of the storage",
    ),
)
DEVICE_OVERRIDES: tuple[Override, ...] = (*_LINKS, *_STORAGE, *_FILE_SYSTEMS)
