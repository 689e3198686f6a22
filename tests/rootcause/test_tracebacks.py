"""Verdicts on tracebacks: from the family of an exception, the subject of the code around it, and the phase of the run."""

from dataclasses import replace

import pytest

from runner.facts.matches import Match
from runner.rootcause.tracebacks.application import with_tracebacks
from runner.rootcause.tracebacks.objects import Frame, Raised, Relation, Traceback, by_cause
from runner.rootcause.tracebacks.verdicts import TracebackVerdict, verdict_on

PACKAGES = "/venv/lib/python3.11/site-packages/"
STANDARD = "/usr/lib/python3.11/"
SCRIPT = ("/proj/train.py", "<module>")
# Stacks below the script, the outermost first.
FETCH = (
    (f"{PACKAGES}torch/utils/data/dataloader.py", "__next__"),
    (f"{PACKAGES}torch/utils/data/_utils/fetch.py", "fetch"),
)
OPEN = (("/proj/datasets/indexed_dataset.py", "__init__"),)
SAVE = (("/proj/helpers.py", "save_checkpoint"), (f"{PACKAGES}torch/serialization.py", "save"))
LOAD = (("/proj/helpers.py", "load_checkpoint"), (f"{PACKAGES}torch/serialization.py", "load"))
RAW_LOAD = ((f"{PACKAGES}torch/serialization.py", "load"),)
STEP = (
    ("/proj/train.py", "train_step"),
    (f"{PACKAGES}torch/nn/modules/module.py", "_call_impl"),
    ("/proj/net.py", "forward"),
)
ADAM = (("/proj/train.py", "train_step"), (f"{PACKAGES}torch/optim/adamw.py", "step"))
ENVIRON = ((f"{STANDARD}os.py", "__getitem__"),)
BUILD = (("/proj/train.py", "build_model"), ("/proj/net.py", "__init__"))
REDUCE = ((f"{PACKAGES}torch/distributed/distributed_c10d.py", "all_reduce"),)
INIT = ((f"{PACKAGES}torch/distributed/distributed_c10d.py", "init_process_group"),)
# Of a package that no table has; of one that reads data; of one with kernels.
OF_ACME = ((f"{PACKAGES}acme/utils/rl_dataset.py", "build"),)
CAST = ((f"{PACKAGES}datasets/builder.py", "_prepare_split_single"),)
KERNEL = ((f"{PACKAGES}flash_attn/flash_attn_interface.py", "_flash_attn_varlen_forward"),)
FINALIZE = ((f"{STANDARD}multiprocessing/util.py", "_run_finalizers"),)

# A task that waits for another one; an engine that starts in a worker; what an executor passes on.
TASK = (("/proj/runner.py", "run"), (f"{PACKAGES}ray/_private/worker.py", "get_objects"))
ENGINE = (
    ("/proj/rollout.py", "fit"),
    (f"{PACKAGES}vllm/v1/core/kv_cache_utils.py", "check_enough_memory"),
)
EXECUTOR = ((f"{STANDARD}concurrent/futures/_base.py", "result"),)

_Places = tuple[tuple[str, str], ...]


def raised(
    name: str, message: str, places: _Places = (), *, line: int = 9, relation: Relation = ""
) -> Raised:
    """Make an exception that was raised below the script."""
    frames = tuple(Frame(file, 1, function) for file, function in (SCRIPT, *places))
    text = f"{name}: {message}"
    return Raised(
        name=name, message=message, line=line, text=text, frames=frames, relation=relation
    )


def traceback(*chain: Raised) -> Traceback:
    """Make a traceback of these exceptions."""
    return Traceback(file="log", first=1, last=max(one.line for one in chain), chain=chain)


def judged(name: str, message: str, places: _Places) -> TracebackVerdict:
    """Judge one exception."""
    return verdict_on(traceback(raised(name, message, places)))


@pytest.mark.parametrize(
    ("fault", "name", "message", "places"),
    [
        ("data_error", "ValueError", "document 7 is empty", FETCH),
        ("data_error", "KeyError", "'tokens'", FETCH),
        ("data_error", "StopIteration", "", STEP),
        ("data_error", "PIL.UnidentifiedImageError", "cannot identify image file", STEP),
        ("data_error", "FileNotFoundError", "[Errno 2] No such file: 'x'", FETCH),
        ("data_error", "AssertionError", "no header in /data/shard_7.idx", OPEN),
        ("config_error", "AssertionError", "width is 7", OPEN),
        ("checkpoint_io", "OSError", "[Errno 28] No space left on device", SAVE),
        ("checkpoint_io", "OSError", "[Errno 116] Stale file handle: '/mnt/x'", SAVE),
        ("checkpoint_io", "RuntimeError", "no tensor", LOAD),
        ("checkpoint_io", "UnicodeDecodeError", "'utf-8' codec can't decode byte 0x80", LOAD),
        ("checkpoint_io", "EOFError", "Ran out of input", RAW_LOAD),
        ("data_error", "EOFError", "Ran out of input", FETCH + RAW_LOAD),
        ("checkpoint_io", "FileNotFoundError", "[Errno 2] No such file: '/ckpt/7.pt'", STEP),
        ("filesystem", "OSError", "[Errno 116] Stale file handle: '/mnt/x'", STEP),
        ("filesystem", "OSError", "[Errno 28] No space left on device", STEP),
        ("config_error", "ImportError", "cannot import name 'x'", STEP),
        ("config_error", "pydantic_core._pydantic_core.ValidationError", "1 error", ()),
        ("config_error", "acme.errors.AcmeConfigError", "no such option", STEP),
        ("config_error", "ValueError", "width 10 and 3 heads do not fit", BUILD),
        ("config_error", "ValueError", "environment variable RANK expected", INIT),
        ("config_error", "RuntimeError", "sizes do not fit", ADAM),
        ("config_error", "KeyError", "'LOCAL_RANK'", ENVIRON),
        ("config_error", "AttributeError", "Can't pickle local object 'main.<locals>.f'", FETCH),
        ("unknown", "ValueError", "router chose 3 of 2 experts", STEP),
        ("rendezvous", "RuntimeError", "no peer came", INIT),
        ("nccl_timeout", "RuntimeError", "Timed out waiting 1800000ms", REDUCE),
        ("nccl_network", "RuntimeError", "Connection closed by peer", REDUCE),
        ("host_oom", "MemoryError", "", FETCH),
        ("cuda_oom", "torch.OutOfMemoryError", "CUDA out of memory", STEP),
        ("cuda_illegal_access", "torch.AcceleratorError", "CUDA error: misaligned address", STEP),
        ("cuda_illegal_access", "RuntimeError", "Triton Error [CUDA]: misaligned address", STEP),
        ("nan_loss", "ValueError", "loss is nan at step 7", STEP),
        ("nan_loss", "FloatingPointError", "overflow encountered in exp", STEP),
        ("data_error", "KeyError", "'prompt'", OF_ACME),
        ("data_error", "TypeError", "Couldn't cast array of type x", CAST),
        ("config_error", "RuntimeError", "cu_seqlens_q must have shape (batch_size + 1)", KERNEL),
        (
            "unknown",
            "RuntimeError",
            "DataLoader worker (pid 7) is killed by signal: Terminated. ",
            FETCH,
        ),
        ("host_oom", "ray.exceptions.OutOfMemoryError", "the node runs low on memory", STEP),
        ("config_error", "ValueError", "No available memory for the cache blocks.", ENGINE),
        ("config_error", "ValueError", "no such backend", (*EXECUTOR, *ENGINE)),
        ("config_error", "RuntimeError", "no such backend", (*EXECUTOR, *BUILD)),
        ("unknown", "RuntimeError", "cannot schedule new futures", EXECUTOR),
        ("unknown", "RuntimeError", "Engine died. See root cause above. Failed: {}", BUILD),
        ("config_error", "XlaRuntimeError", "INVALID_ARGUMENT: shapes differ", STEP),
        ("preemption", "KeyboardInterrupt", "", STEP),
        ("host_oom", "std::runtime_error", "[malloc] Unable to allocate 12 bytes.", ()),
        ("config_error", "acme.CommError", "upsert: returned error 403 Forbidden", ()),
        ("config_error", "acme.ClientException", "status code: 401, body: {}", ()),
        ("checkpoint_io", "tf.errors.DataLossError", "Unable to open /runs/7/ptb.ckpt", ()),
        ("data_error", "tf.errors.DataLossError", "corrupted record at 28311552", ()),
        ("nccl_timeout", "c10::DistBackendError", "collective operation timeout: WorkNCCL", ()),
        ("", "torch.distributed.elastic.multiprocessing.api.SignalException", "signal 15", ()),
        ("", "FileNotFoundError", "[Errno 2] No such file: '/tmp/pymp-1/x'", FINALIZE),
    ],
)
def test_a_fault_follows_from_class_code_and_phase(
    fault: str, name: str, message: str, places: _Places
) -> None:
    """The errno and the class first, then the package, then what the program was doing."""
    assert judged(name, message, places).finding.fault == fault


def test_the_first_exception_of_a_chain_is_the_cause() -> None:
    """What was raised because of it says less."""
    first = raised("OSError", "[Errno 5] Input/output error", SAVE, line=4)
    verdict = verdict_on(traceback(first, raised("RuntimeError", "no save", relation="cause")))
    assert (verdict.finding.fault, verdict.raised.line) == ("checkpoint_io", 4)


def test_a_lookup_that_was_handled_is_not_the_cause() -> None:
    """Programs ask forgiveness: a cache that lacks a key leads to the real work."""
    first = raised("KeyError", "'part-3'", FETCH, line=4)
    later = raised("OSError", "[Errno 5] Input/output error", FETCH, relation="context")
    assert verdict_on(traceback(first, later)).raised is later


def test_the_error_of_a_worker_counts_and_not_the_one_that_quotes_it() -> None:
    """A loader, a pool and a launcher report what a child raised."""
    quoting = raised("ray.exceptions.RayTaskError(ValueError)", "ray::work()", line=4)
    original = raised("ValueError", "document 7 is empty", FETCH, relation="original")
    verdict = verdict_on(traceback(quoting, original))
    assert (verdict.finding.fault, verdict.raised) == ("data_error", original)


def test_the_innermost_of_nested_tasks_counts() -> None:
    """Ray's error of a task quotes that of the task that it called, and names its class; none of them is the cause."""
    wrappers = [
        raised("ray.exceptions.RayTaskError(ValueError)", "ray::A.f()", TASK, relation=relation)
        for relation in ("", "original", "original")
    ]
    root = raised("ValueError", "no such backend", ENGINE, line=30, relation="original")
    verdict = verdict_on(traceback(*wrappers, root))
    assert (verdict.finding.fault, verdict.raised) == ("config_error", root)
    nested = [wrappers[0], replace(wrappers[1], line=12), replace(wrappers[2], line=21), root]
    assert [one.line for one in by_cause(tuple(nested))] == [30, 21, 12, 9]


def test_members_of_a_group_stay_in_their_order_around_what_they_quote() -> None:
    """A member that quotes a worker comes after that worker's error, and before the next member."""
    lines = [
        raised("ExceptionGroup", "2 sub-exceptions", line=1),
        raised("RuntimeError", "Caught OSError in worker", line=2, relation="member"),
        raised("OSError", "[Errno 5] Input/output error", line=3, relation="original"),
        raised("ValueError", "row 7", line=4, relation="member"),
    ]
    assert [one.line for one in by_cause(tuple(lines))] == [3, 2, 4, 1]


def test_a_member_of_a_group_counts_and_not_the_group() -> None:
    """The group has no cause of its own."""
    group = raised("ExceptionGroup", "saves failed (2 sub-exceptions)", SAVE, line=4)
    member = raised("OSError", "[Errno 5] Input/output error", SAVE, line=7, relation="member")
    assert verdict_on(traceback(group, member)).raised is member


def test_a_lost_peer_and_a_dead_child_are_no_causes() -> None:
    """They yield to the error of the rank that died first."""
    lost = judged("ConnectionResetError", "[Errno 104] Connection reset by peer", STEP)
    child = judged("subprocess.CalledProcessError", "returned exit status 1", ())
    assert lost.finding.layer == "collective"
    assert child.finding.layer == "launcher"


def test_a_line_that_a_signature_knows_stays_and_lines_in_context_go() -> None:
    """The words of a library are more specific than its place; general words are not."""
    one = traceback(raised("RuntimeError", "DefaultCPUAllocator: not enough memory", STEP))
    known = Match(
        signature="host", fault="host_oom", layer="machine", scope="node", file="log", line=9
    )
    frame = Match(
        signature="f",
        fault="",
        layer="program",
        scope="user",
        role="frame-of-data",
        file="log",
        line=3,
    )
    assert with_tracebacks([frame, known], [one]) == [known]
    (added,) = with_tracebacks([frame], [one])
    assert (added.known_by, added.line) == ("traceback", 9)


def test_data_or_checkpoint_is_decided_by_the_code_that_read_them() -> None:
    """Broken bytes look alike."""
    one = traceback(raised("json.decoder.JSONDecodeError", "Expecting value", LOAD))
    known = Match(
        signature="json", fault="data_error", layer="program", scope="user", file="log", line=9
    )
    (added,) = with_tracebacks([known], [one])
    assert added.fault == "checkpoint_io"


def test_what_a_launcher_states_of_a_death_is_the_cause() -> None:
    """That a process is gone is a consequence; with what it died is none, and what may have been is no statement."""
    maybe = "There are some potential root causes. (1) it was killed for want of memory: OOM killer"
    for message, fault in (
        ("The worker is gone.\nIts node 12ab was removed: it crashed.", "node_failure"),
        ("The task was killed: the host is running low on memory.", "host_oom"),
        ("The task was preempted by a task of a higher priority.", "preemption"),
        (f"The worker is gone. {maybe}", "unknown"),
    ):
        assert judged("ray.exceptions.RayActorError", message, ()).finding.fault == fault


def test_a_failed_check_of_a_third_partys_file_is_about_what_that_file_does() -> None:
    """Wherever the code that called it lies."""
    message = (
        "[enforce fail at inline_container.cc:611] . PytorchStreamWriter failed writing file data/9"
    )
    assert judged("RuntimeError", message, FETCH).finding.fault == "checkpoint_io"
