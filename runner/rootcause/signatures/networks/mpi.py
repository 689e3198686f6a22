"""MPI and what starts it: texts of help that have no level, and proxies of launchers that did not start or are gone."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_OPEN_MPI = "Open MPI, its texts of help"
_network = partial(Signature, fault="nccl_network", layer="network", scope="fabric")

MPI = (
    _network(
        "open-mpi-connection",
        r"\bOpen MPI failed to TCP connect to a peer MPI process\b|\bOpen MPI detected an inbound MPI TCP connection request"
        r"|\bmca_btl_(?:tcp|openib|uct|ofi)_\w+.{0,60}\b(?:failed|error|unreachable)\b"
        r"|\b(?:UCX|PML).{0,20}\b(?:pml_ucx|ucp_ep_create|ucp_\w+).{0,60}\b(?:failed|Error)\b"
        r"|\bAt least one pair of MPI processes are unable to reach each other\b"
        r"|\bThe OpenFabrics \(openib\) BTL failed to initialize\b|\b(?:local|remote) OpenFabrics (?:device"
        r"|port)\b.{0,40}\berror\b"
        r"|\[async_thread\] Got FATAL event \d|\[handle_cqe\] Send desc error\b",
        source=_OPEN_MPI + ", btl tcp and openib; MVAPICH, its thread of events",
        sample="WARNING: Open MPI failed to TCP connect to a peer MPI process.  This",
        near="Open MPI connected to all peer MPI processes by TCP",
    ),
    _network(
        "launcher-without-proxies",
        r"\bunable to run (?:bstrap_)?proxy on \S+|\bORTE was unable to reliably start one or more daemons\b"
        r"|\bPRTE was unable to reliably start one or more daemons\b|\bHYDT?_?(?:dmx|bstrap)\w*.{0,80}\berror waiting for event\b"
        r"|\b(?:orted|prted) (?:executable )?could not be (?:found|started)\b"
        r"|\bmpi/pmi\w*: .{0,120}\b(?:failed to connect|[Cc]onnection refused|timed out|unreachable)\b"
        r"|\bPMIX ERROR: (?:ERROR|PMIX_ERROR|(?:PMIX_ERR_)?(?:TIMEOUT|UNREACH\w*|LOST\w*|INIT))\b"
        r"|\bPMIx was unable to reach its server\b"
        r"|\bkex_exchange_identification: .{0,60}\b(?:closed|reset)|\bssh_exchange_identification: "
        r"|\bssh: connect to host \S+ port \d+: (?:No route|Network is unreachable|Host is down)",
        fault="rendezvous",
        source="Hydra of MPICH and Intel MPI, ORTE and PRRTE; OpenSSH, its client: the launcher's part on a node did not start",
        sample="check_exit_codes (hydra_demux_poll.c:117): unable to run proxy on node07 (pid 22311, exit code 256)",
        near="check_exit_codes (hydra_demux_poll.c:117): proxy on node07 runs (pid 22311)",
    ),
)
