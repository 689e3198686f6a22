"""The reader of tracebacks: what is made of the forms in which interpreters, libraries and launchers print them."""

import subprocess
import sys
from pathlib import Path

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.messages.log_search import SearchResult
from runner.rootcause.correlation import correlate
from runner.rootcause.tracebacks.objects import Traceback

SCRIPT = """
import sys


def inner():
    return {}["tokens"]


def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("the sample cannot be used") from error


if __name__ == "__main__":
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


def printed(folder: Path, body: str, *options: str) -> str:
    """Run a script that ends with `body`; return what it wrote to its standard error."""
    script = folder / "script.py"
    script.write_text(SCRIPT + "".join(f"    {line}\n" for line in body.splitlines()))
    done = subprocess.run(
        [sys.executable, *options, str(script)], capture_output=True, text=True, check=False
    )
    return done.stderr


def read(text: str | bytes, engine: Engine) -> tuple[Traceback, ...]:
    """Return the tracebacks of a log."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("job.log")
    log.feed(text if isinstance(text, bytes) else text.encode())
    log.finish()
    return tuple(log.tracebacks)


def deciding(text: str, engine: Engine) -> Match:
    """Return the first line of evidence of a log's verdict."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("job.log")
    log.feed(text.encode())
    log.finish()
    return diagnosis.verdicts()[0].evidence[0]


def test_a_chain_has_its_exceptions_with_their_frames_in_order(
    tmp_path: Path, engine: Engine
) -> None:
    """Each exception has its class, message and stack; the second one followed from the first."""
    (one,) = read(printed(tmp_path, "outer()"), engine)
    first, second = one.chain
    assert (first.name, first.message, first.relation) == ("KeyError", "'tokens'", "")
    assert [frame.function for frame in first.frames] == ["outer", "inner"]
    assert first.frames[-1].code == 'return {}["tokens"]'
    assert (second.name, second.relation) == ("ValueError", "cause")
    assert [frame.function for frame in second.frames] == ["<module>", "outer"]
    assert (one.first, one.last) == (1, second.line)


def test_members_of_exception_groups_belong_to_their_group(tmp_path: Path, engine: Engine) -> None:
    """Groups may be nested; a member may have no stack."""
    body = (
        "try:\n    outer()\nexcept ValueError as error:\n    kept = error\n"
        'group = ExceptionGroup("inner", [kept, TypeError("no stack")])\n'
        'raise ExceptionGroup("outer", [group, OSError(5, "Input/output error")])'
    )
    (one,) = read(printed(tmp_path, body), engine)
    names = [raised.name for raised in one.chain]
    assert names == [
        "ExceptionGroup",
        "ExceptionGroup",
        "KeyError",
        "ValueError",
        "TypeError",
        "OSError",
    ]
    assert [raised.relation for raised in one.chain] == [
        "",
        "member",
        "member",
        "cause",
        "member",
        "member",
    ]


def test_a_box_of_rich_is_a_traceback(tmp_path: Path, engine: Engine) -> None:
    """Its frames have no quotes, and their lines of source are within the box."""
    pytest.importorskip("rich")
    body = "from rich.traceback import install\ninstall(show_locals=True)\nouter()"
    (one,) = read(printed(tmp_path, body), engine)
    first, second = one.chain
    assert (first.name, second.name, second.relation) == ("KeyError", "ValueError", "cause")
    assert [frame.function for frame in first.frames] == ["outer", "inner"]
    assert 'return {}["tokens"]' in first.frames[-1].code


def test_the_fault_handler_shows_the_stack_of_the_thread_that_failed(
    tmp_path: Path, engine: Engine
) -> None:
    """It prints the innermost call first."""
    body = "import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(0)"
    (one,) = read(printed(tmp_path, body), engine)
    assert one.kind == "fatal"
    assert one.chain[0].message == "Segmentation fault"
    assert [frame.function for frame in one.chain[0].frames] == ["<module>", "string_at"]


def test_a_child_process_and_a_thread_name_themselves(tmp_path: Path, engine: Engine) -> None:
    """The line above a traceback has its owner."""
    body = (
        "import multiprocessing, threading\n"
        'child = multiprocessing.get_context("fork").Process(target=inner)\n'
        "child.start()\nchild.join()\n"
        "thread = threading.Thread(target=inner)\nthread.start()\nthread.join()"
    )
    owners = [one.owner for one in read(printed(tmp_path, body), engine)]
    assert owners[0] == "Process ForkProcess-1"
    assert owners[1].startswith("Exception in thread Thread-1")


def test_an_error_in_a_pool_is_the_one_of_its_worker(tmp_path: Path, engine: Engine) -> None:
    """The pool repeats it between quotes."""
    body = (
        "import multiprocessing\n"
        'with multiprocessing.get_context("fork").Pool(1) as pool:\n    pool.apply(inner)'
    )
    (one,) = read(printed(tmp_path, body), engine)
    assert [(raised.name, raised.relation) for raised in one.chain] == [
        ("KeyError", ""),
        ("KeyError", "cause"),
    ]
    assert one.chain[0].frames[-1].function == "inner"


def test_what_the_interpreter_ignores_is_no_failure(tmp_path: Path, engine: Engine) -> None:
    """Finalizers and exit functions may raise."""
    body = "import atexit\natexit.register(inner)"
    (one,) = read(printed(tmp_path, body), engine)
    assert one.is_ignored


def test_a_worker_of_a_data_loader_has_its_original_error(engine: Engine) -> None:
    """Torch repeats it within the message of its own error."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 9, in <module>\n'
        "    for batch in loader:\n"
        "KeyError: Caught KeyError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/app/rows.py", line 4, in __getitem__\n'
        "    return self.rows[index]\n"
        "KeyError: 7\n\n"
    )
    (one,) = read(text, engine)
    assert [(raised.name, raised.relation, raised.line) for raised in one.chain] == [
        ("KeyError", "", 4),
        ("KeyError", "original", 8),
    ]
    assert deciding(text, engine).line == 8


def test_ray_repeats_the_error_of_its_task(engine: Engine) -> None:
    """Its stack has no header."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/app/tune.py", line 12, in <module>\n'
        "    ray.get(task)\n"
        "ray.exceptions.RayTaskError(KeyError): \x1b[36mray::train()\x1b[39m (pid=511, ip=10.0.0.3)\n"
        '  File "/app/rows.py", line 4, in __getitem__\n'
        "    return self.rows[index]\n"
        "KeyError: 'tokens'\n"
    )
    (one,) = read(text, engine)
    assert [(raised.name, raised.relation) for raised in one.chain] == [
        ("ray.exceptions.RayTaskError(KeyError)", ""),
        ("KeyError", "original"),
    ]


@pytest.mark.parametrize(
    "prefix", ["", "(Runner pid=7) ", "(Runner(rank=0) pid=7, ip=10.0.0.3) ", "(my actor pid=7) "]
)
def test_nested_errors_of_ray_end_at_the_innermost(prefix: str, engine: Engine) -> None:
    """A task quotes the actor that it called; Ray replaces each header, that of a chained exception too."""
    actor = "(pid=8, ip=10.0.0.4, actor_id=0a1b, repr=<pool.Pool object at 0x7f00>)"
    text = (
        "Traceback (most recent call last):\n"
        '  File "/app/main.py", line 12, in <module>\n'
        "    ray.get(task)\n"
        "ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=7, ip=10.0.0.3)\n"
        '  File "/app/runner.py", line 5, in run\n'
        "    ray.get(pool.fill.remote())\n"
        f"ray.exceptions.RayTaskError(ValueError): ray::Pool.fill() {actor}\n"
        '  File "/app/pool.py", line 8, in fill\n'
        "    return self.made[name]\n"
        "KeyError: 'a'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        f"ray::Pool.fill() {actor}\n"
        '  File "/app/pool.py", line 10, in __init__\n'
        "    raise ValueError(name)\n"
        "ValueError: no engine is named a\n"
    )
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    (one,) = read(text, engine)
    assert not one.is_torn
    assert [(raised.line, raised.relation) for raised in one.chain] == [
        *((4, ""), (7, "original"), (10, "original"), (17, "context")),
    ]
    assert deciding(text, engine).line == 17


def test_the_summary_of_torchrun_names_the_rank_of_a_traceback(engine: Engine) -> None:
    """Its lines are indented, and the rank stands above them."""
    text = (
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-11-26_10:00:00\n"
        "  rank      : 3 (local_rank: 3)\n"
        "  exitcode  : 1 (pid: 4711)\n"
        "  error_file: /tmp/torchelastic_x/attempt_0/3/error.json\n"
        "  traceback : Traceback (most recent call last):\n"
        '    File "/app/train.py", line 12, in main\n'
        "      run()\n"
        "  ZeroDivisionError: division by zero\n"
        "  \n"
    )
    (one,) = read(text, engine)
    assert one.rank == 3
    assert one.chain[0].name == "ZeroDivisionError"
    assert one.chain[0].frames[0].code == "run()"


def test_a_stack_of_cpp_has_its_message_and_its_source(engine: Engine) -> None:
    """libstdc++ prints the class, libc10 where it was raised."""
    text = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated\n"
        "Exception raised from ncclCommWatchdog at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1902 "
        "(most recent call first):\n"
        "frame #0: c10::Error::Error(std::string) + 0x96 (0x7f in /opt/torch/lib/libc10.so)\n"
        "frame #1: c10d::ProcessGroupNCCL::watchdog() + 0x1a (0x7f in /opt/torch/lib/libtorch_cuda.so)\n"
    )
    (one,) = read(text, engine)
    (raised,) = one.chain
    assert (one.kind, raised.name) == ("cpp", "c10::DistBackendError")
    assert raised.source.endswith("ProcessGroupNCCL.cpp")
    assert raised.frames[-1].file == "/opt/torch/lib/libc10.so"


def test_ranks_that_write_at_once_have_their_own_tracebacks(engine: Engine) -> None:
    """Behind any prefix, also one that no launcher is known for."""
    ranks = [
        [
            f"worker-{rank} | Traceback (most recent call last):",
            f'worker-{rank} |   File "/app/train.py", line {rank}, in main',
            f"worker-{rank} |     run({rank})",
            f"worker-{rank} | ValueError: rank {rank} failed",
        ]
        for rank in range(3)
    ]
    text = "\n".join(line for lines in zip(*ranks, strict=True) for line in lines) + "\n"
    found = read(text, engine)
    assert sorted(one.chain[0].message for one in found) == [
        f"rank {rank} failed" for rank in range(3)
    ]
    assert all(len(one.chain[0].frames) == 1 for one in found)


def test_a_prefix_that_a_logger_wrote_once_is_no_prefix(engine: Engine) -> None:
    """The lines after the header have none."""
    text = (
        "2026-11-26 10:00:00,123 ERROR trainer: Traceback (most recent call last):\n"
        '  File "/app/train.py", line 7, in main\n'
        "    run()\n"
        "ValueError: no run\n"
    )
    (one,) = read(text, engine)
    assert one.chain[0].name == "ValueError"


def test_a_traceback_within_a_line_of_json_is_read(engine: Engine) -> None:
    """Its ends of lines are escaped."""
    text = (
        '{"level": "error", "message": "Traceback (most recent call last):\\n  File \\"/app/rows.py\\", line 7, in __getitem__\\n'
        '    return self.rows[3]\\nIndexError: list index out of range", "rank": 2}\n'
    )
    (one,) = read(text, engine)
    assert one.chain[0].name == "IndexError"
    assert one.chain[0].message == "list index out of range"
    assert one.chain[0].frames[0].file == "/app/rows.py"


def test_a_traceback_without_its_header_counts(engine: Engine) -> None:
    """The log was cut off at its start."""
    text = (
        '    return load()\n  File "/app/rows.py", line 7, in __getitem__\n    return 1 / 0\n'
        "ZeroDivisionError: division by zero\n"
    )
    (one,) = read(text, engine)
    assert one.is_cut
    assert one.chain[0].name == "ZeroDivisionError"


def test_what_was_logged_and_retried_is_no_failure(engine: Engine) -> None:
    """A warning says what the program does about it."""
    text = (
        "2026-11-26 10:00:00,123 WARNING reader: part-3 is broken, skipping it\n"
        "Traceback (most recent call last):\n"
        '  File "/app/rows.py", line 7, in __getitem__\n'
        "    return self.rows[3]\n"
        "IndexError: list index out of range\n"
    )
    (one,) = read(text, engine)
    assert one.is_logged


def test_what_an_agent_reports_of_a_traceback_is_judged_alike_by_the_supervisor(
    engine: Engine,
) -> None:
    """The supervisor has no frames: what was read of them travels with the match."""
    text = (
        "step 4 | loss 2.1\n"
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 9, in <module>\n'
        "    write(model)\n"
        '  File "/app/helpers.py", line 4, in save_checkpoint\n'
        "    torch.save(model, path)\n"
        '  File "/venv/lib/python3.11/site-packages/torch/serialization.py", line 900, in save\n'
        "    raise error\n"
        "acme.storage.BucketError: the bucket refused part 3\n"
    )
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("rank3.err", rank=3)
    log.feed(text.encode())
    log.finish()
    found = diagnosis.scanned(10, text=300)
    encoded = wire.decode(wire.encode(SearchResult(number=1, found=found)))
    assert isinstance(encoded, SearchResult)
    (verdict,) = correlate(encoded.found.matches, encoded.found.steps)
    assert verdict.cause == diagnosis.verdicts()[0].cause
    assert (verdict.cause.fault, verdict.evidence[0].rank) == ("checkpoint_io", 3)
