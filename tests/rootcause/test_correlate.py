"""Correlation of many lines to one cause: the deepest layer wins, then its first line; a culprit has the fault alone."""

import pytest
from msgspec.structs import replace

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.decide.incidents.diagnosis import LEAST_CONFIDENCE
from runner.facts.causes import Culprit, Verdict
from runner.facts.matches import LoggedStep, Match
from runner.rootcause.correlation import correlate
from tests.collect.diagnosed_logs import verdicts_of

ENGINE: Engine = engine_for()
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"
WATCHDOG = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out."
)
XID_79 = "[ 812.3] NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SXID = "[ 812.4] nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 12 LTSSM Fault Up"


def one(*logs: str) -> Verdict:
    """Judge logs that hold one incident."""
    (verdict,) = verdicts_of(*logs)
    return verdict


def test_a_device_fault_is_the_cause_of_program_and_collective_errors() -> None:
    """That holds however many echoes there are and whichever file comes first."""
    ranks = "\n".join(f"[rank{rank}]: {RESET}" for rank in range(8))
    timeouts = "\n".join(
        f"[rank{rank}]:{WATCHDOG.format(rank=rank, sequence=7)}" for rank in range(8)
    )
    verdict = one(f"{timeouts}\n{ranks}\n{ILLEGAL}\n", f"{SXID}\n{XID_79}\n")
    assert verdict.cause.fault == "gpu_lost"
    assert verdict.cause.culprit == Culprit(kind="gpu", id="0000:a1:00")
    assert verdict.cause.action_class == "swap"
    assert verdict.evidence[0].file == "log1"


def test_a_card_whose_removal_loses_a_gpu_is_the_gpu() -> None:
    """The slot reports first; the driver's line says what was in it."""
    removed = "[ 812.2] pcieport 0000:a0:01.1: pciehp: Slot(0): Card not present"
    assert one(f"{removed}\n{XID_79}\n").cause.fault == "gpu_lost"
    assert one(f"{removed}\n").cause.fault == "device_vanished"


def test_the_first_line_of_a_file_is_the_upper_one_and_of_several_files_the_earlier_one() -> None:
    """Python prints no time above its tracebacks, and loggers do: that makes a line no earlier."""
    timed = "2026-02-03 04:05:{second:02d},000 ERROR CUDA out of memory. Tried to allocate 2 GiB"
    verdict = one(f"{ILLEGAL}\n{timed.format(second=9)}\n")
    assert verdict.cause.fault == "cuda_illegal_access"
    later = "2026-02-03 04:05:30,000 ERROR CUDA error: an illegal memory access was encountered"
    assert one(later, timed.format(second=9)).cause.fault == "cuda_oom"


def test_a_rank_is_named_only_if_it_alone_has_the_fault() -> None:
    """The other ranks only lost their peer; if all ranks have the fault, the program is its cause."""
    others = "\n".join(f"[rank{rank}]: {RESET}" for rank in (0, 2, 3))
    verdict = one(f"[rank1]: {ILLEGAL}\n{others}\n")
    assert (verdict.cause.fault, verdict.cause.culprit) == (
        "cuda_illegal_access",
        Culprit(kind="rank", id="1"),
    )
    every = "\n".join(f"[rank{rank}]: {ILLEGAL}" for rank in range(4))
    assert one(every).cause.culprit is None


def test_an_error_in_the_settings_names_no_rank() -> None:
    """The rank that is shown first is only the one that printed first."""
    verdict = one(
        f"[rank2]: AttributeError: 'Config' object has no attribute 'n'\n[rank0]: {RESET}\n"
    )
    assert (verdict.cause.fault, verdict.cause.culprit) == ("config_error", None)
    assert verdict.cause.action_class == "stop"


def test_the_rank_that_its_launcher_saw_fail_first_is_named() -> None:
    """Its summary has the times that the ranks' own lines lack."""
    summary = "Root Cause (first observed failure):\n  rank      : 5 (local_rank: 1)\n"
    verdict = one(f"[rank3]: {ILLEGAL}\n[rank5]: {ILLEGAL}\n{summary}")
    assert verdict.cause.culprit == Culprit(kind="rank", id="5")


def test_the_rank_absent_from_a_collective_is_named() -> None:
    """A trace may name the rank, else its sequence number is the lowest; two equally late ranks are not named."""
    absent = "[2] finished collective #41, but didn't join collective #42"
    lines = [WATCHDOG.format(rank=rank, sequence=42) for rank in (0, 1, 3)]
    assert one("\n".join([*lines, absent])).cause.culprit == Culprit(kind="rank", id="2")
    late = WATCHDOG.format(rank=2, sequence=41)
    assert one("\n".join([*lines, late])).cause.culprit == Culprit(kind="rank", id="2")
    two = [WATCHDOG.format(rank=rank, sequence=41) for rank in (2, 5)]
    assert one("\n".join([*lines, *two])).cause.culprit is None


def test_a_fault_that_steps_follow_is_no_incident_unless_it_lasts() -> None:
    """A lost connection before a thousand more steps did no harm; a failing disk will fail again."""
    steps = "\n".join(
        f"iter {step}: loss 2.4, time 135.20ms, mfu 41.20%" for step in range(100, 160)
    )
    assert verdicts_of(f"{RESET}\n{steps}\n") == []
    assert one(f"{steps}\n{RESET}\n").cause.fault == "nccl_network"
    error = "EXT4-fs error (device sdb1): ext4_find_entry:1455: inode #2: comm python: reading directory"
    assert one(f"{error}\n{steps}\n").cause.fault == "filesystem"


def test_errors_after_a_successful_end_are_tear_down() -> None:
    """Threads that are ended complain of each other; hardware that fails then is still broken."""
    end = "[exiting program after 1190.04 minutes] datetime: 2026-08-08 01:00:51"
    assert (
        verdicts_of(f"{end}\nTraceback (most recent call last):\nFileNotFoundError: [Errno 2]\n")
        == []
    )
    assert one(f"{end}\n{XID_79}\n").cause.fault == "gpu_lost"


def test_a_rank_that_dies_of_a_timeout_after_the_last_step_has_failed() -> None:
    """Its last save did not end; without its death the timeout is one of peers that were done before."""
    end = "{'train_runtime': 119.8, 'train_samples_per_second': 2.5, 'train_loss': 1.23, 'epoch': 2.57}\n"
    timeout = (
        "[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2778, "
        "OpType=_ALLGATHER_BASE, Timeout(ms)=1800000) ran for 1801649 milliseconds before timing out.\n"
    )
    death = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 0 (pid: 5037)\n"
    assert one(end + timeout + death).cause.fault == "nccl_timeout"
    assert verdicts_of(end + timeout) == []


def test_exceptions_raised_while_the_interpreter_exits_are_ignored() -> None:
    """Python prints that it ignores them; exceptions raised elsewhere count."""
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7f00>\n"
    raised = "Traceback (most recent call last):\nTypeError: 'NoneType' object is not callable\n"
    assert verdicts_of(ignored + raised) == []
    assert one(raised).cause.fault == "config_error"


def test_an_exception_quoted_by_a_warning_was_handled() -> None:
    """Only where Python prints it, or below a traceback, was it raised."""
    quoted = "WARNING apex is not there (ModuleNotFoundError: No module named 'apex')"
    assert verdicts_of(quoted) == []
    assert one("ModuleNotFoundError: No module named 'apex'").cause.fault == "config_error"
    raised = "worker | ModuleNotFoundError: No module named 'apex'"
    assert verdicts_of(raised) == []
    assert one(f"Traceback (most recent call last):\n{raised}").cause.fault == "config_error"


def test_an_end_mark_that_steps_follow_excuses_nothing() -> None:
    """An epoch is complete, the run goes on, and fails later; a failed save after its end is reported too."""
    generation = "Epoch 1: training complete in 12 s\n"
    steps = "".join(f"iter {n}: loss 2.4, time 1.20ms, mfu 41.20%\n" for n in range(100, 120))
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    assert one(generation + steps + oom).cause.fault == "cuda_oom"
    saving = '  File "/job/checkpointing.py", line 3, in save_checkpoint\nOSError: [Errno 28]\n'
    assert (
        one(f"{steps}Training finished, saving the model\n{saving}").cause.fault == "checkpoint_io"
    )


def test_the_summary_of_a_launcher_names_the_root_cause_not_the_others() -> None:
    """It lists the others first; where it names several and no root, none of them is the culprit."""
    others = (
        "Failures:\n[1]:\n  rank      : 5 (local_rank: 1)\n[2]:\n  rank      : 6 (local_rank: 2)\n"
    )
    root = "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n"
    assert one(ILLEGAL + "\n" + others + root).cause.culprit == Culprit(kind="rank", id="2")
    assert one(ILLEGAL + "\n" + others).cause.culprit is None


def test_an_unknown_exception_is_the_cause_of_a_cancelled_job() -> None:
    """Not a preemption: the scheduler ends the tasks of a step that lost one."""
    raised = "Traceback (most recent call last):\nRuntimeError: the frobnicator wobbles\n"
    ended = "slurmstepd: error: *** STEP 77.0 ON gpu3 CANCELLED AT 2026-02-03T04:05:06 ***\n"
    assert one(raised + ended).cause.fault == "unknown"
    assert one(ended).cause.fault == "preemption"


def test_a_rank_far_behind_in_another_group_is_not_the_late_one() -> None:
    """Groups of ranks count their collectives apart."""
    lines = [WATCHDOG.format(rank=rank, sequence=8000) for rank in (1, 2, 3)]
    assert one("\n".join([*lines, WATCHDOG.format(rank=0, sequence=12)])).cause.culprit is None


def test_a_missing_file_is_classified_by_its_path_and_frames() -> None:
    """Data, a checkpoint, or a mistake in the settings."""
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    assert one(missing.format(path="/corpus/shard_00001.bin")).cause.fault == "data_error"
    assert (
        one(missing.format(path="/runs/7/checkpoints/global_step10/a.pt")).cause.fault
        == "checkpoint_io"
    )
    assert one(missing.format(path="settings.yaml")).cause.fault == "config_error"
    assert one(missing.format(path="configs/train_gpt.yaml")).cause.fault == "config_error"
    frame = '  File "/job/data/indexed_dataset.py", line 20, in __init__\n'
    assert one(frame + missing.format(path="x.idx")).cause.fault == "data_error"


def test_a_full_disk_during_a_save_is_a_checkpoint_fault() -> None:
    """Elsewhere it is the file system's."""
    full = "OSError: [Errno 28] No space left on device"
    assert one(full).cause.fault == "filesystem"
    assert (
        one(f'  File "/job/checkpointing.py", line 3, in save_checkpoint\n{full}').cause.fault
        == "checkpoint_io"
    )


def test_a_numeric_incident_beside_a_crash_is_reported_after_the_root_cause() -> None:
    """They are two incidents."""
    crash = Match(
        signature="cuda-oom", fault="cuda_oom", layer="program", scope="user", file="a", line=90
    )
    spike = replace(crash, signature="metrics", fault="divergence", layer="metrics", line=10)
    verdicts = correlate([spike, crash], [LoggedStep(file="a", line=80, step=80)])
    assert [verdict.cause.fault for verdict in verdicts] == ["cuda_oom", "divergence"]


def test_a_traceback_without_its_last_line_is_reported_with_low_confidence() -> None:
    """A log may be cut off at its end; that does not make it healthy."""
    head = "Traceback (most recent call last):\n"
    imports = '  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load\n'
    assert one(head + imports).cause.fault == "config_error"
    verdict = one(head + '  File "train.py", line 3, in main\n')
    assert (verdict.cause.fault, verdict.cause.confidence) == ("unknown", 0.3)


def test_a_healthy_log_has_no_verdict() -> None:
    """An empty log has none either."""
    assert verdicts_of("", "all is well\nloss is falling\n") == []


def test_summarised_matches_of_a_log_correlate_like_the_whole_log() -> None:
    """The summary drops excused lines, frames, survived faults and a hundred echoes of one kind."""
    saving = '  File "/job/checkpointing.py", line 3, in save_checkpoint\nOSError: [Errno 28]\n'
    noise = "Connection reset by peer, retrying in 3 s\n" * 20
    for text in (
        noise + saving + f"{RESET}\n" * 50,
        f"{noise}Traceback (most recent call last):\nKeyError: 'a'\n",
        f"{noise}{ILLEGAL}\n{RESET}\n",
    ):
        diagnosis = Diagnosis(engine=ENGINE)
        log = diagnosis.log("log0")
        log.feed(text.encode())
        log.finish()
        scanned = diagnosis.scanned(10, text=300)
        assert len(scanned.matches) <= 10
        (elsewhere,) = correlate(scanned.matches, scanned.steps)
        assert elsewhere.cause.fault == one(text).cause.fault


def test_what_says_less_than_it_seems_moves_no_node() -> None:
    """A GPU that is not visible may be a setting, and errors of microcontrollers go by a restart: neither is worth a swap."""
    for line in (
        "[rank3]: RuntimeError: No CUDA GPUs are available",
        "[ 812.3] NVRM: Xid (PCI:0000:a1:00): 61, pid=12, name=python, 00000a3c(2000) 00000000 00000000",
        "[ 812.3] NVRM: Xid (PCI:0000:a1:00): 60, pid=12, name=python, Ch 00000001",
    ):
        assert one(f"{line}\n").cause.action_class == "restart"
    below = one(f"[rank3]: RuntimeError: No CUDA GPUs are available\n{XID_79}\n")
    assert below.cause.action_class == "swap"


def test_a_pod_that_leaves_for_want_of_memory_was_not_preempted() -> None:
    """The node ran out of memory; a pod that is evicted for something else made room."""
    lines = "Warning  Evicted  2m  kubelet  The node was low on resource: {what}."
    assert one(lines.format(what="memory") + " pod/train-3 Evicted\n").cause.fault == "host_oom"
    verdict = one("Normal  Evicted  2m  taint-eviction  pod/train-3 by default-scheduler\n")
    assert verdict.cause.fault == "preemption"


def test_bytes_that_cannot_be_decoded_are_classified_by_the_frames_above() -> None:
    """A checkpoint that is loaded, or data."""
    error = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 64: invalid start byte"
    head = "Traceback (most recent call last):\n"
    frames = {
        "checkpoint_io": '  File "/opt/job/checkpointing.py", line 88, in load_checkpoint\n',
        "data_error": '  File "/opt/job/data/text_dataset.py", line 21, in __getitem__\n',
    }
    for fault, frame in frames.items():
        assert one(f"{head}{frame}    return read(path)\n{error}\n").cause.fault == fault
    assert one(f"{head}{error}\n").cause.fault == "data_error"


def test_what_finalizers_raise_is_no_cause() -> None:
    """Python removes temporary folders at its end: the error of the run came before."""
    tear_down = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/util.py", line 303, in _run_finalizers\n'
        "    finalizer()\n"
        '  File "/usr/lib/python3.11/multiprocessing/util.py", line 227, in __call__\n'
        "    res = self._callback(*self._args, **self._kwargs)\n"
        "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-4k2x/listener-1'\n"
    )
    cause = "Traceback (most recent call last):\nFloatingPointError: loss is inf at step 812\n"
    assert one(cause + tear_down).evidence[0].line == 2
    assert one(tear_down).cause.fault == "unknown"
    after = "Traceback (most recent call last):\nFileNotFoundError: [Errno 2] No such file or directory: 'conf.yaml'\n"
    assert one(tear_down + after).cause.fault == "config_error"


# ---- interruptions, deaths and recoveries


AT = "2026-02-03T04:{minute:02d}:{second:02d}.000000+00:00 "
DOWN = "n1 kernel: mlx5_core 0000:c2:00.0 ens3f0np0: Link down"
UP = "n1 kernel: mlx5_core 0000:c2:00.0 ens3f0np0: Link up"
STEPS = "".join(f"iter {n}: loss 2.4, time 1.20ms, mfu 41.20%\n" for n in range(100, 120))


def at(minute: int, second: int, text: str) -> str:
    """Return a line with its time."""
    return AT.format(minute=minute, second=second) + text + "\n"


def test_a_link_that_went_down_a_timeout_before_the_watchdog_is_the_cause() -> None:
    """It may even be up again: what was on its way was lost, and the collective waited for it for ten minutes."""
    kernel = at(5, 0, DOWN) + at(5, 40, UP)
    watchdog = at(15, 2, "[rank3]:" + WATCHDOG.format(rank=3, sequence=42))
    verdict = one(kernel, watchdog)
    assert verdict.cause.fault == "nccl_network"
    assert verdict.evidence[0].signature == "link-down"


def test_a_link_that_was_down_hours_before_is_no_cause() -> None:
    """The collective that timed out began long after."""
    kernel = at(1, 0, DOWN) + at(1, 40, UP)
    watchdog = at(55, 2, "[rank3]:" + WATCHDOG.format(rank=3, sequence=42))
    assert one(kernel, watchdog).cause.fault == "nccl_timeout"


def test_a_link_that_flaps_without_harm_is_no_incident() -> None:
    """Unused ports go down and up as machines boot."""
    assert verdicts_of(at(1, 0, DOWN) + at(1, 40, UP), STEPS) == []
    assert verdicts_of(at(1, 0, DOWN), STEPS) == []


def test_a_link_that_was_up_and_stays_down_is_an_incident_and_so_is_one_that_flaps() -> None:
    """A cable or a port is bad; of a bond the kernel says by itself that its port was up before."""
    stays = at(1, 0, UP) + at(9, 0, DOWN)
    assert one(stays).cause.fault == "nccl_network"
    assert (
        one("".join(at(n, 0, DOWN) + at(n, 5, UP) for n in range(1, 4))).cause.fault
        == "nccl_network"
    )
    assert verdicts_of(at(1, 0, DOWN) + at(1, 5, UP) + at(2, 0, DOWN) + at(2, 5, UP)) == []
    bond = (
        "n1 kernel: bond0: (slave ens3f{port}np0): link status definitely {state}, disabling slave"
    )
    assert one(at(1, 0, bond.format(port=0, state="down"))).cause.fault == "nccl_network"
    other = at(1, 2, bond.format(port=1, state="up"))
    assert one(at(1, 0, bond.format(port=0, state="down")) + other).cause.fault == "nccl_network"
    again = at(1, 2, bond.format(port=0, state="up"))
    assert verdicts_of(at(1, 0, bond.format(port=0, state="down")) + again) == []


def test_a_table_of_a_tool_counts_where_no_step_follows_it() -> None:
    """Jobs print what the tools say before they begin; a port without a cable is no incident of a run that steps."""
    table = (
        "CA 'mlx5_3'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n"
        "/dev/nvme0n1p2  1.8T  1.8T     0 100% /scratch\n"
    )
    assert {verdict.cause.fault for verdict in verdicts_of(table)} == {"filesystem"}
    assert one(table.partition("/dev")[0]).cause.fault == "nccl_network"
    assert verdicts_of(table + STEPS) == []


def test_a_person_who_interrupts_ranks_that_wait_for_others_ends_a_hang() -> None:
    """One who interrupts a program at work ends it, as a scheduler does."""
    traceback = (
        'Traceback (most recent call last):\n  File "/app/train.py", line 5, in main\n    step()\n'
        '  File "{file}", line 88, in {function}\n    work.wait()\nKeyboardInterrupt\n'
    )
    collective = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py"
    assert one(traceback.format(file=collective, function="barrier")).cause.fault == "hang_no_error"
    at_work = one(traceback.format(file="/app/model.py", function="forward"))
    assert at_work.cause.fault == "preemption"
    assert at_work.cause.confidence < 0.5
    typed = "step 7\n^C[2026-01-02 03:04:05,678] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 22523\n"
    assert one(typed).cause.fault == "preemption"
    assert (
        verdicts_of("64 bytes from n2: icmp_seq=3 time=0.1 ms\n^C\n--- n2 ping statistics ---\n")
        == []
    )


def test_a_launcher_that_is_told_to_end_raises_a_preemption() -> None:
    """The scheduler, or a person, sent SIGTERM."""
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py", line 76, in _handler\n'
        "    raise SignalException(f'Process {{os.getpid()}} got signal: {{sigval}}', sigval=sigval)\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: {number}\n"
    )
    assert one(traceback.format(number=15)).cause.fault == "preemption"
    hung_up = one(traceback.format(number=1))
    assert hung_up.cause.fault == "preemption"
    assert one(traceback.format(number=11)).cause.fault != "preemption"


def test_words_of_errno_in_calls_into_the_fabric_are_no_disk() -> None:
    """What is read from a disk fails in the same words."""
    poll = "OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error)\n"
    assert one(poll).cause.fault == "nccl_network"
    assert one("cp: error reading 'shard-1': Input/output error\n").cause.fault == "filesystem"


def test_hardware_is_not_swapped_for_a_likely_fault_without_a_place() -> None:
    """The family of a line names its fault, and no node."""
    verdict = one("FATAL: actor 12 cannot be reached: its host was lost\n")
    assert (verdict.cause.fault, verdict.cause.action_class) == ("node_failure", "restart")


def test_a_node_of_a_graph_is_no_machine() -> None:
    """Nothing is swapped for an operator that a compiler refuses."""
    (verdict,) = verdicts_of(
        "RuntimeError: createNode failed for node: batch_gemm with status 26 [failure]\n"
    )
    assert verdict.cause.action_class != "swap"


def test_an_exception_behind_a_name_at_the_end_of_a_log_is_an_incident() -> None:
    """A program prints what it caught in its own way, and ends; one that goes on was not hurt."""
    caught = "acme.loader: RuntimeError: shard 12 of the corpus is truncated\n"
    assert one(STEPS + caught).cause.fault in ("data_error", "unknown")
    assert verdicts_of(STEPS + caught + STEPS.replace("iter 1", "iter 2")) == []
    assert verdicts_of(STEPS + "INFO " + caught) == []


def test_an_exception_of_a_c_module_is_one_though_its_name_is_small() -> None:
    """zlib.error is raised as any other."""
    assert one("zlib.error: Error -3 while decompressing data: invalid distance\n").cause.fault in (
        "data_error",
        "unknown",
    )


def test_a_file_server_that_answers_again_is_an_incident_that_is_over() -> None:
    """One that does not answer again lasts: everything that reads from it hangs. A run that goes on was not hurt."""
    silent = "[ 812.3] nfs: server 10.4.0.9 not responding, still trying\n"
    other = "[ 999.3] nfs: server 10.4.0.7 OK\n"
    lasting = one(silent + other)
    assert (lasting.cause.fault, lasting.recovered) == ("filesystem", False)
    answered = silent + other.replace("0.7", "0.9")
    over = one(answered)
    assert (over.cause.fault, over.recovered) == ("filesystem", True)
    # It does not explain how a run ended.
    assert over.cause.confidence < LEAST_CONFIDENCE
    assert verdicts_of(STEPS + answered + STEPS.replace("iter 1", "iter 2")) == []
    assert one(answered + f"{ILLEGAL}\n").cause.fault == "cuda_illegal_access"


@pytest.mark.parametrize(
    ("lost", "restored"),
    [
        (
            "Lustre: scratch-OST0003-osc-ff: Connection to scratch-OST0003 (at 10.4.0.9@o2ib) was lost; in progress operations "
            "using this service will wait for recovery to complete",
            "Lustre: scratch-OST0003-osc-ff: Connection restored to scratch-OST0003 (at 10.4.0.9@o2ib)",
        ),
        ("ceph: mds0 hung", "ceph: mds0 came back"),
        ("lockd: server filer02 not responding, still trying", "lockd: server filer02 OK"),
    ],
)
def test_other_file_servers_that_answer_again_are_over_too(lost: str, restored: str) -> None:
    """Of Lustre and Ceph, by their own words."""
    lasting = one(lost + "\n")
    assert (lasting.cause.fault, lasting.recovered) == ("filesystem", False)
    over = one(f"{lost}\n{restored}\n")
    assert (over.cause.fault, over.recovered) == ("filesystem", True)
    assert verdicts_of(f"{restored}\n") == []


def test_a_rank_that_was_killed_before_the_others_gave_up_meeting_it_is_the_cause() -> None:
    """Their rendezvous failed because it was dead; one that fails first is the cause itself."""
    killed = "torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 5 (pid: 14)\n"
    met = "torch.distributed.DistNetworkError: The client socket has timed out after 600s\n"
    assert one(killed + met).cause.fault == "host_oom"
    assert one(met + killed).cause.fault == "rendezvous"


def test_what_a_run_died_of_and_came_back_from_is_an_incident_that_is_over() -> None:
    """Steps follow in the same file after its launcher started it again; what it died of last counts."""
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    died = "torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 5 (pid: 14)\n"
    later = STEPS.replace("iter 1", "iter 2")
    over = one(STEPS + oom + died + later)
    assert (over.cause.fault, over.recovered) == ("cuda_oom", True)
    again = one(STEPS + oom + died + later + f"{ILLEGAL}\n")
    assert (again.cause.fault, again.recovered) == ("cuda_illegal_access", False)


def test_an_exception_of_no_known_kind_is_no_incident_of_a_run_that_ended_well() -> None:
    """A helper's thread may fail in one rank while another reports that training is over."""
    failed = (
        'Traceback (most recent call last):\n  File "/app/run.py", line 3, in poll\n    ask()\n'
        "acme.StatusError: no answer\n"
    )
    assert one(failed).cause.fault == "unknown"
    assert verdicts_of(failed, "Training completed in 3 hours\n") == []


def test_what_a_rank_writes_after_its_lost_peer_is_no_cause() -> None:
    """An error line of no list has the likeliest fault of its words, unless it comes after what the rank lost."""
    guessed = "ValueError: the option --stages has an unsupported value"
    assert one(guessed).cause.fault == "config_error"
    assert one(f"[rank3]: {RESET}\n[rank3]: {guessed}\n").cause.fault == "nccl_network"
    assert one(f"[rank3]: {RESET}\n[rank5]: {guessed}\n").cause.fault == "config_error"


def test_an_exception_of_no_known_kind_yields_to_what_is_known() -> None:
    """A C++ runtime that ends says nothing of the error above it."""
    ended = "terminate called without an active exception\nAborted (core dumped)\n"
    assert one(f"RuntimeError: cudaMallocAsync failed: GPU out of memory\n{ended}").cause.fault == (
        "cuda_oom"
    )


def test_a_warning_of_a_number_that_finite_steps_follow_was_handled() -> None:
    """The same words at level error count, whatever follows."""
    steps = "\n".join(f"iter {step}: loss 2.4, time 135.20ms, mfu 41.20%" for step in range(9))
    text = "the loss of sample 12 is inf"
    assert verdicts_of(f"Warning: {text}\n{steps}\n") == []
    assert one(f"ERROR {text}\n{steps}\n").cause.fault == "nan_loss"
    assert one(f"{steps}\nWarning: {text}\n").cause.fault == "nan_loss"


def test_what_a_device_plugin_reports_of_a_gpu_is_known_by_its_number() -> None:
    """The plugin for Kubernetes logs the numbers of the driver's errors in words of its own."""
    text = "health.go:180] XidCriticalError: Xid={xid} on Device=GPU-7c2b, the device will go unhealthy."
    assert one(text.format(xid=79)).cause.fault == "gpu_lost"
    assert one(text.format(xid=48)).cause.fault == "gpu_ecc"
    assert one(text.format(xid=74)).cause.fault == "nvlink_error"


def test_steps_in_the_grace_after_the_schedulers_word_do_not_take_it_back() -> None:
    """Ranks go on until they are killed; hundreds of lines later the job was requeued and runs."""
    limit = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-02-03T04:05:06 DUE TO TIME LIMIT ***"
    steps = "".join(f"step {n} loss 2.{900 - n}\n" for n in range(100, 104))
    assert (
        one(f"{steps}{limit}\nstep 104 loss 2.796\nstep 105 loss 2.795\n").cause.fault
        == "preemption"
    )
    more = "".join(f"step {n} loss 2.{900 - n}\n" for n in range(104, 204))
    assert [found for found in verdicts_of(f"{steps}{limit}\n{more}") if not found.recovered] == []


def test_an_error_whose_next_line_says_that_it_is_tried_again_was_handled() -> None:
    """A client of a service writes the error, and then what it does about it."""
    error = "2026-02-03 04:05:06 ERROR botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: x"
    assert verdicts_of(f"step 1 loss 2.9\n{error}\nRetrying in 8s [Retry 2/5].\n") == []
    assert (
        one(f"step 1 loss 2.9\n{error}\nthe retry limit was reached\n").cause.fault == "filesystem"
    )


def test_the_clean_up_of_a_channel_names_the_xid_before_it() -> None:
    """The line of that Xid itself may be lost."""
    line = "NVRM: Xid (PCI:0000:9c:00): 45, pid=71, name=pt, Ch 00000002 caused by previous Xid {}"
    assert one(line.format(150)).cause.fault == "nvlink_error"
    assert one(line.format(48)).cause.fault == "gpu_ecc"
    assert verdicts_of(line.format(13)) == []


@pytest.mark.parametrize(
    "line",
    [
        "h1:42:42 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object "
        "file: No such file or directory",
        "Jan 30 14:15:26 h1 modprobe[2129]: modprobe: FATAL: Module dm-multipath not found in directory /lib/modules/6.6.62",
    ],
)
def test_what_is_only_tried_may_be_missing(line: str) -> None:
    """A plugin that NCCL looks for at each start, and a module of the kernel that a unit loads where it is there."""
    assert verdicts_of(f"{line}\n") == []


def test_a_program_that_needs_the_library_still_names_it() -> None:
    """The same words without NCCL's look for plugins."""
    line = "python: error while loading shared libraries: libnccl.so.2: cannot open shared object file: No such file or directory"
    assert one(f"{line}\n").cause.fault == "config_error"


def test_pods_that_were_evicted_are_a_preemption() -> None:
    """The table of kubectl says so in its column of states; Completed is none."""
    table = "rank-0   0/1   {}   0   19h\nrank-1   1/1   Running   0   19h\n"
    assert one(table.format("Evicted")).cause.fault == "preemption"
    assert verdicts_of(table.format("Completed")) == []


def test_an_xid_is_read_though_its_address_was_taken_out() -> None:
    """People hide addresses before they show a log."""
    for hidden in ("PCI:...", "PCI:xxxx:xx:xx", "***"):
        line = f"kernel: NVRM: Xid ({hidden}): 95, Uncontained: LTC TAG (0x1,0x0). RST: Yes, D-RST: No\n"
        assert one(line).cause.fault == "gpu_ecc", hidden
