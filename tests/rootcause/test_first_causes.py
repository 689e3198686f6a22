"""First causes: which of several lines is the cause where hardware, its driver and programs report one after the other."""

import pytest

from runner.facts.causes import Culprit, Verdict
from runner.facts.faults import FAULTS
from tests.collect.diagnosed_logs import verdicts_of

STEPS = "step 3 loss 2.25\nstep 4 loss 2.125\n"
GPU = "amdgpu 0000:0a:00.0: amdgpu: "
TIMED_OUT = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=160, emitted seq=162\n"
RESET = f"{GPU}GPU reset begin!\n"
FULL = "No space left on device"


def judged(text: str) -> Verdict:
    """Return the first verdict on one log."""
    return verdicts_of(text)[0]


@pytest.mark.parametrize(
    "line",
    [
        "n1:86:87 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : " + FULL,
        f"OSError: [Errno 28] {FULL}: '/dev/shm/batch_0'",
        f"RuntimeError: unable to write to file </torch_811_4>: {FULL} (28)",
    ],
)
def test_shared_memory_that_is_full_is_a_setting(line: str) -> None:
    """To wait does not help: the size of /dev/shm belongs to the container."""
    cause = judged(f"{STEPS}{line}\n").cause
    assert (cause.fault, cause.action_class) == ("config_error", FAULTS["config_error"].action)


def test_a_traceback_that_ends_at_shared_memory_is_a_setting_and_one_at_a_disk_is_not() -> None:
    """The path in the message decides."""
    stack = 'Traceback (most recent call last):\n  File "/opt/job/train.py", line 8, in main\n    write(batch)\n'
    for path, fault in (("/dev/shm/batch_0", "config_error"), ("/scratch/batch_0", "filesystem")):
        text = f"{STEPS}{stack}OSError: [Errno 28] {FULL}: '{path}'\n"
        assert judged(text).cause.fault == fault


@pytest.mark.parametrize(
    "line", [f"cp: error writing 'tokens.bin': {FULL}", f"/scratch/ashm.hdf5: {FULL}"]
)
def test_a_disk_that_is_full_stays_one(line: str) -> None:
    """No part of a name is taken for shared memory."""
    assert judged(f"{STEPS}{line}\n").cause.fault == "filesystem"


def test_a_hang_after_a_fault_of_memory_is_its_consequence() -> None:
    """Alone it is what is known."""
    hang = "HW Exception by GPU node-1 (Agent handle: 0x5595fa4c5a10) reason :GPU Hang\n"
    fault = "Memory access fault by GPU node-1 (Agent handle: 0x2c71e150) on address 0x7c118be00000. Reason: Page not present.\n"
    assert judged(STEPS + fault + hang).cause.fault == "cuda_illegal_access"
    assert judged(STEPS + hang).cause.fault == "gpu_xid_other"


@pytest.mark.parametrize(
    "line",
    [
        "[drm:mes_v11_0_submit_pkt_and_poll_completion.constprop.0 [amdgpu]] *ERROR* MES failed to response msg=3\n",
        f"{GPU}MES(1) failed to respond to msg=REMOVE_QUEUE\n",
        f"{GPU}SMU is in hanged state, failed to send smu message!\n",
        f"{GPU}SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012 SMN_C2PMSG_82:0x00000000\n",
    ],
)
def test_a_gpu_whose_firmware_is_silent_is_lost_though_its_rings_time_out_first(line: str) -> None:
    """Without it, they may be the program's."""
    verdict = judged(TIMED_OUT + RESET + line)
    assert (verdict.cause.fault, verdict.cause.action_class) == ("gpu_lost", "swap")
    assert judged(TIMED_OUT + RESET).cause.fault == "gpu_xid_other"
    assert judged(TIMED_OUT + RESET + "[drm] another line\n" * 30 + line).cause.fault == (
        "gpu_xid_other"
    )


def test_a_network_card_that_reports_its_own_firmware_is_hardware() -> None:
    """That it does not answer may be the fabric's, or the bus's."""
    card = "mlx5_core 0000:0d:00.0: "
    silent = f"{card}poll_health:801:(pid 0): device's health compromised - reached miss count\n"
    report = f"{card}print_health_info:447:(pid 0): synd 0x1: firmware internal error\n"
    cause = judged(silent + report).cause
    assert (cause.fault, cause.action_class) == ("host_hardware", "swap")
    assert judged(silent).cause.fault == "nccl_network"


def test_mpi_that_cannot_start_is_a_rendezvous() -> None:
    """MPICH is what oneCCL starts; the launcher only sees how its rank ended."""
    text = (
        "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Unknown error class, error stack:\n"
        "MPIR_pmi_init(142)...: PMI_Get_appnum returned -1\n"
        "torch.distributed.elastic.multiprocessing.api: failed (exitcode: -11) local_rank: 0 (pid: 811) of binary: python\n"
    )
    assert judged(text).cause.fault == "rendezvous"


# ---- culprits


def watchdog(rank: int, size: int, *, sequence: int = 88, operation: str = "ALLREDUCE") -> str:
    """Return what the watchdog of a rank writes."""
    work = f"SeqNum={sequence}, OpType={operation}, NumelIn={size}, NumelOut={size}"
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL({work}, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
    )


def test_the_one_rank_that_brings_another_size_to_a_call_is_the_culprit() -> None:
    """However often each rank writes."""
    for other in (0, 3):
        lines = [watchdog(rank, 9 if rank == other else 4096) for rank in range(5)]
        verdict = judged(STEPS + "".join(lines * 2))
        assert verdict.cause.culprit == Culprit(kind="rank", id=str(other))


@pytest.mark.parametrize(
    "sizes",
    [(9, 4096), (9, 4096, 4096), (9, 9, 4096, 4096), (9, 8, 4096, 4096, 4096), (4096,) * 5],
    ids=["two", "three", "halves", "two others", "all alike"],
)
def test_sizes_without_a_clear_majority_name_no_rank(sizes: tuple[int, ...]) -> None:
    """Which of them is wrong is not known."""
    verdict = judged(STEPS + "".join(watchdog(rank, size) for rank, size in enumerate(sizes)))
    assert verdict.cause.culprit is None


def test_other_calls_name_no_rank_by_their_sizes() -> None:
    """Groups of ranks count apart from each other."""
    lines = [watchdog(rank, 4096) for rank in range(4)]
    for one in (watchdog(4, 9, operation="BROADCAST"), watchdog(4, 9, sequence=300)):
        assert judged(STEPS + "".join([*lines, one])).cause.culprit is None


@pytest.mark.parametrize(("between", "named"), [("", "1"), ("\n", None)])
def test_a_record_that_was_broken_after_its_rank_names_that_rank(
    between: str, named: str | None
) -> None:
    """Only the very next line belongs to it."""
    text = (
        "[rank1]:[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 1]\n"
        + between
        + "Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n"
        + watchdog(0, 9)
    )
    verdict = judged(STEPS + text)
    assert verdict.cause.fault == "gpu_ecc"
    assert (verdict.cause.culprit.id if verdict.cause.culprit else None) == named


def test_an_exception_below_the_note_by_which_jax_hides_its_frames_is_the_cause() -> None:
    """The note is chained to it, and says nothing."""
    note = "jax.errors.SimplifiedTraceback: For simplicity, JAX has removed its internal frames from the traceback."
    text = (
        f"{note}\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "/opt/job/train.py", line 30, in <module>\n    step(x)\n'
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 512 bytes.\n"
    )
    assert judged(text).cause.fault == "cuda_oom"


def test_backends_that_jax_looks_for_and_does_not_find_are_no_fault() -> None:
    """It tries all that it knows at each start; that the wanted one is missing is raised."""
    looked = "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: No such file or directory"
    assert verdicts_of(f"{looked}\n{STEPS}") == []
    assert verdicts_of(f"{looked}\n") == []
    raised = "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices."
    assert verdicts_of(f"{raised}\n") != []


@pytest.mark.parametrize(
    ("folder", "fault"),
    [
        ("/data/ann/job", "config_error"),
        ("/mnt/data/ann/job", "config_error"),
        ("/opt/job/data", "data_error"),
    ],
)
def test_a_mount_point_that_is_called_data_says_nothing_of_the_code(
    folder: str, fault: str
) -> None:
    """A package that is called so does."""
    text = (
        f'    File "{folder}/train.py", line 71, in make\n        trainer = Trainer(args)\n'
        "    ValueError: tensor_parallel_size (8) must divide world size (1) evenly.\n"
    )
    assert judged(text).cause.fault == fault


def test_a_division_by_zero_after_a_loss_scaler_s_last_halvings_is_one_by_its_scale() -> None:
    """Without them it is the program's own."""
    skipped = "".join(
        f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0**power}\n"
        for power in range(15, 10, -1)
    )
    raised = "ZeroDivisionError: float division by zero\n"
    assert judged(f"{skipped}...\n{raised}").cause.fault == "loss_scale_floor"
    assert judged(f"{STEPS}{raised}").cause.fault == "config_error"


def test_a_collective_of_ascend_that_times_out_is_a_time_out() -> None:
    """Its stages are in brackets."""
    line = (
        "[ERROR] HCCL(2111,all_reduce_test):2025-10-24-11:18:29.499.235 [task_exception_handler.cc:908] [2111]"
        "[TaskExecStage][{0}][Host]Task run failed, base information is streamID:[2], taskID[21]\n"
    )
    assert judged(line.format("Timeout")).cause.fault == "nccl_timeout"


def test_an_actor_whose_process_has_ended_says_nothing_of_the_network() -> None:
    """Its socket is closed because it died; Ray lists what may have been the reason."""
    text = (
        "ray.exceptions.ActorUnavailableError: The actor d5a1 is unavailable: The actor is temporarily unavailable: "
        "RpcError: RPC error: Socket closed rpc_code: 14.\n"
    )
    assert judged(text).cause.fault == "unknown"
    assert (
        judged("RpcError: RPC error: Socket closed rpc_code: 14.\n").cause.fault == "nccl_network"
    )


def test_processes_that_cannot_hand_each_other_a_tensor_save_no_checkpoint() -> None:
    """The name of their socket is a file of the disk that is full."""
    frames = "".join(
        f'  File "/usr/lib/python3.8/{file}", line 8, in {function}\n    do()\n'
        for file, function in (
            ("multiprocessing/queues.py", "_feed"),
            ("multiprocessing/util.py", "get_temp_dir"),
            ("tempfile.py", "mkdtemp"),
        )
    )
    text = f"Traceback (most recent call last):\n{frames}OSError: [Errno 28] {FULL}: '/tmp/pymp-h1k1'\n"
    assert judged(text).cause.fault == "filesystem"


@pytest.mark.parametrize(
    "name", ["jaxlib.xla_extension.XlaRuntimeError", "mylib.errors.StageError"]
)
def test_an_exception_whose_message_is_on_the_next_line_is_never_nothing(name: str) -> None:
    """Its class alone ends the log."""
    assert [one.cause.fault for one in verdicts_of(f"{name}:\nINTERNAL: no plan\n")] == ["unknown"]


STALLED = (
    "[rank4]:[E ProcessGroupNCCL.cpp:629] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=52,"
    " OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800044 milliseconds before timing out.\n"
)


@pytest.mark.parametrize("reason", ["TIME LIMIT", "PREEMPTION"])
@pytest.mark.parametrize("steps_after", ["", "step 5 loss 2.0\nstep 6 loss 2.0\n"])
def test_a_job_whose_time_ran_out_while_its_ranks_waited_had_stalled(
    reason: str, steps_after: str
) -> None:
    """The scheduler's own wish is its own reason, and so is the end of a job that made steps again."""
    end = f"slurmstepd: error: *** JOB 71 ON n2 CANCELLED AT 2026-05-03T11:00:00 DUE TO {reason} ***\n"
    has_stalled = reason == "TIME LIMIT" and not steps_after
    expected = "nccl_timeout" if has_stalled else "preemption"
    assert judged(f"{STEPS}{STALLED}{steps_after}{end}").cause.fault == expected
