"""Error output: the error that ended a program is found among advice, warnings, stacks of C++ and the errors of its shutdown."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.rootcause.error_output import essential, root_error

# What PyTorch 2.x prints after an error of the GPU, and of a process group that was not closed.
ADVICE = """CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
NOT_CLOSED = (
    "[rank0]:[W1124 02:11:40.612 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before "
    "program exit, which can leak resources. For more info, please see https://example.org (function operator())\n"
)


def _stderr(tmp_path: Path, source: str) -> str:
    """Return what a real Python program writes as it dies."""
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    return done.stderr


def _line(text: str) -> str:
    error = root_error(text)
    return error.line if error is not None else ""


def test_the_first_of_chained_errors_is_the_cause(tmp_path: Path) -> None:
    """What was raised from it, and what was raised while it was handled, follows from it."""
    stderr = _stderr(
        tmp_path,
        """
        def read(shard):
            raise OSError(5, "Input/output error", shard)

        def load():
            try:
                read("/data/shard-0012.bin")
            except OSError as error:
                raise RuntimeError("the loader failed") from error

        try:
            load()
        except RuntimeError:
            {}["state"]
        """,
    )
    error = root_error(stderr)
    assert error is not None
    assert error.line == "OSError: [Errno 5] Input/output error: '/data/shard-0012.bin'"
    assert error.frames == ("train.py:load", "train.py:read")


def test_errors_of_the_shutdown_do_not_hide_the_cause(tmp_path: Path) -> None:
    """Finalizers and exit handlers run after the error, and write tracebacks of their own."""
    stderr = _stderr(
        tmp_path,
        """
        import atexit, sys

        def _cleanup():
            raise FileNotFoundError("/tmp/pymp-x1")

        class Pool:
            def __del__(self):
                raise ValueError("pool is closed")

        atexit.register(_cleanup)
        pool = Pool()
        raise FloatingPointError("loss is Inf")
        """,
    )
    assert _line(stderr) == "FloatingPointError: loss is Inf"


def test_the_error_of_a_worker_counts_not_that_of_its_parent() -> None:
    """Loaders of data quote what their worker raised, below the words 'Original Traceback'."""
    text = textwrap.dedent(
        """\
        Traceback (most recent call last):
          File "train.py", line 3, in <module>
            for batch in loader:
          File "site-packages/torch/_utils.py", line 750, in reraise
            raise exception
        KeyError: Caught KeyError in DataLoader worker process 3.
        Original Traceback (most recent call last):
          File "site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch
            data = [self.dataset[idx] for idx in possibly_batched_index]
          File "corpus.py", line 9, in __getitem__
            return self.rows[key]
        KeyError: 'tokens'
        """
    )
    error = root_error(text)
    assert error is not None
    assert error.line == "KeyError: 'tokens'"
    assert error.frames[-1] == "corpus.py:__getitem__"


def test_a_message_of_two_lines_is_read_whole() -> None:
    """The first line ends with a colon, and the next says what it is about."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\n'
        "    model.load_state_dict(state)\n"
        "RuntimeError: Error(s) in loading state_dict for GPT:\n"
        "\tsize mismatch for head.weight: copying a param with shape torch.Size([8, 4])\n"
    )
    assert "size mismatch for head.weight" in _line(text)


@pytest.mark.parametrize("prefix", ["[rank3]: ", "3: ", "[1,3]<stderr>:", "[default3]:"])
def test_prefixes_of_launchers_are_taken_off(prefix: str) -> None:
    """torchrun, srun and mpirun put the rank before every line."""
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 1, in main\n'
        "    step()\n"
        "RuntimeError: broken"
    )
    error = root_error("\n".join(prefix + line for line in traceback.splitlines()))
    assert error is not None
    assert (error.line, error.frames) == ("RuntimeError: broken", ("train.py:main",))


def test_without_a_traceback_the_last_line_that_reads_like_an_error_counts() -> None:
    """A library of C++ ends the program: its message is followed by advice and by its stack."""
    text = (
        "step 12 loss 3.2\n"
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: an illegal memory access was encountered\n"
        + ADVICE
        + "Exception raised from c10_cuda_check_implementation (most recent call first):\n"
        + "".join(f"frame #{number}: <unknown function> + 0x{number:x}\n" for number in range(90))
        + NOT_CLOSED
    )
    assert "an illegal memory access" in _line(text)


def test_what_is_no_error_is_the_last_line_without_advice() -> None:
    """Killed by a signal, a program says what it did last; only advice says nothing."""
    assert _line("epoch 3\nepoch 4\n" + NOT_CLOSED) == "epoch 4"
    assert root_error(NOT_CLOSED) is None
    assert root_error("") is None


def test_an_excerpt_keeps_the_error_however_much_follows() -> None:
    """The agent sends two kilobytes: the error and its frames, and the last lines."""
    traceback = (
        "Traceback (most recent call last):\n"
        + "".join(f'  File "deep.py", line {n}, in f{n}\n    call()\n' for n in range(200))
        + "RuntimeError: CUDA error: device-side assert triggered\n"
    )
    text = "ready\n" * 500 + traceback + ADVICE + "frame #1: x + 0x1\n" * 500 + NOT_CLOSED
    excerpt = essential(text, max_lines=20, max_bytes=2048)
    whole, cut = root_error(text), root_error(excerpt)
    assert whole is not None
    assert cut is not None
    assert (cut.line, cut.frames) == (whole.line, whole.frames)
    assert len(excerpt.encode()) <= 2048
    assert excerpt.endswith(NOT_CLOSED.strip())


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "Traceback (most recent call last):",
                    '  File "a.py", line 3, in f',
                    "During handling of the above exception, another exception occurred:",
                    "Exception ignored in: <x>",
                    "ValueError: x",
                    "[rank1]: Original Traceback (most recent call last):",
                    "",
                ]
            ),
            st.text(max_size=60),
        ),
        max_size=40,
    ),
    st.integers(1, 30),
    st.integers(1, 3000),
)
def test_any_text_has_an_answer(lines: list[str], max_lines: int, max_bytes: int) -> None:
    """Lines are hostile: nothing is raised, and an excerpt is never larger than asked."""
    text = "\n".join(lines)
    error = root_error(text)
    assert error is None or 0 <= error.first <= error.last < len(text.splitlines())
    assert len(essential(text, max_lines=max_lines, max_bytes=max_bytes).encode()) <= max_bytes


def test_rules_and_bars_are_no_last_words() -> None:
    """A summary ends with a rule, and a bar is drawn again as the program dies."""
    text = (
        "the loader lost its shard\n"
        + "=" * 60
        + "\n 45%|####      | 45/100 [00:10<00:12,  4.4it/s]\n"
    )
    root = root_error(text)
    assert root is not None
    assert root.line == "the loader lost its shard"
