"""Lines about lost or failed connections between ranks, and about collectives that timed out."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_NCCL = "NCCL, transport and misc"
_C10D = "PyTorch, torch/csrc/distributed/c10d"

_network = partial(Signature, fault="nccl_network", layer="network", scope="fabric")
_collective = partial(Signature, fault="nccl_timeout", layer="collective", scope="rank")

NETWORK = (
    _network(
        "ib-completion-error",
        r"NET/IB ?: Got completion from peer (?P<peer>[\w.:\[\]-]+?)(?:<\d+>)? with (?:error|"
        r"status=\S*?\(?)\s*(?:12|10|9|4|13)\b",
        source=_NCCL + ", net_ib.cc: retries were exhausted, or the peer is not there",
        sample="NCCL WARN NET/IB : Got completion from peer 10.9.8.7<41234> with error 12, opcode 0, len 0, vendor err 129",
        near="NCCL WARN NET/IB : Got completion from peer 10.9.8.7<41234> with error 5, opcode 0, len 0, vendor err 249",
    ),
    _network(
        "ib-completion-flushed",
        r"NET/IB ?: Got completion from peer \S* ?with (?:error|status=\S*?\(?)\s*5\b",
        layer="consequence",
        source=_NCCL + ", net_ib.cc: work was flushed, since the connection had failed before",
        sample="NET/IB : Got completion from peer 10.9.8.7<41234> with error 5, opcode 0, len 0, vendor err 249",
        near="NET/IB : Got completion from peer 10.9.8.7<41234> with error 12, opcode 0, len 0, vendor err 129",
    ),
    _network(
        "ib-port-event",
        r"NET/IB ?: (?:\S+:\d+ )?(?:async fatal event|Got (?:non-fatal )?async (?:error )?event ?: ?(?:device fatal"
        # As ibv_event_type_str names errors of a device or a queue.
        r"|(?:(?:CQ|WQ|SRQ|local|work|queue|invalid|request|access|violation|fatal|catastrophic|path|migration) )+error))"
        r"|ibv_(?:modify_qp|reg_mr\w*|poll_cq|create_qp|post_send) failed"
        r"|Call to ibv_\w+ failed|ibv_\w+ failed with error"
        r"|libfabric:\S+:cq:\w*(?:handle|write)_\w*err(?:or)?\w*\(\):\d+<warn>"
        r"|NET/OFI .{0,160}completed with error",
        source=_NCCL + ", ibvwrap.cc; libfabric, completions of its providers; aws-ofi-nccl",
        sample="NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        near="NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB eth0:10.0.0.4<0>",
    ),
    _network(
        "fabric-call-failed",
        r"\b(?:MPIDI?U?_OFI\w*|MPIDI_UCX\w*|OFI poll|fi_(?:cq|eq)_read\w*|fi_(?:send|recv|read|write)\w*|ucp_\w+|uct_\w+"
        # UCX: a memory domain, and Open MPI's layer above it.
        r"|on md\[\d+\]=\w+|pml_ucx\.c:\d+ +Error|ibv_\w+|psm[23]_\w+|cxip?_\w+)\b.{0,200}"
        r"\b(?:failed|[Ii]nput/output error|timed out|[Uu]nreachable|[Nn]o such device)",
        source="MPICH's netmods, libfabric, UCX, verbs, PSM: errors of calls into the fabric, in the words of errno",
        sample="MPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error)",
        near="MPIDI_OFI_mpi_init_hook: provider tcp;ofi_rxm was chosen",
    ),
    _network(
        "fabric-frames",
        r"\buct_(?:ib_mlx5_completion_with_err|(?:dc|rc|ud)\w*_(?:ep_handle_failure|handle_failure|handle_timeout|err_handler)"
        r"|tcp_\w*(?:ep_failed|handle_\w*err\w*))|\bucp_(?:worker_iface_err_handler|ep_set_failed)\w*",
        source="UCX: the functions in a backtrace that handle a failed completion",
        sample="[r7n14:27251] [ 6] /lib/ucx/libuct_ib.so.0(uct_ib_mlx5_completion_with_err+0x24c)[0x2aed0a50e52c]",
        near="[r7n14:27251] [ 6] /lib/ucx/libuct_ib.so.0(uct_ib_mlx5_poll_cq+0x24c)[0x2aed0a50e52c]",
    ),
    _network(
        "ib-call-repeated",
        r"Call to ibv_\w+ failed .*, retrying \d+/\d+",
        fault="",
        weight="benign",
        source=_NCCL + ", ibvwrap.cc: the call is made again",
        sample="NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, retrying 1/34 after 100 "
        "msec of sleep",
        near="NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
    ),
    _network(
        "nic-failed",
        r"mlx5_core \S+ .*(?:device's health compromised|Fatal error \d+ detected|"
        r"wait_func.*timeout\. Will cause a leak|"
        r"(?:2RST_QP|DESTROY_QP|CREATE_QP|RST2INIT_QP|INIT2RTR_QP|RTR2RTS_QP|"
        r"MODIFY_QP)\S* .*failed, status|synd(?:rome)? 0x[1-9a-f])"
        r"|mlx5_ib: modify QP \S+ .*failed|infiniband \S+: .*failed"
        r"|NETDEV WATCHDOG: .*transmit queue \d+ timed out|Port module event\[error\]"
        r"|(?:ena|efa) .*(?:Admin queue is closed|didn't send any completion)"
        r"|\b(?:mlx[45]_(?:core|ib|en)|bnxt_(?:en|re)|irdma|hfi1|ionic|ice|i40e|ena|efa|"
        r"qede) \S+.*(?:\b|_)(?:timeout[:!.,]|timed out|fatal|health (?:compromised|poll failed)|"
        r"[Ff]ailed, status|reset (?:failed|due))"
        r"|nvidia[-_]peermem.*ERROR"
        r"|mlx5_core \S+ .*(?:print_health_info|assert_var|Internal error|"
        r"recover\w* (?:flow|failed)|error state)"
        r"|\b\w+_tx_timeout\b|TX timeout"
        r"|(?:kernel BUG at|WARNING: CPU: \d+ PID: \d+ at) drivers/(?:infiniband|net/ethernet)/",
        scope="node",
        source="Linux, drivers/net/ethernet/mellanox, drivers/infiniband",
        sample="mlx5_core 0000:c2:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
        near="mlx5_core 0000:c2:00.0: Port module event: module 0, Cable plugged",
    ),
    _network(
        "link-down",
        r"\b(?P<subject>(?:ib|en|eth|rdma|bond|mlx)\w*): (?:.*: )?(?:Lost carrier|Link [Dd]own|"
        r"NIC Link is Down)|(?:\blink status down for interface |\bbond\w*: \(slave )(?P<port>\w+)(?:, disabling it|\): link is not"
        r" ready)"
        r"|\bIB port \S+ .*(?:DOWN|down)\b|NET/IB ?: speed change detected"
        r"|\bmlx5_core (?P<target>[0-9a-f:.]{7,16}): Port module event: module \d+, Cable unplugged",
        scope="node",
        weight="supporting",
        role="interrupted",
        source="Linux, network drivers; NCCL: a link that is up again did nothing, unless collectives wait for what was lost",
        sample="mlx5_core 0000:c2:00.0 ens3f0np0: Link down",
        near="mlx5_core 0000:c2:00.0 ens3f0np0: Link up",
    ),
    _network(
        "link-up",
        r"\b(?P<subject>(?:ib|en|eth|rdma|bond|mlx)\w*): (?:.*: )?(?:Gained carrier|Link [Uu]p\b|"
        r"NIC Link is [Uu]p|[Ll]ink becomes ready)"
        r"|\bIB port \S+ .*(?:ACTIVE|active)\b"
        r"|\bmlx5_core (?P<target>[0-9a-f:.]{7,16}): Port module event: module \d+, Cable plugged",
        scope="node",
        weight="supporting",
        role="cleared",
        source="Linux, network drivers",
        sample="mlx5_core 0000:c2:00.0 ens3f0np0: Link up",
        near="mlx5_core 0000:c2:00.0 ens3f0np0: Link down",
    ),
    _network(
        "nccl-port-error",
        r"NET/IB ?: (?:(?P<subject>\S+) )?Got (?:non-fatal )?async (?:error )?event ?: ?port error",
        role="interrupted",
        source=_NCCL + ", net_ib.cc: its thread for events; a device that it uses lost its link",
        sample="NCCL WARN NET/IB : Got async event : port error",
        near="NCCL WARN NET/IB : Got async event : port active",
    ),
    _network(
        "nccl-port-active",
        r"NET/IB ?: (?:(?P<subject>\S+) )?Got (?:non-fatal )?async (?:error )?event ?: ?port active",
        weight="supporting",
        role="cleared",
        source=_NCCL + ", net_ib.cc: the link is up again",
        sample="NCCL WARN NET/IB : mlx5_0:1 Got async event : port active",
        near="NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
    ),
    _network(
        "bond-port-down",
        r"\bbond\S*: \((?:slave|port) (?P<subject>[\w.\-]+)\): link status definitely down"
        r"|\bbond\S*: link status definitely down for interface (?P<target>[\w.\-]+)",
        scope="node",
        role="interrupted",
        source="Linux, drivers/net/bonding: it was up before",
        sample="bond0: (slave ens3f0np0): link status definitely down, disabling slave",
        near="bond0: (slave ens3f0np0): Enslaving as a backup interface with a down link",
    ),
    _network(
        "bond-port-up",
        r"\bbond\S*: \((?:slave|port) (?P<subject>[\w.\-]+)\): link status (?:definitely )?up"
        r"|\bbond\S*: link status (?:definitely )?up for interface (?P<target>[\w.\-]+)",
        scope="node",
        weight="supporting",
        role="cleared",
        source="Linux, drivers/net/bonding",
        sample="bond0: (slave ens3f0np0): link status definitely up, 100000 Mbps full duplex",
        near="bond0: (slave ens3f0np0): link status definitely down, disabling slave",
    ),
    _network(
        "nccl-no-connection",
        r"NCCL WARN (?:NET/Socket|Call to (?:connect|recv|send|bind|accept)\w*).*(?:refused|"
        r"timed out|No route|unreachable|[Ff]ailed)"
        r"|NCCL WARN .*(?:No route to host|Network is unreachable|Connection timed out)"
        r"|ncclSystemError|unhandled system error|ncclInternalError: Internal check failed"
        r"|stopped sending heartbeats"
        r"|detected missing heartbeats",
        source=_NCCL + ", socket.cc",
        sample="NCCL WARN Call to connect to 10.1.2.3<50213> failed : No route to host",
        near="NCCL INFO Call to connect returned Connection refused, retrying",
    ),
    _network(
        "rendezvous-failed",
        r"\[c10d\].{0,160}(?:cannot be retrieved|"
        r"has (?:timed out|failed to (?:connect|listen|bind))|failed to (?:connect|listen|bind))"
        r"|[Cc]lient socket has (?:timed out|failed)|[Ss]erver socket has failed|DistNetworkError"
        r"|DistStoreError|Rendezvous(?:Connection|Timeout|Closed|State)?Error|EADDRINUSE"
        r"|[Aa]ddress already in use|Name or service not known"
        r"|Temporary failure in name resolution"
        r"|[Tt]imed out (?:after \d+ seconds )?waiting for clients|wait timeout after \d+ms, keys"
        r"|Gloo connectFullMesh failed|rendezvous .{0,60}(?:failed|timed out)"
        r"|failed to send a keep-alive heartbeat to the rendezvous"
        r"|DEADLINE_EXCEEDED.*(?:barrier|[Bb]arrier|[Cc]oordination)|Barrier timed out"
        r"|Unable to (?:resolve|connect to) .*(?:master|coordinator)"
        r"|store based barrier.{0,80}(?:timed out|[Tt]imeout)"
        r"|[Tt]imed out initializing process group|socket\.gaierror"
        r"|TCPStore.{0,120}(?:refused|timed out|failed)"
        # Older stores, and the store through which NCCL's id is exchanged.
        r"|RuntimeError: Socket Timeout\b|\bconnect\(\) timed out\. Original timeout was \d"
        r"|\bretrieving ncclUniqueId from \[\d+\] (?:via c10d|through)"
        r"|could not be resolved|Could not resolve host|XlaRuntimeError: DEADLINE_EXCEEDED"
        r"|[Ff]ailed to connect to (?:the )?(?:remote )?(?:server|host|coordinator|master)\b.{0,60}(?:grpc|tcp|:\d{2,5}\b)"
        r"|Fatal error in (?:internal_)?P?MPI_Init(?:_thread)?: |looks like MPI_INIT failed|An error occurred in MPI_Init\b"
        r"|ssh: connect to host .*(?:refused|timed out)",
        fault="rendezvous",
        source=_C10D + ", socket.cpp, TCPStore; JAX, coordination service",
        sample="torch.distributed.DistNetworkError: The client socket has timed out after 600s "
        "while trying to connect to (n1, 29500).",
        near="rendezvous completed for all 16 nodes on port 29500",
    ),
    _collective(
        "watchdog-timeout",
        r"\[Rank (?P<rank>\d+)\].{0,40}[Cc]aught collective operation timeout: WorkNCCL\("
        r"(?:SeqNum=(?P<sequence>\d+), )?OpType=(?P<operation>\w+)(?:, NumelIn=(?P<numel>\d+))?"
        r"(?:.{0,80}Timeout\(ms\)=(?P<timeout_ms>\d+))?",
        role="waited-in-vain",
        source=_C10D + ", ProcessGroupNCCL.cpp",
        sample="[Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, "
        "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600011 "
        "milliseconds before timing out.",
        near="[Rank 6] watchdog thread started, timeout 600000 ms",
    ),
    _collective(
        "desynchronised",
        r"\[(?P<late>\d+)\] finished collective #\d+, but didn't join collective #\d+",
        source=_C10D + ", TraceUtils.h: names the ranks that did not come",
        sample="    [3] finished collective #41, but didn't join collective #42 (count from 1)",
        near="    [3] finished collective #41 and joined collective #42",
    ),
    _collective(
        "collective-timeout",
        r"Some NCCL operations have failed or timed out|Timeout at collective"
        r"|(?:collective|NCCL) operation.{0,30}timed? ?out|ProcessGroupNCCL's watchdog got stuck"
        r"|Future for ProcessGroup (?:abort|shutdown) timed out"
        r"|heartbeat monitor timed out|Timed out waiting \d+ ?ms for (?:recv|send) operation"
        r"|monitoredBarrier.*(?:failed|timed out)|NCCL timeout(?: after| expired| occurred|!)"
        r"|Timeout\(ms\)=\d+\) ran for|Timeout waiting for key: \S+"
        r"|DistBackendError.{0,200}(?:[Tt]imed out|[Tt]imeout)"
        r"|Expected \d+ threads to join the rendezvous|Termination timeout of \d+",
        source=_C10D + "; gloo",
        sample="RuntimeError: [gloo] Timed out waiting 1800000ms for recv operation to complete",
        near="all NCCL operations are done; the limit is 1800000 ms",
    ),
    _collective(
        "hang-reported",
        r"\b(?:[Tt]raining|[Jj]ob|[Pp]rocess|[Ww]orker|[Rr]ank)s?(?: \d+)? (?:is |has been |"
        r"seems |appears )?(?:hanging|hangs|hung|stuck)\b"
        r"|[Hh]ang detected"
        r"|\b[Nn]o (?:progress|heartbeat)(?: was)?(?: made| received| seen)? (?:for|in|since) \d+"
        r"|made no progress (?:for|in) \d+|no rank has reported progress|last heartbeat \d+ ?s ago"
        r"|(?:appears|seems) to be stalled|no new (?:step|iteration) in \d+"
        r"|^Timeout \(\d+:\d\d:\d\d\)!",
        fault="hang_no_error",
        source="watchdogs of several launchers and trainers",
        sample="[monitor] training hung: no step since 1834 s, restarting",
        near="This can potentially cause a hang if this rank to GPU mapping is incorrect.",
    ),
    _network(
        "grpc-stream-lost",
        r"\"grpc_status\":14\b|\b(?:Unavailable|UNAVAILABLE)(?:Error)?: (?:\{\"created\"|Socket closed|[Cc]onnection reset|OS"
        r" Error|Endpoint read failed"
        r"|Stream removed|Transport closed|GOAWAY|EOF\b|failed to connect|recvmsg:|Broken pipe)"
        r"|\bUnavailableError\b.{0,300}(?:grpc|Socket closed|[Cc]onnection reset|EOF\b)",
        layer="collective",
        source="gRPC, below TensorFlow's sessions, parameter servers and coordination service: the task at the other end is gone",
        sample='W op_kernel.cc:993] Unavailable: {"created":"@1487751897.19","description":"EOF","grpc_status":14}',
        near="UNAVAILABLE: 0 tasks are not available",
    ),
    _network(
        "peer-gone",
        r"socketProgress: Connection closed by remote peer (?P<peer>[\w.:-]+)"
        r"|ncclRemoteError|Connection (?:closed|reset) by (?:remote )?peer|ConnectionResetError"
        r"|BrokenPipeError|\[Errno (?:32|104)\]|NCCL communicator was aborted"
        r"|ProcessGroup.*aborted|DistBackendError(?:[^'\w]|$)"
        r"|NET/IB ?: Got completion from peer \S+ with (?:error|status=\S*?\(?)\s*5\b",
        layer="collective",
        source=_NCCL + "; errno(3): what is left of a peer that died",
        sample="NCCL WARN socketProgress: Connection closed by remote peer n7<54012>",
        near="NCCL INFO connection to peer n7<54012> is ready",
    ),
)
