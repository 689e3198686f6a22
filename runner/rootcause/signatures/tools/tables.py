"""Lines of tables that tools print: nvidia-smi, ibstat, sinfo, df and the like, pasted into a log or printed by a job's script.

None lasts: a job that prints one before its steps, and makes steps, is healthy.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_SMI = "nvidia-smi, its table and -q"
_IB = "infiniband-diags, ibstat and ibstatus; ibv_devinfo; ibdev2netdev"
_NHC = "LBNL Node Health Check, by the name of the check that failed"
_FAILED_CHECK = r"\b[Hh]ealth check failed: +check_(?:{0})"
_SLURM = "Slurm, sinfo and scontrol show node"

_gpu = partial(Signature, layer="device", scope="gpu")
_network = partial(Signature, fault="nccl_network", layer="network", scope="node")
_node = partial(Signature, fault="node_failure", layer="scheduler", scope="node")

TOOL_TABLES = (
    _gpu(
        "table-of-gpus-with-errors",
        r"\|\s*(?:ERR!|N/A|\d+%)?\s*ERR!\s+(?:ERR!|P\d+)\s+(?:ERR!|\d+W|N/A) / |\|\s+\d+\s+ERR!\s"
        # Of ROCm: files of the driver that are empty.
        r"|^Expected integer value from monitor, but got \"\""
        r"|\|\s+\d+\s+\S[^|]{0,40}\|\s+[0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+ \w+\s*\|\s+ERR!\s*\|",
        fault="gpu_lost",
        source=_SMI + ": no answer from the GPU",
        sample="|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |",
        near="| N/A   33C    P0    52W / 400W |      0MiB / 81920MiB |      0%      Default |",
    ),
    _gpu(
        "table-of-gpus-with-ecc",
        r"\|\s+[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\s+(?:On|Off)\s*\|\s+[1-9]\d*\s*\|",
        fault="gpu_ecc",
        source=_SMI + ": the column of volatile uncorrected errors",
        sample="|   1  NVIDIA A100-SXM...  On   | 00000000:0A:00.0 Off |                   12 |",
        near="|   1  NVIDIA A100-SXM...  On   | 00000000:0A:00.0 Off |                    0 |",
    ),
    _gpu(
        "ecc-counters",
        r"\b[DS]RAM Uncorrectable(?: Parity| SEC-DED)?\s*: [1-9]|\bSRAM Threshold Exceeded\s*: Yes"
        r"|\bPending Page Blacklist\s*: Yes|\b(?:Double Bit|Uncorrectable) ECC Errors?\s*: [1-9]"
        r"|\bremapped_rows\.(?:failure|pending)\s*[:,=] ?(?:Yes|1)\b"
        r"|\becc\.errors\.uncorrected\.\w+\.\w+\s*[:,=]\s*[1-9]",
        fault="gpu_ecc",
        source=_SMI,
        sample="            DRAM Uncorrectable                : 14",
        near="            DRAM Uncorrectable                : 0",
    ),
    _gpu(
        "ras-counters",
        r"\b(?:UMC|SDMA|GFX|MMHUB|HDP|DF|SMN|SEM|MP0|MP1|FUSE|MCA|VCN|JPEG|IH|MPIO) +(?:ENABLED|Y) +\d+ +[1-9]"
        r"|\bTOTAL_UNCORRECTABLE_COUNT: [1-9]|\bUNCORRECTABLE_COUNT: [1-9]",
        fault="gpu_ecc",
        source="rocm-smi --showrasinfo; amd-smi metric --ecc",
        sample="         UMC      ENABLED                 0                   3",
        near="         UMC      ENABLED                 4                   0",
    ),
    _gpu(
        "nvlink-inactive",
        r"\bLink \d+: <inactive>",
        fault="nvlink_error",
        layer="link",
        source="nvidia-smi nvlink --status",
        sample="         Link 1: <inactive>",
        near="         Link 1: 26.562 GB/s",
    ),
    _network(
        "port-down",
        r"\b[Pp]hys(?:ical)? state:\s+(?:\d: )?(?P<port>Polling|Disabled|Sleep|LinkErrorRecovery|PortConfigurationTraining|PhyTest)"
        r"|\bstate:\s+PORT_(?:DOWN|INIT) \(\d\)"
        r"|\bmlx5_\S+ port \d+ ==> \S+ \(Down\)|\bstate (?:DOWN|INIT) physical_state (?:POLLING|DISABLED|SLEEP)",
        role="interrupted",
        source=_IB + "; rdma link",
        sample="                Physical state: Polling",
        near="                Physical state: LinkUp",
    ),
    _node(
        "node-down-in-table",
        r"\b(?:up|inact|down) +(?:infinite|n/a|\d[\d:\-]*) +\d+ +(?:down|fail|failg|unk|boot)\*? +\S+[ \t\r]*$"
        r"|\bState=(?:DOWN|FAIL)\b|\bState=\S{0,60}(?:NOT_RESPONDING|\+FAIL\b)"
        r"|\bNotReady(?:,SchedulingDisabled)? +(?:\S+ +)?\d+[dhm]"
        r"|\bNodeStatusUnknown\b|Kubelet stopped posting node status",
        source=_SLURM + "; Kubernetes, kubectl get nodes and describe node",
        sample="gpu*         up   infinite      1  down* gpu017",
        near="gpu*         up   infinite     15  alloc gpu[001-015]",
    ),
    Signature(
        "file-system-full",
        r"(?:^|[\s:>\]])(?:/dev/(?:nvme|sd|vd|xvd|md|dm-|mapper/|root)\S*|tmpfs|shm|overlay|[\w.,@-]+:/?\S*)"
        r" +\S+ +\S+ +\S+ +100% +/",
        fault="filesystem",
        layer="machine",
        scope="storage",
        source="coreutils, df",
        sample="/dev/nvme0n1p2  1.8T  1.8T     0 100% /scratch",
        near="/dev/loop3       64M   64M     0 100% /snap/core20/1",
    ),
    Signature(
        "wrong-results",
        r"# Out of bounds values : [1-9]\d* FAILED",
        fault="unknown",
        layer="device",
        scope="node",
        source="nccl-tests and rccl-tests: collectives returned wrong data",
        sample="# Out of bounds values : 424 FAILED",
        near="# Out of bounds values : 0 OK",
    ),
    _network(
        "link-down-in-report",
        r"^[ \t]*Link detected: no\b|\b(?:The )?[Ll]ink status(?: is)?:? DOWN\b"
        r"|%(?:LINK|LINEPROTO|ETH\w*)-\d-\w*(?:UPDOWN|DOWN)\w*: .{0,60}\b[Ii]nterface (?P<subject>[\w/.\-]+)"
        r".{0,40}\b(?:to|is) down\b"
        r"|\bPort (?P<target>Ethernet\d+) oper state set from up to down\b",
        role="interrupted",
        source="ethtool; hccn_tool of Ascend; logs of switches: Cisco, Arista, SONiC",
        sample="%LINK-3-UPDOWN: Interface Ethernet1/12, changed state to down",
        near="%LINK-3-UPDOWN: Interface Ethernet1/12, changed state to up",
    ),
    _network(
        "link-up-in-report",
        r"%(?:LINK|LINEPROTO|ETH\w*)-\d-\w*UP\w*: .{0,60}\b[Ii]nterface (?P<subject>[\w/.\-]+).{0,40}\b(?:to|is) up\b"
        r"|\bPort (?P<target>Ethernet\d+) oper state set from down to up\b",
        role="cleared",
        weight="supporting",
        source="logs of switches: Cisco, Arista, SONiC",
        sample="%LINK-3-UPDOWN: Interface Ethernet1/12, changed state to up",
        near="%LINK-3-UPDOWN: Interface Ethernet1/12, changed state to down",
    ),
    _network(
        "node-check-of-network",
        _FAILED_CHECK.format(r"hw_(?:ib|eth|gm)|net_\w+"),
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 400 Gb/sec).",
        near="nhc:  Running check:  check_hw_ib 400",
    ),
    _gpu(
        "node-check-of-gpus",
        _FAILED_CHECK.format(r"nv\w*|gpu\w*|rocm\w*"),
        fault="gpu_xid_other",
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_nvsmi_healthmon:  nvidia-healthmon: problem found",
        near="nhc:  Running check:  check_nvsmi_healthmon",
    ),
    Signature(
        "node-check-of-files",
        _FAILED_CHECK.format(r"fs_\w+|file_\w+"),
        fault="filesystem",
        layer="machine",
        scope="storage",
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted",
        near="nhc:  Running check:  check_fs_mount_rw -f /scratch",
    ),
    Signature(
        "node-check-of-hardware",
        _FAILED_CHECK.format(
            r"hw_(?:phys\w*|mem\w*|swap\w*|cpu\w*|mce\w*|mcelog\w*)|dmi_\w+|ipmi_\w+"
        ),
        fault="host_hardware",
        layer="machine",
        scope="node",
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_hw_physmem:  Actual RAM size (1030 GB) less than minimum (2000 GB).",
        near="nhc:  Running check:  check_hw_physmem 2000GB 2000GB 5%",
    ),
)
