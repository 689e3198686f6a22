"""Lines about lost or failed connections between ranks, and about collectives that timed out."""

from __future__ import annotations

from functools import partial

from runner.rootcause.signatures.signature import Signature, any_of

_collective_rank = partial(Signature, layer="collective", scope="rank")
_network_fabric = partial(Signature, layer="network", scope="fabric")

_NCCL = "NCCL, transport and misc"
_C10D = "PyTorch, torch/csrc/distributed/c10d"

NETWORK = (
    _network_fabric(
        name="ib-completion-error",
        pattern=any_of(
            r"NET/IB ?: Got completion from peer (?P<peer>[\w.:\[\]-]+?)(?:<\d+>)? with (?:error|status=\S*?"
            r"\(?)\s*(?:12|10|9|4|13)\b",
        ),
        fault="nccl_network",
        source=_NCCL + ", net_ib.cc: retries were exhausted, or the peer is not there",
        sample="NCCL WARN NET/IB : Got completion from peer 10.9.8.7<41234> with error 12, opcode 0, len 0, vendor err 129",
        near="NCCL WARN NET/IB : Got completion from peer 10.9.8.7<41234> with error 5, opcode 0, len 0, vendor err 249",
    ),
    _network_fabric(
        name="ib-port-event",
        pattern=any_of(
            r"NET/IB ?: \S+:\d+ (?:async fatal event|Got async event ?: (?:port error|device fatal|local catas"
            r"trophic))",
            r"ibv_(?:modify_qp|reg_mr\w*|poll_cq|create_qp|post_send) failed",
            r"Call to ibv_\w+ failed",
            r"ibv_\w+ failed with error",
        ),
        fault="nccl_network",
        source=_NCCL + ", ibvwrap.cc",
        sample="NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        near="NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB eth0:10.0.0.4<0>",
    ),
    Signature(
        name="nic-failed",
        pattern=any_of(
            r"mlx5_core \S+ .*(?:device's health compromised|Fatal error \d+ detected|wait_func.*timeout\. Wil"
            r"l cause a leak|(?:2RST_QP|DESTROY_QP|CREATE_QP|RST2INIT_QP|INIT2RTR_QP|RTR2RTS_QP|MODIFY_QP)\S* "
            r".*failed, status|synd(?:rome)? 0x[1-9a-f])",
            r"mlx5_ib: modify QP \S+ .*failed",
            r"infiniband \S+: .*failed",
            r"NETDEV WATCHDOG: .*transmit queue \d+ timed out",
            r"Port module event\[error\]",
            r"(?:ena|efa) .*(?:Admin queue is closed|didn't send any completion)",
            r"\b(?:mlx[45]_(?:core|ib|en)|bnxt_(?:en|re)|irdma|hfi1|ionic|ice|i40e|ena|efa|qede) \S+.*\b"
            r"(?:timeout[:!.,]|timed out|fatal|health (?:compromised|poll failed)|[Ff]ailed, status|reset (?:failed|due))",
            r"nvidia[-_]peermem.*ERROR",
            r"mlx5_core \S+ .*(?:print_health_info|assert_var|Internal error|recover\w* (?:flow|failed)|error state)",
            r"\b\w+_tx_timeout\b|TX timeout",
            r"(?:kernel BUG at|WARNING: CPU: \d+ PID: \d+ at) drivers/(?:infiniband|net/ethernet)/",
        ),
        fault="nccl_network",
        layer="network",
        scope="node",
        source="Linux, drivers/net/ethernet/mellanox, drivers/infiniband",
        sample="mlx5_core 0000:c2:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
        near="mlx5_core 0000:c2:00.0: Port module event: module 0, Cable plugged",
    ),
    Signature(
        name="link-down",
        pattern=any_of(
            r"\b(?:ib|en|eth|rdma|bond|mlx)\w*: (?:.*: )?(?:Lost carrier|Link [Dd]own|NIC Link is Down|link is"
            r" not ready)",
            r"\bIB port \S+ .*(?:DOWN|down)\b",
            r"NET/IB ?: speed change detected",
        ),
        fault="nccl_network",
        layer="network",
        scope="node",
        weight="supporting",
        source="Linux, network drivers: a link that is up again at once did nothing",
        sample="mlx5_core 0000:c2:00.0 ens3f0np0: Link down",
        near="mlx5_core 0000:c2:00.0 ens3f0np0: Link up",
    ),
    _network_fabric(
        name="nccl-no-connection",
        pattern=any_of(
            r"NCCL WARN (?:NET/Socket|Call to (?:connect|recv|send|bind|accept)\w*).*(?:refused|timed out|No r"
            r"oute|unreachable|[Ff]ailed)",
            r"NCCL WARN .*(?:No route to host|Network is unreachable|Connection timed out)",
            r"ncclSystemError",
            r"unhandled system error",
            r"ncclInternalError: Internal check failed",
            r"NCCL WARN Bootstrap : no socket interface found",
            r"stopped sending heartbeats",
            r"detected missing heartbeats",
        ),
        fault="nccl_network",
        source=_NCCL + ", socket.cc",
        sample="NCCL WARN Call to connect to 10.1.2.3<50213> failed : No route to host",
        near="NCCL INFO Call to connect returned Connection refused, retrying",
    ),
    _network_fabric(
        name="rendezvous-failed",
        pattern=any_of(
            r"\[c10d\].{0,40}(?:cannot be retrieved|has (?:timed out|failed to (?:connect|listen|bind))|failed"
            r" to (?:connect|listen|bind))",
            r"[Cc]lient socket has (?:timed out|failed)",
            r"[Ss]erver socket has failed",
            r"DistNetworkError",
            r"DistStoreError",
            r"Rendezvous(?:Connection|Timeout|Closed|State)?Error",
            r"EADDRINUSE",
            r"[Aa]ddress already in use",
            r"Name or service not known",
            r"Temporary failure in name resolution",
            r"[Tt]imed out (?:after \d+ seconds )?waiting for clients",
            r"wait timeout after \d+ms, keys",
            r"Gloo connectFullMesh failed",
            r"rendezvous .{0,60}(?:failed|timed out)",
            r"failed to send a keep-alive heartbeat to the rendezvous",
            r"DEADLINE_EXCEEDED.*(?:barrier|[Bb]arrier|[Cc]oordination)",
            r"Barrier timed out",
            r"Unable to (?:resolve|connect to) .*(?:master|coordinator)",
            r"store based barrier.{0,80}(?:timed out|[Tt]imeout)",
            r"[Tt]imed out initializing process group",
            r"socket\.gaierror",
            r"TCPStore.{0,120}(?:refused|timed out|failed)",
            r"could not be resolved|Could not resolve host",
            r"XlaRuntimeError: DEADLINE_EXCEEDED",
            r"ssh: connect to host .*(?:refused|timed out)",
        ),
        fault="rendezvous",
        source=_C10D + ", socket.cpp, TCPStore; JAX, coordination service",
        sample=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600s "
            "while trying to connect to (n1, 29500)."
        ),
        near="rendezvous completed for all 16 nodes on port 29500",
    ),
)

COLLECTIVE = (
    _collective_rank(
        name="watchdog-timeout",
        role="waited-in-vain",
        pattern=any_of(
            r"\[Rank (?P<rank>\d+)\].{0,40}[Cc]aught collective operation timeout: WorkNCCL\("
            r"(?:SeqNum=(?P<sequence>\d+), )?OpType=(?P<operation>\w+)",
        ),
        fault="nccl_timeout",
        source=_C10D + ", ProcessGroupNCCL.cpp",
        sample=(
            "[Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, "
            "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600011 "
            "milliseconds before timing out."
        ),
        near="[Rank 6] watchdog thread started, timeout 600000 ms",
    ),
    _collective_rank(
        name="desynchronised",
        pattern=r"\[(?P<late>\d+)\] finished collective #\d+, but didn't join collective #\d+",
        fault="nccl_timeout",
        source=_C10D + ", TraceUtils.h: names the ranks that did not come",
        sample="    [3] finished collective #41, but didn't join collective #42 (count from 1)",
        near="    [3] finished collective #41 and joined collective #42",
    ),
    _collective_rank(
        name="collective-timeout",
        pattern=any_of(
            r"Some NCCL operations have failed or timed out",
            r"Timeout at collective",
            r"(?:collective|NCCL) operation.{0,30}timed? ?out",
            r"ProcessGroupNCCL's watchdog got stuck",
            r"heartbeat monitor timed out",
            r"Timed out waiting \d+ ?ms for (?:recv|send) operation",
            r"monitoredBarrier.*(?:failed|timed out)",
            r"NCCL timeout(?: after| expired| occurred|!)",
            r"Timeout\(ms\)=\d+\) ran for",
            r"Timeout waiting for key: \S+",
            r"Expected \d+ threads to join the rendezvous",
            r"Termination timeout of \d+",
        ),
        fault="nccl_timeout",
        source=_C10D + "; gloo",
        sample="RuntimeError: [gloo] Timed out waiting 1800000ms for recv operation to complete",
        near="all NCCL operations are done; the limit is 1800000 ms",
    ),
    _collective_rank(
        name="hang-reported",
        pattern=any_of(
            r"\b(?:[Tt]raining|[Jj]ob|[Pp]rocess|[Ww]orker|[Rr]ank)s?(?: \d+)? (?:is |has been |seems |appears )?"
            r"(?:hanging|hangs|hung|stuck)\b",
            r"[Hh]ang detected",
            r"\b[Nn]o (?:progress|heartbeat)(?: was)?(?: made| received| seen)? (?:for|in|since) \d+",
            r"made no progress (?:for|in) \d+",
            r"no rank has reported progress",
            r"last heartbeat \d+ ?s ago",
            r"(?:appears|seems) to be stalled",
            r"no new (?:step|iteration) in \d+",
            r"^Timeout \(\d+:\d\d:\d\d\)!",
        ),
        fault="hang_no_error",
        source="watchdogs of several launchers and trainers",
        sample="[monitor] training hung: no step since 1834 s, restarting",
        near="This can potentially cause a hang if this rank to GPU mapping is incorrect.",
    ),
    Signature(
        name="peer-gone",
        pattern=any_of(
            r"socketProgress: Connection closed by remote peer (?P<peer>[\w.:-]+)",
            r"ncclRemoteError",
            r"Connection (?:closed|reset) by (?:remote )?peer",
            r"ConnectionResetError",
            r"BrokenPipeError",
            r"\[Errno (?:32|104)\]",
            r"NCCL communicator was aborted",
            r"ProcessGroup.*aborted",
            r"DistBackendError",
            r"NET/IB ?: Got completion from peer \S+ with (?:error|status=\S*?\(?)\s*5\b",
        ),
        fault="nccl_network",
        layer="collective",
        scope="fabric",
        source=_NCCL + "; errno(3): what is left of a peer that died",
        sample="NCCL WARN socketProgress: Connection closed by remote peer n7<54012>",
        near="NCCL INFO connection to peer n7<54012> is ready",
    ),
)
