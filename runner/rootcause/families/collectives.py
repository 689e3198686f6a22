"""NCCL and RCCL, by source file."""

from runner.rootcause.families.family import TROUBLE, Family, nccl

COLLECTIVES = (
    nccl(
        "nccl-network",
        r"\b(?:transport/(?:net\w*|generic)|net_ib\w*|net_socket|socket|ib(?:v\w*|vwrap)|gdr\w*|bootstrap|proxy|net_plugin"
        r"|net_v\d+|ras\w*"
        r"|gin\w*|coll_net)\.cc:\d+.{0,20}(?:NCCL|RCCL) WARN|(?:NCCL|RCCL) WARN.{0,40}\b(?:NET|IB|OFI|socket|connect|peer)\b",
        "nccl_network",
        sample="n1:812:901 [3] transport/net_ib.cc:1295 NCCL WARN a completion with an error that is not listed",
        confidence=0.7,
    ),
    nccl(
        "nccl-links",
        r"\b(?:nvls\w*|mnnvl|transport/nvls)\.cc:\d+.{0,20}(?:NCCL|RCCL) WARN",
        "nvlink_error",
        layer="link",
        scope="gpu",
        sample="n1:812:901 [3] transport/nvls.cc:203 NCCL WARN multicast could not be bound",
        confidence=0.5,
    ),
    nccl(
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
        r"\b(?:collective|all_?reduce|all_?gather|reduce_?scatter|broadcast|\w*barrier|watchdog|nccl\w*|rccl\w*|hccl\w*|xccl\w*"
        r"|bkcl|cncl|mccl|eccl|hcl|oneccl|flagcx|deep_?ep|gloo)\b.{0,120}"
        # Not a setting that is printed.
        r"\b(?:timed ?out|time ?out(?!\w*[\"']| is | set to )|deadline exceeded)\b"
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
        r"\b(?:rendezvous|rdzv|etcd\w*|tcp_?store|coordinat(?:or|ion service)|master (?:addr|port)|init_process_group"
        r"|process group|lighthouse|quorum|meta server|cluster topology|internal_kvs\w*|kvs)\b.{0,120}"
        r"\b(?:fail\w*|timed ?out|time ?out(?!\w*[\"'])|closed|refused|unreachable|unavailable|in use|never|lost|could not"
        r"|cannot|unable"
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
    nccl(
        "collective-libraries",
        r"\b(?:NCCL|RCCL|libfabric|ofi|efa|ucx|ucp|uct|ibv_\w+|verbs|rdma\w*|infiniband|roce|gloo|openib|psm\d|cxi|(?-i:SHARP"
        r"|sharp:)"
        r"|hcoll|ucc|nvshmem|nixl\w*|mooncake|sharp_\w+|megascale|mscclpp|oneccl|hsn\d|gloo/transport/\w+)\b"
        r"(?=" + TROUBLE + r")|\bgloo/transport/\w+/\w+\.cc:\d+|\bWARN\b.{0,20}\bNET/|\b(?:NCCL|RCCL) (?:WARN|ERROR)"
        r"|\blibfabric:\d+",
        "nccl_network",
        sample="libfabric:812:1727440000:efa:ep_ctrl:efa_rdm_ep_close(): an endpoint failed to drain",
        confidence=0.55,
    ),
)  # fmt: skip
