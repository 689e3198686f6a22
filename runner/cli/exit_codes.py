"""Exit codes, the same for all commands."""

from __future__ import annotations

DONE = 0
FAILED = 1
BAD_INPUT = 2
STOPPED = 3
NO_ANSWER = 4
STORE_FORGOT = 5
INTERRUPTED = 130

HELP = """\b
Exit codes:
  0    done; the run finished
  1    failed; the run failed, or something broke
  2    refused: bad input, or something that cannot be done as asked
  3    the run was stopped by a person
  4    no supervisor leads the cluster, or it did not answer in time; a check could not tell
  5    the store came back with less than it acknowledged, or damaged: nothing acts until a person decides (`stoker store accept`)
  130  interrupted with Ctrl-C, after an orderly stop
"""
