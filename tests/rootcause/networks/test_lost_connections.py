"""Libraries, switches, launchers and watchdogs: what they say of lost connections and of hangs, and what only sounds like it."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("nccl_network", "The InfiniBand retry count between two MPI processes has been\nexceeded.\n"),
        ("nccl_network", " Failed status 12: wr_id 0 syndrom 0x81\n"),
        ("nccl_network", "cxi_rh: TCT[211]: nid 18822 giving up after 5 retries, timing out connection\n"),
        ("nccl_network", "Physical state                  : Polling\nSpeed                           : N/A\n"),
        ("nccl_network", "LinkErrorRecoveryCounter:........255\n"),
        ("nccl_network", "PFC Watchdog detected PFC storm on port Ethernet12, queue index 3\n"),
        ("nccl_network", "%BGP-5-ADJCHANGE: neighbor 10.0.0.1 Down BGP Notification sent\n"),
        ("nccl_network", "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at"
         " ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8192 vs 4\n"),
        ("nccl_network", "postXferReq: NIXL_ERR_REMOTE_DISCONNECT: remote agent decode-3 disconnected\n"),
        ("nccl_timeout", "DeepEP combine NVL sender timeout, channel: 7, RDMA: 1, nvl: 3\n"),
        ("nccl_timeout", "rank 5 has not entered the all_reduce of step 812 after 600 s\n"),
        ("node_failure", "Cluster check alive failed, /job:worker/task:1 is down, check your network connectivity\n"),
        ("rendezvous", "Gave up waiting for the coordinator\n"),
        ("rendezvous", "only 6 of 8 workers have joined, giving up\n"),
        ("rendezvous", "unable to run proxy on node07 (pid 22311, exit code 256)\n"),
        ("hang_no_error", "main thread stuck in forward for 1200 s (limit 900 s)\n"),
        ("hang_no_error", "no new logs for 47 min\n"),
        ("hang_no_error", "Found one Java-level deadlock:\n"),
        ("hang_no_error", "Rank 3 appears to be hung: the last batch ended 45 minutes ago\n"),
        ("hang_no_error", "heartbeat file /tmp/hb/rank_3 is stale (age 1312 s)\n"),
        ("hang_no_error", "all 128 ranks last reported step 183 33.5 minutes ago\n"),
        ("hang_no_error", "Not all ranks joining collective 20947 at entry 812\n"),
        ("nccl_network", "Failed to modify QP to RTR: Connection timed out\nerrno: 110\n"),
        ("nccl_network", "ibwarn: [4112] mad_rpc: _do_madrpc failed; dport (Lid 118)\n"),
        ("nccl_network", "rdma_rxe: qp#33 retry limit exceeded, moved to error state\n"),
        ("nccl_network", "hfi1 0000:5e:00.0: hfi1_0: set_link_state: current ACTIVE, new OFFLINE\n"),
        ("nccl_network", "code 4 (Hold Timer Expired Error), Reason: holdtime expired for 10.0.0.1\n"),
        ("nccl_network", "[UFM] WARNING Symbol error counter rate threshold exceeded. Threshold is 200\n"),
        ("nvlink_error", "nvidia-imex[3311]: Node 3 status changed; domain state: DEGRADED\n"),
        ("node_failure", "Worker failed to heartbeat for 322s; attempting restart\n"),
        ("rendezvous", "mpi/pmi2: failed to connect to stepd: 1, Connection refused\n"),
        ("hang_no_error", "Rank 17 has been blocked in all_gather since step 8812\n"),
    ],
)  # fmt: skip
def test_what_is_lost_or_late_is_named(fault: str, text: str) -> None:
    """Without a level, in the middle of a log."""
    text = f"the job is started\n{text}another line\nand one more\nand a third\n"
    assert [one.cause.fault for one in verdicts_of(text)] == [fault]


@pytest.mark.parametrize(
    "text",
    [
        "Physical state                  : LinkUp\nRecommendation  : No issue was observed\n",
        "SymbolErrorCounter:..............0\nLinkErrorRecoveryCounter:........3\n",
        "PFC Watchdog detected PFC storm on port Ethernet12, queue index 3\n"
        "PFC Watchdog storm restored on port Ethernet12, queue index 3\n",
        "  --hang-action            what to do when training hangs: dump stacks, or abort\n",
        "the run is aborted if there is no progress for 600 s\n",
        "no hang detected, step 1120\n",
        "[watchdog] last step 11 s ago (limit 1800 s), all 128 ranks alive\n",
        "7711bb2 fix: all_gather timed out after 600 s on empty groups\n",
        "class RendezvousTimeoutError(RendezvousError): raised when nodes do not come in time\n",
        "collective timeout is 1800 s\n",
        "the loss was stuck at 0.69 for 3 epochs\n",
        "%ADJCHANGE: neighbor 10.0.0.1(spine1) in vrf default Up\n",
        "waiting for master\nwaiting for master\nconnected to the master\n",
        'src/comm.py:90:     raise TimeoutError("collective timed out")\n',
        "client 10.0.0.3: connection closed by peer after EOF; 8 of 8 clients finished\n",
        '{"nccl": {"on_timeout": "abort"}, "rdzv": {"timeout": 900}, "barrier": {"timeout": 30}}\n',
        "waiting for 8 workers to join (timed out workers are replaced)\n",
        "rank 3 entered the barrier 12 s after rank 0\n",
        "Communicator ranks have the same collective operation counts\n",
    ],
)
def test_what_only_sounds_like_it_is_healthy(text: str) -> None:
    """Conditions, settings, help, what was cleared, and what was done on purpose."""
    assert verdicts_of(f"the job is started\n{text}") == []


@pytest.mark.parametrize(
    "stacks",
    [
        "Thread 12 (Thread 0x7f8b (LWP 22110)):\n#0  0x00007f in poll () from /lib64/libc.so.6\n",
        'Traceback for thread 812 (python3.11) [] (most recent call last):\n    (C) File "x.c", line 3, in wait\n',
        "PID 812 - process\nTID 812:\n#0  0x00007f31 __futex_abstimed_wait_common64\n",
        "Full thread dump OpenJDK 64-Bit Server VM (11.0.20+8 mixed mode):\n",
        "[<0>] futex_wait_queue+0x64\n[<0>] do_futex+0x125\n",
        "[pid 3312] futex(0x7f31c80, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>\n",
    ],
)
def test_stacks_of_a_process_that_waits_show_a_hang(stacks: str) -> None:
    """Debuggers, pystack, eu-stack, the JVM, the kernel and strace."""
    assert [one.cause.fault for one in verdicts_of(f"step 3: loss 2.1\n{stacks}")] == [
        "hang_no_error"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Program terminated with signal SIGSEGV, Segmentation fault.\nThread 1 (Thread 0x7f8b (LWP 22110)):\n#0 0x7f in f ()\n",
        "(gdb) bt\n#0  0x00007ffff3ea65f7 in raise () from /lib64/libc.so.6\n#1  0x00007ffff3ea7ce8 in abort ()\n",
    ],
)
def test_stacks_of_a_process_that_crashed_show_no_hang(text: str) -> None:
    """A debugger reads a core file, and says with which signal it ended, or shows the frames of an abort."""
    assert [one.cause.fault for one in verdicts_of(text)] == ["unknown"]


def test_a_master_that_is_not_resolved_to_the_end_is_a_rendezvous() -> None:
    """Each attempt alone is harmless."""
    text = "nslookup: can't resolve 'job-master-0': Name does not resolve\nwaiting for master\n"
    assert [one.cause.fault for one in verdicts_of(2 * text)] == ["rendezvous"]
