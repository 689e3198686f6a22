"""Collective libraries beside NCCL, and frameworks above them: connections that failed, collectives that ran out of time."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_network = partial(Signature, fault="nccl_network", layer="network", scope="fabric")
_collective = partial(Signature, fault="nccl_timeout", layer="collective", scope="rank")
_settings = partial(Signature, fault="config_error", layer="program", scope="user")

COLLECTIVE_LIBRARIES = (
    _network(
        "completion-with-error",
        r"\b(?:transport|RNR) retry (?:counter|count) exceeded\b|\bIBV_WC_(?:RNR_)?RETRY_EXC_ERR\b"
        r"|\b(?:wc\.|wc_|work completion )status ?[=:(] ?(?:12|13|10|4|9)\b|\bFailed status (?:12|13|10|4|9): wr_id \d"
        r"|\bWC error: (?:status )?(?:12|13|10|9|4)\b|\b(?:RETRY_EXC|RNR_RETRY_EXC|REM_ACCESS|REM_OP|LOC_PROT|FATAL)_ERR\b"
        r"|\b[Ff]ailed to modify QP to (?:INIT|RTR|RTS)\b|\bGot CQE with error\b|\bDEVICE_FATAL\b"
        r"|\b(?:psm[23]|psmx[23])_\w+.{0,60}\bretur?ned error\b|\bPSM[23] can't open hfi unit|\bPSM[23]_(?:EP_NO_\w+|TIMEOUT"
        r"|EPID_\w*(?:UNREACHABLE|UNKNOWN|NETWORK_ERROR))\b"
        r"|\bCompletion with error at (?:client|server)\b|\bBad CQ status: [1-9]|\bretry count between two MPI processes has been"
        # Slingshot: the retry handler, and its results.
        r"|\bgiving up after \d+ retries, timing out connection|\bC_RC_(?:UNDELIVERABLE|UNRELIABLE)\b"
        r"|\bCassini Event Queue overflow detected\b|\bcxip_\w+\(\):\d+<warn>.{0,120}\bevent queue overrun\b",
        source="verbs: names of completions that failed; perftest; Open MPI, btl openib; HPE Slingshot, cxi_rh and libfabric's cxi",
        sample="[handle_cqe] Msg from 31: wc.status=12 (transport retry counter exceeded), wc.wr_id=0x1b40060",
        near="[handle_cqe] Msg from 31: wc.status=0 (success), retry count 7",
    ),
    _network(
        "expert-parallel-connection",
        r"\bNIXL_ERR_(?:REMOTE_DISCONNECT|BACKEND|CANCELED)\b|\bnixl(?:RemoteDisconnect|Backend|Cancel\w*)Error\b"
        r"|\bnvshmem\w*/\S{0,120}\b(?:ib\w*|transport\w*|connect\w*|libfabric|ucx)\.\w{1,4}:\d+: (?:NULL value|non-zero status)"
        r"|\bsrc/\S{0,80}/(?:ib\w*|transport\w*|libfabric|ucx)\.(?:cpp|cu|c):\d+: (?:NULL value|non-zero status: \d+)"
        r"|\bKeepAliveTimedOut\b|\b[Kk]eep-?[Aa]live (?:watchdog )?(?:fired|timed out)\b"
        r"|\bmscclpp::IbError\b|\bIbError: a call to ibv_\w+",
        source="NIXL, nixl_types.h; NVSHMEM, its macros for errors in transports; MSCCL++",
        sample="postXferReq: NIXL_ERR_REMOTE_DISCONNECT: remote agent decode-3 disconnected",
        near="postXferReq: NIXL_IN_PROG: remote agent decode-3 is connected",
    ),
    _network(
        "tpu-network",
        r"\bMegaScale Error\b|\bDCN (?:transfer|send|recv|receive|connection|network)\b.{0,120}"
        r"\b(?:failed|DEADLINE_EXCEEDED|UNAVAILABLE|timed out|unreachable)\b"
        r"|\bICI (?:link|links|network|port|router|fabric)\b.{0,60}\b(?:is |are |went )?(?:down|failed|failure|unhealthy|lost)\b",
        source="megascale and the drivers of TPUs: networks between slices and chips",
        sample="MegaScale Error: DCN transfer to slice 3 host 12 failed: DEADLINE_EXCEEDED after 600s",
        near="DCN transfer to slice 3 host 12 done; ICI links are up",
    ),
    _network(
        "peer-of-service-gone",
        r"\bunexpectedly tried to connect with a different incarnation\b|\bCluster check alive failed\b"
        r"|\b[Ff]ailed to send RPC to coordination service\b|\bleader task was preempted/died/restarted unexpectedly\b"
        r"|/task:\d+ is down, check your network\b|\btasks? (?:is|are) unhealthy \(stopped sending heartbeats\)"
        r"|\bnode (?:id: ?\S{1,40}|\S{1,60}:\d{2,5}) is timeout\b"
        r"|\bNode [WSH]\[\d+\] is dead\b|\bcheck health failed: peers?\b|\bWorker failed to heartbeat for \d"
        r"|\bHeartbeat of (?:TaskManager|ResourceManager|JobManager) with id \S{1,80} timed out\b"
        r"|\bTaskManager\b.{0,80}\b(?:heartbeat timed out|no longer reachable)\b|\bExecutor heartbeat timed out after \d"
        r"|\bAssociation with remote system \[.{1,120}\] has failed\b"
        r"|\bheartbeat (?:is )?lost for \d+ ?s\b|\b\d+ dead nodes?: [A-Z]\[\d",
        fault="node_failure",
        layer="collective",
        scope="node",
        source="TensorFlow, coordination service and collectives; MindSpore, node manager; ps-lite; Flink, Akka, Spark, Dask",
        sample="/job:worker/replica:0/task:2 unexpectedly tried to connect with a different incarnation. It has likely restarted.",
        near="/job:worker/replica:0/task:2 has connected to coordination service. Incarnation: 9912",
    ),
    _network(
        "ras-reports-dead",
        r"\b\d+ job process(?:es)? (?:is|are) considered dead\b|\bMissing communicator data from \d+ job process",
        source="NCCL, ncclras: what its servers of status reports know of each other",
        sample="  DEAD: 8 job processes are considered dead (unreachable via the RAS network)",
        near="  all 32 job processes are considered alive",
    ),
    _collective(
        "ras-reports-mismatch",
        r"\bCommunicator ranks have different (?:collective operation counts|status)\b",
        source="NCCL, ncclras: some ranks launched fewer collectives",
        sample="  Communicator ranks have different collective operation counts",
        near="  Communicator ranks have the same collective operation counts",
    ),
    _collective(
        "expert-parallel-timeout",
        r"\bDeepEP (?:timeout\b|(?:\w+ ){1,6}timeout\b|error: .{0,40}\b(?:timeout|timed out)\b)",
        # A kernel that ran out of time traps, and CUDA reports that as an error of a launch.
        layer="link",
        source="DeepEP, csrc: its kernels and the host wait for counters of other ranks",
        sample="DeepEP dispatch forwarder timeout (RDMA check), channel: 7, RDMA: 1, nvl: 3, dst NVL: 2",
        near="DeepEP dispatch of 4096 tokens took 210 us",
    ),
    _collective(
        "collective-out-of-time",
        r"\b(?:[Bb]arrier|[Aa]ll_?[Rr]educe|ALLREDUCE|[Aa]ll_?[Gg]ather|ALLGATHER|[Rr]educe_?[Ss]catter|REDUCE_?SCATTER"
        r"|[Bb]roadcast"
        r"|BROADCAST|[Aa]ll_?[Tt]o_?[Aa]ll|ALLTOALL|[Cc]ollectives?|[Ss]end_?[Rr]ecv)\b.{0,60}\b(?:(?:has |have )?timed out"
        r"|timeout"
        r" (?:after|expired|exceeded|reached)|did not (?:complete|finish|return) (?:in|within|after) \d"
        r"|for more than \d+ (?:seconds|minutes|s\b))"
        r"|\b(?:ALLREDUCE|ALLGATHER|REDUCE_SCATTER|ALLTOALL|BROADCAST|[Cc]ollective|[Bb]arrier|[Aa]ll_?[Rr]educe"
        r"|[Aa]ll_?[Gg]ather)\b.{0,60}"
        r"\b(?:has been|is|was) (?:running|pending|outstanding|in flight|waiting) for (?:over |more than )?(?:\d{3,5} ?(?:s"
        r"|sec|seconds)|\d{2,} min\w*|\d{6,} ?ms)\b"
        r"|\b[BX]KCL operation timed out\b|\bstarted but not finished: task \w"
        r"|\b[Rr]anks? [\d, ]{1,60}(?:has|have|did) (?:not|never) (?:yet )?(?:reach|enter|join|arrive|call|launch)\w*\b.{0,60}"
        r"\b(?:barrier|collective|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|after \d|within \d|for \d)"
        r"|\b[Tt]imed out (?:after .{1,30} )?waiting (?:for|on) (?:all |other |the |remaining |missing |some )?ranks?\b",
        source="collective libraries of accelerators, parameter servers and trainers, in the words of their calls",
        sample="watchdog: all_gather of group 3 timed out after 600 s on rank 7",
        near="all_gather of group 3 took 6 s on rank 7",
    ),
    _settings(
        "interface-not-there",
        r"\bcan'?t find interface \S+ to get host IP|\b[Uu]nable to find address for: ?\S"
        r"|\bno (?:socket )?interface(?:s)? (?:found|named"
        r"|matching|match)\b|\b(?:[Nn]etwork )?[Ii]nterface \S{1,20} (?:does not exist|was not found|not found)\b"
        r"|\bUnable to find a set of common task-to-task communication interfaces\b"
        r"|\bno data available.{0,40}\bfi_getinfo\b",
        source="oneCCL, internal_kvs_server.cpp; gloo, tcp/device.cc; NCCL, bootstrap.cc; Horovod, its driver service",
        sample="internal_kvs_server.cpp:66 fill_local_host_ip: can't find interface ib2 to get host IP",
        near="internal_kvs_server.cpp:70 fill_local_host_ip: use ib2:10.0.3.1",
    ),
    _network(
        "link-domain-down",
        r"\bIMEX domain (?:is |state: ?)?(?:DOWN|DEGRADED)\b|\b[Dd]omain [Ss]tate: ?(?:DOWN|DEGRADED)\b",
        fault="nvlink_error",
        layer="link",
        source="NVIDIA IMEX, its service and nvidia-imex-ctl: nodes of one domain of NVLink that do not reach each other",
        sample="nvidia-imex[3311]: Node 3 status changed: CONNECTED -> DISCONNECTED; domain state: DEGRADED",
        near="nvidia-imex[3311]: Node 3 status changed: DISCONNECTED -> CONNECTED; domain state: UP",
    ),
    _collective(
        "hccl-task-late",
        r"\bhccl fftsplus task timeout occurred\b|\bNotify wait execute failed\b|\bhccl (?:task|op|operator) timeout\b",
        source="Ascend, runtime and HCCL: a task waits for the notice of another rank",
        sample="serial number is 17, hccl fftsplus task timeout occurred during task execution, stream_id:7",
        near="hccl fftsplus task was submitted, stream_id:7",
    ),
)
