"""Lines of frameworks whose meaning depends on their place: at the start, in a save, in a list of possible causes."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "".join(f"step {400 + 10 * n} loss {3.1 - 0.02 * n:.4f} lr 3.00e-04\n" for n in range(8))
SITE = "/opt/env/lib/python3.10/site-packages"


def fault_of(text: str) -> str:
    """Return the fault that a log shows; "" for none."""
    found = verdicts_of(text)
    return found[0].cause.fault if found else ""


def traceback(error: str, *frames: tuple[str, str]) -> str:
    """Return a traceback of these files and functions."""
    lines = "".join(f'  File "{file}", line 7, in {name}\n    {name}(x)\n' for file, name in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("EI0001: [PID: 7] Value x for environment variable y is invalid.", "config_error"),
        ("EI0002: [PID: 7] A timeout occurs when the Notify register waits.", "nccl_timeout"),
        ("EI0006: [PID: 7] Getting socket times out.", "rendezvous"),
        ("EI0013: [PID: 7] An error CQE occurred.", "nccl_network"),
        ("EI0011: [PID: 7] Failed to allocate 7 bytes of NPU memory.", "cuda_oom"),
        ("EJ0001: [PID: 7] Failed to initialize the HCCP process.", "rendezvous"),
        ("E40003: the operator cannot be compiled", "config_error"),
        ("EZ9999: Inner Error!", "unknown"),
        (
            "EZ9999: [PID: 7] an exception occurred during AICPU execution, stream_id:2",
            "cuda_illegal_access",
        ),
        (
            "        rtStreamSynchronize execute failed, reason=[vector core exception][FUNC:Reason]",
            "cuda_illegal_access",
        ),
        ("LLVM ERROR: pthread_join failed: Invalid argument", "unknown"),
        (
            "The actor is dead. Worker unexpectedly exits with a connection error code 2. There are some potential root causes. "
            "(1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
            "unknown",
        ),
        (
            "Non-OK-status: GpuLaunchKernel (Fill, n, b, 0, d.stream ()) status: Internal: out of memory",
            "cuda_oom",
        ),
        (
            'W tensorflow/core/framework/op_kernel.cc:993] Unavailable: {"created":"@1","description":"EOF","grpc_status":14}',
            "nccl_network",
        ),
        (
            "ERROR: megatron.core.dist_checkpointing.strategies.filesystem_async: process 0: [Errno 5] Input/output error",
            "checkpoint_io",
        ),
        (
            "Error while serializing: I/O error: No space left on device (os error 28)",
            "checkpoint_io",
        ),
        ("RuntimeError: Parent directory runs/7 does not exist.", "checkpoint_io"),
        ("ValueError: Can't find a valid checkpoint at runs/7", "checkpoint_io"),
        ("RuntimeError: Socket Timeout", "rendezvous"),
        ("RuntimeError: connect() timed out. Original timeout was 600000 ms.", "rendezvous"),
        (
            "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store, but "
            "store->get('0') got error: Connection reset by peer",
            "rendezvous",
        ),
        ("InternalError: Dst tensor is not initialized.", "cuda_oom"),
        ("W tensorflow/core/framework/op_kernel.cc:1192] Not found: spin.txt", "unknown"),
        ("W op_kernel.cc:1192] Out of range: FIFOQueue '_1_batch' is closed", ""),
        ("W op_kernel.cc:1830] OP_REQUIRES failed at spin.cc:7 : Cancelled: it ended", ""),
        ("Managed job 3 status: FAILED_NO_RESOURCE", "preemption"),
        ("Managed job 3 status: FAILED_SETUP", "unknown"),
        ("The autoscaler failed with the following error:", "unknown"),
        ("OSError: [Errno 28] No space left on device: '/scratch/spin'", "filesystem"),
        ("kernel: nfs: server ckpt-store not responding, still trying", "filesystem"),
    ],
)
def test_lines_by_their_words(line: str, fault: str) -> None:
    """Alone in a log."""
    assert fault_of(f"{line}\n") == fault


def test_a_peer_that_resets_before_the_first_step_did_not_meet() -> None:
    """A store's connection at the start is a rendezvous; the same words after steps are of the network."""
    reset = traceback(
        "RuntimeError: Connection reset by peer",
        ("train.py", "<module>"),
        (f"{SITE}/torch/distributed/distributed_c10d.py", "init_process_group"),
    )
    assert fault_of(reset) == "rendezvous"
    assert fault_of(f"{STEPS}{reset}") == "nccl_network"
    assert fault_of(f"{STEPS}RuntimeError: Connection reset by peer\n") == "nccl_network"


def test_nccl_that_cannot_connect_before_the_first_step() -> None:
    """Its bootstrap is a rendezvous; no way through the network is none, and neither is what was connected."""
    line = "n1:7:9 [4] misc/socket.cc:397 NCCL WARN Net : connecting to address with family 33621 is neither AF_INET(2)\n"
    lost = "n1:7:9 [4] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n2<9>\n"
    raised = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\n"
        "socketStartConnect: Connect to 10.0.0.2<34567> failed : {}\n"
    )
    assert fault_of(raised.format("Connection refused")) == "rendezvous"
    assert fault_of(raised.format("No route to host")) == "nccl_network"
    assert fault_of(STEPS + raised.format("Connection refused")) == "nccl_network"
    assert fault_of(line) == "rendezvous"
    assert fault_of(f"{STEPS}{line}") == "nccl_network"
    assert fault_of(lost) == "nccl_network"


def test_a_store_that_does_not_answer() -> None:
    """Its clients waited until their timeout; what a launcher's cut traceback shows after that is no other cause."""
    socket = "socket SocketImpl(fd=11, addr=[n1]:38674, remote=[n2]:23456)"
    head = "[W228 18:45:15.738941174 socket.cpp:{}] [c10d] waitForInput: "
    lines = (
        head.format(462) + f"poll for {socket} returned 0, likely a timeout\n",
        head.format(487) + f"{socket} timed out after 900000ms\n",
    )
    cut = traceback("", (f"{SITE}/torch/distributed/run.py", "main")).rstrip("\n") + "\n"
    assert fault_of("".join(lines) + cut) == "rendezvous"
    assert not fault_of("".join(lines) + STEPS)


def test_two_nodes_that_count_the_same_ranks() -> None:
    """Each rank twice, and not all that were to come; once each, or with all of them there, it is a start."""
    line = "initializing ddp: GLOBAL_RANK: {}, MEMBER: {}/8\n"
    once = "".join(line.format(n, n + 1) for n in range(4))
    twice = "".join(line.format(n, n + 1) * 2 for n in range(4))
    assert fault_of(twice) == "rendezvous"
    assert not fault_of(once)
    assert not fault_of(f"{twice}All distributed processes registered. Starting with 8 processes\n")


def test_an_interrupt_while_ranks_wait_and_while_they_work() -> None:
    """A run that a person interrupts while it waits for its loader or its ranks hangs; one that works does not."""
    python = "/usr/lib/python3.10"
    parent = traceback(
        "KeyboardInterrupt",
        ("main.py", "main"),
        (f"{SITE}/torch/multiprocessing/spawn.py", "join"),
        (f"{python}/multiprocessing/connection.py", "wait"),
        (f"{python}/selectors.py", "select"),
    )
    loader = traceback(
        "KeyboardInterrupt",
        ("main.py", "main"),
        (f"{SITE}/torch/utils/data/dataloader.py", "_try_get_data"),
        (f"{python}/multiprocessing/connection.py", "_recv"),
    )
    worker = traceback("KeyboardInterrupt", ("main.py", "main"), ("main.py", "forward"))
    assert fault_of(parent) == "hang_no_error"
    assert fault_of(loader) == "hang_no_error"
    for log in (worker, worker + parent, STEPS + parent):
        assert fault_of(log) == "preemption"
