"""Families of emitters: what a line at error level means by who writes it, where no signature and no catalogue has its words.

The first family that matches decides, so the more specific ones come first. Each has a line that it knows and a similar one that it
does not; `confidence` is how often such lines name the class of action rightly, chosen from the emitters' own catalogues.
"""

import re
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from runner.facts.matches import Layer, Scope
from runner.rootcause.missing_programs import REFUSED


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of emitter, or of event, that a pattern shows anywhere in a line; any case unless the pattern says otherwise."""

    name: str
    pattern: str
    fault: str
    _: KW_ONLY
    layer: Layer
    scope: Scope
    sample: str
    near: str
    confidence: float = 0.6
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern, re.I))


_nccl = partial(Family, layer="network", scope="fabric", near="NCCL INFO Using network IB")
_kernel = partial(Family, layer="machine", scope="node", near="usb 1-1: new high-speed USB device")
_storage = partial(Family, fault="filesystem", layer="machine", scope="storage")
_gpu = partial(Family, layer="device", scope="gpu")
_program = partial(Family, layer="program", scope="user")
_ended = partial(Family, fault="unknown", layer="launcher", scope="rank", confidence=0.4)
# What hardware and drivers report as lost, broken or late, within so much text.
_TROUBLE = (
    r".{0,160}\b(?:errors?|fail\w*|fault\w*|timed? ?out|timeout|time-?out|aborts?|aborting|reset\w*|dead|hung|hang|stuck"
    r"|fatal"
    r"|uncorrect\w*|corrupt\w*|unable|cannot|can't|could not|couldn't|bad|broken|offline|down|lost|not responding|invalid"
    r"|critical|panic"
    r"|overflow|unhealthy|degraded|compromised|assert\w*|no memory|unexpected|missing|refused|rejected)"
)
# How kernel lines and those of drivers begin: with the subsystem, behind a time or `kernel:`.
_HEAD = r"(?:^|\] ?|kernel: ?|: )(?:\S{1,40} )?"
_GONE = (
    r".{0,120}(?:surprise|removed|removing|removal|vanish\w*|disconnect\w*|disappear\w*|not present|no such device|ENODEV"
    r"|hot-?unplug)"
)

# Of files: what is there is not what a reader expects.
_UNREADABLE = (
    r".{0,80}\b(?:corrupt\w*|truncat\w*|incomplete|not (?:a )?(?:finali[sz]ed|complete|committed)|missing|bad (?:header|magic)"
    r"|cannot be (?:read|decoded|parsed|loaded|restored)|checksum|malformed|damaged|unreadable)\b"
)
_UNREADABLE_BEFORE = (
    r"\b(?:corrupt\w*|truncated|incomplete|bad header|malformed|damaged|unreadable|cannot (?:read|decode|parse|load|restore|save)"
    r"|(?:failed|unable) to (?:read|decode|parse|load|restore|save|write))\b.{0,60}"
)

FAMILIES: tuple[Family, ...] = (
    # ---- GPUs
    _gpu(
        "gpu-memory-errors",
        r"(?:\b(?:ECC|DBE|SBE|SRAM|HBM|row[ -]?remap\w*|page retire\w*|poison\w*|RAS)\b.{0,80}\b(?:gpu|amdgpu|nvrm|dram"
        r"|uncorrect\w*|errors?)"
        r"|\b(?:gpu|amdgpu|nvrm)\b.{0,80}\b(?:ECC|DBE|SRAM|HBM|row[ -]?remap\w*|page retire\w*|poison\w*"
        r"|RAS)\b)(?!.{0,40}\bEDAC\b)",
        "gpu_ecc",
        sample="GPU 3: uncorrectable ECC errors were found in its DRAM",
        near="EDAC MC0: 1 CE memory read error",
        confidence=0.7,
    ),
    _gpu(
        "gpu-gone",
        r"fallen off the bus|\b(?:gpu|device)s?\b.{0,30}\b(?:is lost|was lost|has been lost|not found on the bus|lost from)\b"
        r"|unable to determine the device handle",
        "gpu_lost",
        sample="GPU 0000:4e:00.0 is lost; reboot the system to recover it",
        near="the GPU's clock lost 3 seconds",
        confidence=0.8,
    ),
    _gpu(
        "gpu-links",
        r"\b(?:nv ?link|nv ?switch\d*|nvlsm|xgmi|sxid|infinity fabric|fabric ?manager|GPU fabric|nvlink-c2c|mnnvl"
        r"|imex)\b" + _TROUBLE,
        "nvlink_error",
        sample="nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 20034, fatal, LTSSM fault up",
        near="NVLink is up on 18 links",
        confidence=0.7,
    ),
    _gpu(
        "heat-and-power",
        r"\b(?:overheat\w*|over-?temp\w*|too hot|thermal (?:violation|shutdown|trip|throttl\w*|slowdown|event|limit)"
        r"|power (?:brake|violation|supply|cable|loss|cap violation)|PSU\b|temperature (?:above|over|exceed\w*|threshold"
        r"|too high))",
        "thermal_power",
        scope="node",
        sample="GPU 2 reports a thermal violation of 12 seconds",
        near="the temperature is 41 degrees",
        confidence=0.7,
    ),
    _gpu(
        "gpu-program-faults",
        r"\b(?:cuda|hip|hsa|gpu|rocr|kernel)\w*.{0,60}(?:illegal|misaligned|launch[_ ]?(?:failure|failed)"
        r"|device[- ]side assert|assert\b"
        r"|invalid (?:pc|address space)|InvalidAddressSpace|InvalidPc|memory (?:access )?fault|hardware ?stack ?error"
        r"|aperture)",
        "cuda_illegal_access",
        layer="program",
        scope="rank",
        sample="cudaErrorMisalignedAddress",
        near="the cuda kernels were launched",
        confidence=0.7,
    ),
    _gpu(
        "gpu-driver",
        r"\b(?:NVRM|nvidia-(?:modeset|uvm|drm|peermem)|amdgpu|kfd|kfd2kgd|amdxcp|Xid)\b",
        "gpu_xid_other",
        sample="NVRM: gpuHandleSanityCheckRegReadError_GM107: Possible bad register read",
        near="the nvidia driver was loaded",
        confidence=0.6,
    ),
    # ---- shells
    _program(
        "shells",
        f"(?-i:{REFUSED})",
        "config_error",
        sample="/bin/sh: 1: torchrun: not found",
        near="spin: 1 wheel was not found",
        confidence=0.7,
    ),
    # ---- checks of C++ libraries: the condition says nothing of the cause
    _ended(
        "failed-check",
        r"\bcheck failed: |\*\*\* check failure stack trace",
        sample="RuntimeError: csrc/helpers.cpp:273 : Check failed: out_size <= input_size (2 vs. 1)",
        near="all checks have passed",
    ),
    # ---- numbers and memory
    _program(
        "device-memory",
        r"\b(?:RESOURCE_EXHAUSTED|pjrt\w*|stream_executor|bfc_allocator)\b.{0,80}\bout of memory\b|"
        r"\b(?:cuda|gpu|hip|device|vram|hbm|xpu|npu|xla|(?:cuda|hip)Malloc\w*)\b.{0,60}"
        r"\b(?:out[ _]of[ _]memory|OOM|memory exhausted)\b"
        r"|\b(?:out[ _]of[ _]memory|OOM)\b.{0,60}\b(?:cuda|gpu|hip|device|vram|hbm)\b"
        r"|\b(?:failed|unable|cannot) to allocate\b.{0,40}\b(?:device|gpu|cuda|hbm)\b",
        "cuda_oom",
        sample="allocator: GPU out of memory, 2.0 GiB were asked for",
        near="memory of the device was freed",
        confidence=0.8,
    ),
    _kernel(
        "host-memory",
        r"\b(?:oom[- ]?kill\w*|out of (?:host |system )?memory|cannot allocate memory|bad_alloc|memory cgroup out"
        r"|page allocation failure|memory pressure|(?:running |was )?low on memory"
        r"|allocation failed|memory allocation of \d{1,20} bytes failed|ENOMEM"
        r"|failed to (?:allocate|alloc|map)\b.{0,40}\b(?:memory|pages?|buffer))\b",
        "host_oom",
        sample="worker 3 ended: std::bad_alloc",
        confidence=0.7,
    ),
    _program(
        "not-finite",
        r"\b(?:loss|grad(?:ient)?s?|norm|logits|activations?|weights?)\b.{0,40}\b(?:nan|inf|non-?finite|infinite)\b"
        r"|\b(?:nan|non-?finite)s?\b.{0,40}\b(?:loss|grad(?:ient)?s?|norm|logits|activations?|weights)\b",
        "nan_loss",
        scope="rank",
        sample="step 812: gradient norm is inf, training cannot go on",
        near="the loss is finite again",
        confidence=0.7,
    ),
    _program(
        "loss-scale",
        r"\bloss[ _-]?scal(?:e|er|ing)\b.{0,80}\b(?:minimum|min|floor|underflow|too (?:small|low)|zero|exhausted)\b",
        "loss_scale_floor",
        sample="the loss scaler reached its floor of 1.0",
        near="loss scale: 65536",
        confidence=0.8,
    ),
    # ---- the operator's and the scheduler's will
    Family(
        "evicted",
        r"\bevict(?:ed|ion|ing)?\b.{0,120}\b(?:memory|oom)\b|\bOOMKilled\b",
        "host_oom",
        layer="machine",
        scope="node",
        sample="pod trainer-3 was evicted: the node was low on resource: memory",
        near="an entry was evicted from the cache",
        confidence=0.8,
    ),
    _storage(
        "evicted-for-disk",
        r"\bevict(?:ed|ion|ing)?\b.{0,120}\b(?:ephemeral-storage|disk|inodes?)\b",
        sample="Evicting pod: the node had condition DiskPressure, ephemeral-storage",
        near="the disk cache holds 3 GB",
        confidence=0.7,
    ),
    Family(
        "preempted",
        r"\b(?:(?<!not )preempt\w*|spot (?:instance|interruption|termination)|reclaim(?:ed|ing) by|scheduled maintenance"
        r"|maintenance event"
        r"|(?:job|task|pod|instance|node|workload)s?\b.{0,60}\b(?:evict\w*|cancel(?:l?ed|l?ing)|revoked|due to time limit)"
        r"|time limit (?:reached|exceeded)|wall ?time (?:exceeded|reached|limit))",
        "preemption",
        layer="scheduler",
        scope="scheduler",
        sample="the workload was preempted to make room for a queue of higher priority",
        near="jobs of this queue cannot be changed",
        confidence=0.7,
    ),
    # ---- nodes, workers and the launcher
    Family(
        "node-gone",
        # A node of a graph is no machine.
        r"(?<!for )(?<!\{\{)\b(?:node(?!:)|host|machine|vm|(?<!\()raylet|kubelet|slurmd"
        r"|(?:vm|compute|ec2|spot|cloud) instance)s?\b.{0,80}"
        r"\b(?:died|dead|(?:is|was|been|are|were|got|marked) (?:lost|down|gone|offline|unavailable)|not ?ready|unreachable"
        r"|not responding"
        r"|unresponsive|rebooted|crash\w*|terminated|failed (?:its |the )?(?:health|heartbeat)"
        r"|missed (?:too many )?heartbeats?|lost contact"
        r"|shut ?down unexpectedly|fail(?:ed|ure))\b"
        r"|\bkernel panic\b|\b(?:lost|losing) (?:contact|connection|communication) (?:with|to) (?:the )?(?:node|host|slurmd"
        r"|kubelet)",
        "node_failure",
        layer="scheduler",
        scope="node",
        sample="actor 12 cannot be reached: the node that it ran on was lost",
        near="node 3 runs 8 actors",
        confidence=0.6,
    ),
    Family(
        "kernel-in-trouble",
        r"\b(?:soft lockup|hard lockup|rcu\w*:? .{0,40}stall\w*|kernel bug at|oops:|general protection fault"
        r"|unable to handle kernel"
        r"|double fault|not syncing|csd-?lock|non-responsive CSD|hung_task|NMI watchdog|kthread starved"
        r"|corrupted page table|userspace code)\b",
        "node_failure",
        layer="machine",
        scope="node",
        sample="watchdog: BUG: soft lockup - CPU#12 stuck for 26s!",
        near="lockup detection is on",
        confidence=0.7,
    ),
    # ---- NCCL and RCCL, by source file
    _nccl(
        "nccl-network",
        r"\b(?:transport/(?:net\w*|generic)|net_ib\w*|net_socket|socket|ib(?:v\w*|vwrap)|gdr\w*|bootstrap|proxy|net_plugin"
        r"|net_v\d+|ras\w*"
        r"|gin\w*|coll_net)\.cc:\d+.{0,20}(?:NCCL|RCCL) WARN|(?:NCCL|RCCL) WARN.{0,40}\b(?:NET|IB|OFI|socket|connect|peer)\b",
        "nccl_network",
        sample="n1:812:901 [3] transport/net_ib.cc:1295 NCCL WARN a completion with an error that is not listed",
        confidence=0.7,
    ),
    _nccl(
        "nccl-links",
        r"\b(?:nvls\w*|mnnvl|transport/nvls)\.cc:\d+.{0,20}(?:NCCL|RCCL) WARN",
        "nvlink_error",
        layer="link",
        scope="gpu",
        sample="n1:812:901 [3] transport/nvls.cc:203 NCCL WARN multicast could not be bound",
        confidence=0.5,
    ),
    _nccl(
        "nccl-arguments",
        r"\b(?:init|enqueue|group|argcheck|param|channel|topo|search|paths|xml|rings|trees|tuning|tuner\w*|shm|p2p"
        r"|dev_runtime|sym\w*"
        r"|register|alloc|nvmlwrap|cudawrap|utils|strongstream|collectives|mem_manager|ce_coll)\.(?:cc|h"
        r"|cu):\d+.{0,20}(?:NCCL|RCCL) WARN",
        "config_error",
        layer="program",
        scope="user",
        sample="n1:812:901 [3] misc/argcheck.cc:39 NCCL WARN the pointer is of another device",
        confidence=0.55,
    ),
    Family(
        "collective-timeout",
        r"\b(?:collective|all_?reduce|all_?gather|reduce_?scatter|broadcast|\w*barrier|watchdog|nccl\w*|rccl\w*|hccl|xccl"
        r"|gloo)\b.{0,120}"
        r"\b(?:timed? ?out|timeout|deadline exceeded)\b"
        r"|\bstall\w* (?:ranks?|tensors?|ops?|time-?out)\b|\bmissing ranks\b|\branks?\b.{0,40}\btimed out\b"
        r"|\btimed out\b.{0,60}\b(?:collective|all_?reduce|all_?gather|reduce_?scatter|\w*barrier)\b"
        r"|\branks?\b.{0,80}\b(?:failed to|did not|never|not yet) (?:pass|reach\w*|join\w*|enter\w*|arrive\w*)\b",
        "nccl_timeout",
        layer="collective",
        scope="rank",
        sample="the barrier of group 3 timed out after 600 s",
        near="the barrier was passed after 3 s",
        confidence=0.7,
    ),
    Family(
        "rendezvous",
        r"\b(?:rendezvous|rdzv|etcd|tcp_?store|coordinat(?:or|ion service)|master (?:addr|port)|init_process_group"
        r"|process group)\b.{0,120}"
        r"\b(?:fail\w*|timed? ?out|timeout|closed|refused|unreachable|unavailable|in use|never|lost|could not|cannot|unable"
        r"|error)\b"
        r"|\b(?:unable|failed) to (?:reliably )?(?:start|launch|reach|contact)\b.{0,40}\bdaemons?\b"
        r"|\baddress already in use\b",
        "rendezvous",
        layer="network",
        scope="fabric",
        sample="the coordinator of the job closed the rendezvous before all hosts had joined",
        near="the rendezvous is complete",
        confidence=0.6,
    ),
    _nccl(
        "collective-libraries",
        r"\b(?:NCCL|RCCL|libfabric|ofi|efa|ucx|ucp|uct|ibv_\w+|verbs|rdma\w*|infiniband|roce|gloo|openib|psm\d|cxi|(?-i:SHARP"
        r"|sharp:)"
        r"|hcoll|ucc|nvshmem)\b"
        r"(?=" + _TROUBLE + r")|\bWARN\b.{0,20}\bNET/|\b(?:NCCL|RCCL) (?:WARN|ERROR)|\blibfabric:\d+",
        "nccl_network",
        sample="libfabric:812:1727440000:efa:ep_ctrl:efa_rdm_ep_close(): an endpoint failed to drain",
        confidence=0.55,
    ),
    # ---- the kernel by subsystem
    _kernel(
        "storage-device-gone",
        r"\b(?:nvme\d*(?:n\d+)?|sd[a-z]{1,2}|scsi|ata\d+(?:\.\d+)?|mlx[45]\w*|bnxt\w*|ena|ice|i40e|pcieport|pciehp"
        r"|usb)\b" + _GONE,
        "device_vanished",
        sample="pcieport 0000:80:01.0: pciehp: Slot(4): Link Down, card not present",
        confidence=0.7,
    ),
    _storage(
        "kernel-file-systems",
        _HEAD
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
    _kernel(
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
    _storage(
        "block-devices",
        _HEAD
        + r"(?:(?:nvme\d*(?:n\d+)?|nvme[-_]\w+|sd[a-z]{1,2}|ata\d+(?:\.\d+)?|blk_\w+|md/?raid\d*|md\d+|device-mapper|dm-\d+"
        r"|megaraid\w*"
        r"|mpt[23]sas\w*|mpi3mr\w*|smartpqi|ahci|virtio_(?:blk|scsi)|loop\d+|bcache|drbd|nbd\d*|rbd\d*|zram\d*|sed_opal)\b"
        r"|(?:scsi|raid\d+|ata)\d*[:(\[]|(?:block|bio|dm)[: ] ?(?:sd|nvme|dm-|vd|md|loop)\w*:)",
        scope="storage",
        sample="md/raid1:md0: Disk failure on sdb1, disabling device",
        near="the block size is 512",
        confidence=0.6,
    ),
    _kernel(
        "network-cards",
        _HEAD
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
    # ---- files, services and settings of programs
    _storage(
        "disk-full",
        r"no space left|disk quota|quota exceeded|disk is full|read-only file ?system|input/output error|too many levels of",
        sample="write of shard 4 failed: quota exceeded",
        near="the disk has space left",
        confidence=0.8,
    ),
    _program(
        "no-gpu-visible",
        r"no (?:cuda|hip|xpu)?[ -]?(?:gpus?|devices?)(?: are| is| were)? (?:available|visible|found|detected)|no (?:cuda"
        r"|hip)-capable device"
        r"|found no nvidia driver|driver version is insufficient|invalid device ordinal",
        "config_error",
        sample="RuntimeError: No CUDA GPUs are available",
        near="8 GPUs are available",
        confidence=0.7,
    ),
    _program(
        "access-refused",
        r"\b(?:access ?denied|permission denied|unauthori[sz]ed|forbidden|invalid credentials?|credentials? (?:not|expired)"
        r"|no credentials"
        r"|not authorized|(?:http|status)\D{0,12}40[13]|40[134] client error|(?:repo\w*|model|revision|project) ?not ?found"
        r"|token (?:is )?(?:invalid|expired)|no such bucket|NoSuchBucket"
        r"|bucket .{0,40}not exist)\b",
        "config_error",
        sample="the object store answered 403: access denied for this key",
        near="the token was renewed",
        confidence=0.6,
    ),
    _storage(
        "service-of-files",
        r"\b(?:bucket|blob|object store|s3|gcs|azure|hdfs|minio|storage|download\w*|upload\w*"
        r"|hub)\b.{0,120}\b(?:timed? ?out|timeout"
        r"|connection (?:reset|refused|aborted|error)|unavailable|throttl\w*|slow ?down|50[0234]|retr(?:y|ies)"
        r"|internal error|broken pipe)\b|\bHTTP (?:request|response|status)\b.{0,60}\b50[0234]\b",
        sample="upload to the bucket failed after 5 retries: connection reset",
        near="the bucket holds 3 objects",
        confidence=0.65,
    ),
    _program(
        "checkpoints",
        r"\b(?:checkpoint\w*|ckpts?|state_?dict|safetensors|distcp)\b" + _UNREADABLE
        + r"|\b(?:checkpoint\w*|ckpts?)\b.{0,40}\b(?:sav|writ|load|restor|read|upload|download)\w*\b.{0,20}\b(?:failed|failure"
        r"|timed? ?out)\b|" + _UNREADABLE_BEFORE
        + r"\b(?:checkpoint\w*|ckpts?|state_?dict|safetensors|distcp)\b",
        "checkpoint_io",
        scope="storage",
        sample="restore: the checkpoint of step 800 is not finalized, a commit marker is missing",
        near="the checkpoint of step 800 was restored",
        confidence=0.65,
    ),
    _program(
        "data-sets",
        r"\bMDB_(?:CORRUPTED|INVALID|PAGE_NOTFOUND)\b"
        r"|\binvalid data found\b|\btokenizing data\b|\b(?:input|training) data (?:is|are|was) (?:invalid|corrupt\w*)"
        r"|\b(?:data ?sets?|data_?loaders?|shards?|tfrecords?|parquet|jsonl|samples?|image files?|token files?|corpus)\b"
        + _UNREADABLE + r"|" + _UNREADABLE_BEFORE
        + r"\b(?:data ?sets?|data_?loaders?|shards?|tfrecords?|parquet|jsonl|samples?|image files?|token files?|corpus)\b",
        "data_error",
        sample="reader: shard 12 of the corpus is truncated",
        near="the dataset has 12 shards",
        confidence=0.65,
    ),
    _program(
        "files-not-opened",
        r"\b(?:errors?|fail\w*|unable|could ?n[o']t|can(?:no|')t)(?: to)? (?:open|access|stat|find|locate|read)(?:ing|ed)?\b"
        r"(?: \w+){0,3} (?:files?|streams?|archives?|tables?|[rw]specifier|path|folder|directory)\b",
        "config_error",
        sample="ERROR (nnet3-init:Input():kaldi-io.cc:756) Error opening input stream exp/lda.mat",
        near="the input stream exp/lda.mat was opened",
        confidence=0.55,
    ),
    _program(
        "device-libraries",
        r"(?<!::)\b(?:cuda|cu|hip|cublas|cudnn|nvrtc|cufft|curand|cusolver|cusparse|nvjitlink|nvml|rsmi|rocblas|miopen|hsa|rccl"
        r"|nccl)_?"
        r"(?:error|status|result|failure)|\b(?:cuda|hip) (?:error|failure)|\bCU(?:DA|BLAS|DNN|FFT|RAND|SOLVER|SPARSE)_",
        "config_error",
        sample="CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH",
        near="cuda 13.1 is installed",
        confidence=0.6,
    ),
    _program(
        "parsed-settings",
        r"\b(?:Scanner|Parser|Constructor|Composer|Representer|Emitter|TOMLDecode|MissingSectionHeader|Interpolation\w*"
        r"|ConfigAttribute"
        r"|ConfigKey|ConfigType|Validation)(?:Error|Exception)\b|\bwhile (?:parsing|scanning|constructing) (?:a|an|the)\b",
        "config_error",
        sample="yaml.scanner.ScannerError: while scanning a simple key",
        near="the parser has ended",
        confidence=0.7,
    ),
    _program(
        "files-of-the-system",
        r"(?:^|[\s'\"`(=:])/(?:etc|var|run|usr|lib64|lib|proc|sys|boot)/.{0,160}(?:no such file|not found|does not exist"
        r"|permission denied)"
        r"|\b(?:not found|no such file|missing|cannot stat|couldn't (?:open|stat))\b.{0,60}/(?:etc|sys|proc|usr|run|lib64?)/",
        "config_error",
        sample="topod: error: Domain socket directory /var/spool/topod: No such file or directory",
        near="loader: error: Domain socket directory /data/spool/topod: No such file or directory",
        confidence=0.55,
    ),
    _program(
        "job-commands",
        r"\b(?:srun|sbatch|salloc|scontrol|slurm\w*|qsub|bsub|mpirun|mpiexec|prterun|prun|kubectl|ray)(?:-\w+)?: (?:error"
        r"|fatal)\b"
        r"(?!.{0,60}\b(?:exit|node|task|signal|kill))",
        "config_error",
        sample="sbatch: error: Invalid qos specification",
        near="sbatch: submitted batch job 812",
        confidence=0.55,
    ),
    _program(
        "build-or-arguments",
        r"\b(?:undefined symbol|shared object|version .{0,40}not found|unrecognized (?:argument|option)|unknown (?:argument"
        r"|option|key|flag)"
        r"|missing required|is required|usage(?=: )|no module named|command not found|not installed|no such (?:option|command)"
        r"|unsupported|exec format error|cannot execute"
        r"|must be|not supported|invalid (?:argument|value|option|config\w*|choice|parameter)|incompatible)\b",
        "config_error",
        sample="launcher: unrecognized option '--nodes'",
        near="all options are known",
        confidence=0.65,
    ),
    Family(
        "connection",
        r"\b(?:connection (?:reset|refused|closed|aborted|lost|timed out)|broken pipe|no route to host"
        r"|network is (?:unreachable|down)"
        r"|host is (?:down|unreachable)|socket (?:closed|error|hang up)|peer (?:died|lost|closed|gone|disconnected)"
        r"|lost peer)\b",
        "nccl_network",
        layer="network",
        scope="fabric",
        sample="rank 3: the transport reports a broken pipe",
        near="3 connections are open",
        confidence=0.5,
    ),
    # ---- how processes ended
    _ended(
        "signal",
        r"\b(?:segmentation fault|sig(?:segv|abrt|bus|ill|fpe|trap|kill)|signal[: ]{1,3}(?:\(?sig)?(?:4|5|6|7|8|9|11)\b"
        r"|bus error|core dumped"
        r"|illegal instruction|floating point exception|aborted \(|terminate called|double free|stack smashing"
        r"|\*\*\* process received signal)",
        sample="rank 4 ended by signal 11",
        near="signal handlers are installed",
    ),
    _ended(
        "non-zero-exit",
        r"\b(?:exit(?:ed|s|ing)? ?(?:with |status |code |value )?(?:a |an )?(?:non-?zero )?(?:exit )?(?:code|status"
        r"|value)?[ :=]{0,3}-?[1-9]\d{0,2}"
        r"|exitcode[ :=]{1,3}-?[1-9]|non-?zero (?:exit )?(?:code|status)|return(?:ed)? code[ :=]{1,3}-?[1-9])\b",
        sample="srun: error: n3: task 4: Exited with exit code 7",
        near="all tasks exited with exit code 0",
    ),
    _ended(
        "worker-gone",
        r"\b(?:worker|actor|task|process|executor|child|container|pod|rank|replica|job|trial|trainer|replica ?group"
        r"|subprocess)s?\b.{0,80}"
        r"\b(?:died|dead|killed|crash\w*|exited|terminated|unexpectedly|failed|failure|lost|gone|aborted|unavailable"
        r"|unreachable|stopped)\b"
        r"|\b(?:lost|losing) (?:worker|actor|executor|rank|replica)\b|\bCrashLoopBackOff\b",
        sample="The actor died unexpectedly before it finished this task",
        near="3 workers have joined",
    ),
)  # fmt: skip


def family_of(text: str) -> Family | None:
    """Return the family of a line at error level; None where nothing shows who wrote it, or about what."""
    return next((family for family in FAMILIES if family.regex.search(text)), None)
