"""Exit codes, the same for all commands."""

from runner.errors import StokerError, StoreCorrupt, TemporaryError, UserError

DONE = 0
FAILED = 1
BAD_INPUT = 2
STOPPED = 3
NO_ANSWER = 4
STORE_ROLLED_BACK = 5
INTERRUPTED = 130

HELP = """\b
Exit codes:
  0    done; the run finished
  1    failed; the run failed, or something broke
  2    refused: bad input, or something that cannot be done as asked
  3    the run was stopped by a person
  4    no supervisor holds the lease, or it did not answer in time; a check or a curve is UNKNOWN
  5    the store lost or damaged acknowledged entries, or some do not verify: all action stops until
       `stoker store accept`
  130  interrupted with Ctrl-C; `stoker run` has stopped its run in order, other commands leave runs alone
"""

# Outcome of a health check or a check of the store -> exit code.
OF_CHECK = {"PASS": DONE, "FAIL": FAILED, "UNKNOWN": NO_ANSWER}


def of_error(error: StokerError) -> int:
    """Return the exit code for an error that ends a command."""
    if isinstance(error, UserError):
        return BAD_INPUT
    if isinstance(error, StoreCorrupt):
        return STORE_ROLLED_BACK
    return NO_ANSWER if isinstance(error, TemporaryError) else FAILED


def of_run(state: str) -> int:
    """Return the exit code for the state that a run ended in."""
    return {"finished": DONE, "stopped": STOPPED}.get(state, FAILED)
