"""Levels of many loggers, shells and languages at the end of a log: never nothing; numbers called errors, and prose, are none."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "".join(f"step {400 + 10 * n} loss {3.1 - 0.02 * n:.4f} lr 3.00e-04\n" for n in range(8))
TEXT = "the zibble of the quorp is grum, and its frobs are blemmed all over the place"
FRAMES = {
    "kaldi": "\n[ Stack-Trace: ]\n"
    + "/x/lib.so(kaldi::Logger::Log() const+0xb42) [0x7fa15c70e692]\n" * 5
    + "spin(main+0x5cc) [0x5566]\n",
    "go": "\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:12 +0x1d\nmain.g(0x1, 0x2)\n\t/app/main.go:14 +0x2\nexit"
    " status 2\n",
    "rust": "stack backtrace:\n   0: std::panicking::begin_panic\n             at /rustc/x/library/std/src/panicking.rs:12:5\n"
    "   1: spin::turn\n   2: spin::main\nnote: Some details are omitted\n",
    "lua": "stack traceback:\n\t[C]: in function 'error'\n\t./spin.lua:12: in function 'turn'\n\t[C]: in ?\n\t[C]: at 0x00405d50\n",
    "java": "\tat org.spin.Main.main(Main.java:12)\n" * 5,
    "node": "    at turn (/app/spin.js:12:9)\n" * 5,
    "marian": "[CALL STACK]\n" + "[0x55d0]               marian::turn  + 0x12\n" * 5,
    "julia": "Stacktrace:\n [1] error(s::String)\n   @ Base ./error.jl:35\n [2] turn()\n   @ Main ./spin.jl:12\n",
}


@pytest.mark.parametrize(
    "line",
    [
        "ERROR (nnet3-init[5.5.844~1-82fea]:Input():kaldi-io.cc:756) {}",
        "KALDI_ASSERT: at spin.cc:12, failed: wheels > 0",
        "  ERROR [+5010]  {}",
        "[2025-01-02 03:04:05] Error: {}",
        "[2025-01-02 03:04:05.123] [spin] [error] {}",
        "[2025-01-02 03:04:05.123] [spin] [critical] {}",
        "2025-01-02 03:04:05 [error    ] {}",
        "2025-01-02 03:04:05.123 | ERROR    | __main__:turn:12 - {}",
        "E0102 03:04:05.678901 140 spin.py:12] {}",
        "2025-01-02T03:04:05.123Z ERROR spin::turn: {}",
        "ERRO[0003] {}",
        "3:04AM ERR {}",
        "npm ERR! {}",
        '{{"levelname": "ERROR", "message": "{}"}}',
        '{{"severity":"ERROR","message":"{}"}}',
        '{{"level":50,"time":1735787045,"msg":"{}"}}',
        "[2025-01-02 03:04:05] spin.ERROR: {}",
        "2025-01-02 03:04:05 spin[12] <Error>: {}",
        "[01/02/2025-03:04:05] [E] [TRT] {}",
        "ERROR! {}",
        "Error - {}",
        "❌ {}",
        "##[error]{}",
        "Exception in background worker 3:\n {}",
        "Error while turning it: {}",
        "An unexpected error occurred: {}",
        "Uncaught exception: {}",
        "Caused by: java.io.IOException: {}",
        "thread 'main' panicked at src/main.rs:12:5:\n{}",
        "panic: {}",
        "luajit: ./spin.lua:12: {}",
        "Error in turn(x) : {}",
        "Error using turn (line 12)\n{}",
        "Execution halted",
        "Feb  3 04:05:06 ERROR {}",
        "FAILED: {}",
        "Failure: {}",
        "Aborting: {}",
        "Aborted!",
        "Critical: {}",
        "error",
        "error[E0308]: {}",
        "spin.cc:12:7: error: {}",
        "make: *** No rule to make target 'spin'.  Stop.",
        "ninja: build stopped: subcommand failed.",
        "Fehler: {}",
        "错误：{}",
        "Hangup",
        "File size limit exceeded (core dumped)",
        "python: spin.cpp:12: void turn(): Assertion `wheels' failed.",
        "Assertion failed: (wheels), function turn, file spin.cpp, line 12.",
        "  what():  {}",
        "段错误 (核心已转储)",
        "*** stack smashing detected ***: terminated",
        "malloc(): memory corruption (fast)",
    ],
)
def test_a_line_at_error_level_ends_a_log_sick(line: str) -> None:
    """Behind steps and alone; what goes on after it is none."""
    text = line.format(TEXT) + "\n"
    for log in (text, STEPS + text):
        found = verdicts_of(log)
        assert found, log
        assert found[0].cause.fault != "preemption"
    assert not verdicts_of(text + STEPS)


@pytest.mark.parametrize("name", FRAMES)
def test_a_stack_below_an_error_hides_it_not(name: str) -> None:
    """Its frames are no lines of a log that goes on, and the best line is that of the error."""
    found = verdicts_of(f"error: {TEXT}\n{FRAMES[name]}")
    assert TEXT in found[0].cause.lines[0]


@pytest.mark.parametrize(
    "line",
    [
        "Error: 0.0312",
        "Error rate is 0.12 on validation",
        "Error rate: 12.3%",
        "Error (test) = 0.12",
        "Error at epoch 3: 0.12",
        "Error bars show one sigma",
        "Exception handling is on",
        "Errors: 0",
        "Failed: 0",
        "FAILED: 0 of 12",
        "failed to be bored",
        "No error occurred.",
        "errors occurred: 0",
        "level=info msg=spin",
        "Stack trace logging is enabled",
        '[1] "training"',
        "× 3 faster",
        "the variable was not found: a default is used instead",
        "the list index is out of range of interest",
        "spin: 1 wheel was not found in the cache, but in the store",
    ],
)
def test_numbers_called_errors_and_prose_are_none(line: str) -> None:
    """As the last line, behind steps and alone."""
    assert not verdicts_of(f"{line}\n")
    assert not verdicts_of(f"{STEPS}{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: 1: torchrun: not found",
        "sh: torchrun: not found",
        "run.sh: 3: source: not found",
        "bash: line 3: torchrun: command not found",
        "-bash: ./run.sh: No such file or directory",
        "/bin/bash: ./run.sh: /bin/zsh: bad interpreter: No such file or directory",
        "zsh: command not found: torchrun",
        "tcsh: torchrun: Command not found.",
        "fish: Unknown command: torchrun",
        'run.sh: 12: Syntax error: "(" unexpected',
        "run.sh: line 12: syntax error near unexpected token `('",
        "run.sh: line 14: unexpected EOF while looking for matching `\"'",
        "run.sh: line 8: NPROC: unbound variable",
        "run.sh: 8: NPROC: parameter not set",
        "run.sh: 7: Bad substitution",
        "/usr/bin/env: 'python3.8': No such file or directory",
        "nohup: failed to run command 'torchrun': No such file or directory",
        'OCI runtime exec failed: exec: "torchrun": executable file not found in $PATH: unknown',
        "'torchrun' is not recognized as an internal or external command,\noperable program or batch file.",
        "torchrun : The term 'torchrun' is not recognized as the name of a cmdlet, function, script file, or operable program.",
        "The system cannot find the path specified.",
    ],
)
def test_a_command_that_a_shell_cannot_run(line: str) -> None:
    """It is the launch that is wrong; a script that goes on after it did without."""
    for log in (f"{line}\n", f"cuda is chosen\n{line}\n"):
        assert [one.cause.fault for one in verdicts_of(log)] == ["config_error"]
    assert not verdicts_of(f"{line}\n{STEPS}")


@pytest.mark.parametrize(
    "before", ["", "Exception in background worker 3:\n ", "Training failed:\n"]
)
@pytest.mark.parametrize(
    "message",
    [
        "local variable 'wheel' referenced before assignment",
        "cannot access local variable 'wheel' where it is not associated with a value",
        "name 'wheel' is not defined",
        "turn() got an unexpected keyword argument 'wheel'",
        "Spin.turn() missing 1 required positional argument: 'wheel'",
        "'Spin' object has no attribute 'wheel'",
        "'NoneType' object is not subscriptable",
        "unsupported operand type(s) for +: 'int' and 'str'",
        "division by zero",
        "list index out of range",
        "No module named 'spindle'",
        "cannot import name 'turn' from 'spindle' (/opt/spindle.py)",
    ],
)
def test_a_message_of_python_without_its_class(before: str, message: str) -> None:
    """It means what it means with its class."""
    assert [one.cause.fault for one in verdicts_of(f"{before}{message}\n")] == ["config_error"]
    assert not verdicts_of(f"{before}{message}\n{STEPS}")
