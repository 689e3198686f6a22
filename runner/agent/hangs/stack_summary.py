"""Stack summaries: from the file of a rank's stack dump to the few frames that a signal carries.

Ranks choose the names in these files, so the text is cut and made printable.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from runner.agent.hangs.stack_dumps import MAX_FILE_BYTES
from runner.facts import wire
from runner.facts.messages.rank_stacks import (
    MAX_COLLECTIVES,
    MAX_RANK_STACK,
    MAX_RANK_STACKS,
    Collective,
    RankStack,
    merged,
    without_records,
)

# Chosen: the message has other fields.
MAX_BYTES = wire.MAX_MESSAGE_BYTES * 3 // 4
# Chosen, in characters: Megatron-LM's longest path that matters has 52.
MAX_PATH = 70
# Chosen, not measured. The last parts of a path; the last characters of a function; those of a line.
MAX_PATH_PARTS = 4
MAX_NAME = 40
MAX_LINE = 2000
# Places of a rank that are kept where those of all ranks do not fit into a message. Chosen.
FEWER_COLLECTIVES = (MAX_COLLECTIVES, 32, 16, 8, 4)

_HEAD = re.compile(r"rank \d+, pid (\d+), state (\w+),")
_MAIN_THREAD = re.compile(r"  thread (\d+) .* ([A-Za-z])(?: in (\S+))?$", re.MULTILINE)
_PYTHON = re.compile(r"^Process (\d+):", re.MULTILINE)
_THREAD = re.compile(r"^Thread (\S+) \([^\n]*$", re.MULTILINE)
_FRAME = re.compile(r"    (.+) \((.+?)(?::(\d+))?\)")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def read_stacks(
    folder: Path, ranks: Iterable[int], recorded: Mapping[int, tuple[Collective, ...]] | None = None
) -> tuple[RankStack, ...]:
    """Return the stacks of ranks by their files in this folder, with the collectives they `recorded`; none without a file."""
    found = []
    for rank in ranks:
        try:
            with (folder / f"rank{rank}.txt").open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1024).decode(errors="replace")
        except OSError:
            continue
        rank_stack = parse_stack(rank, text)
        if rank_stack is not None:
            collectives = (recorded or {}).get(rank, ())
            found.append(replace(rank_stack, collectives=collectives))
    return _fitting(merged(found, most=MAX_RANK_STACKS))


def _fitting(rank_stacks: list[RankStack]) -> tuple[RankStack, ...]:
    """Return as many as a message holds.

    Of what was recorded the last operations are dropped first, then the groups used longest ago, then all; then the last stacks.
    """
    for most in FEWER_COLLECTIVES:
        if _num_bytes(rank_stacks) <= MAX_BYTES:
            break
        rank_stacks = [
            replace(
                stack,
                collectives=tuple(replace(each, recent=()) for each in stack.collectives[:most]),
            )
            for stack in rank_stacks
        ]
    if _num_bytes(rank_stacks) > MAX_BYTES:
        rank_stacks = merged(without_records(rank_stacks), most=MAX_RANK_STACKS)
    while _num_bytes(rank_stacks) > MAX_BYTES:
        rank_stacks = rank_stacks[:-1]
    return tuple(rank_stacks)


def _num_bytes(rank_stacks: list[RankStack]) -> int:
    return len(wire.encode_message({"rank_stacks": wire.to_plain(tuple(rank_stacks))}))


def parse_stack(rank: int, text: str) -> RankStack | None:
    """Parse the text of a rank's stack dump; None: the rank was gone, or the text is no dump."""
    head = _HEAD.match(text)
    if head is None or head[2] == "gone":
        return None
    state, wchan = head[2], ""
    main = _MAIN_THREAD.match(text, text.find("\n", head.end()) + 1)
    if main is not None and main[1] == head[1]:
        state, wchan = main[2], main[3] or ""
    return RankStack(
        ranks=(rank,),
        state=_printable(state)[:1],
        wchan=_printable(wchan)[:MAX_NAME],
        frames=_frames(text),
    )


def _frames(text: str) -> tuple[str, ...]:
    """Return the frames of the main thread, innermost first, as many as fit."""
    python = _PYTHON.search(text)
    if python is None:
        return ()
    threads = list(_THREAD.finditer(text, python.end()))
    mains = [at for at in threads if at[1] == python[1]]
    named = [at for at in threads if at[0].endswith(': "MainThread"')]
    chosen = next(iter(mains or named or threads), None)
    if chosen is None:
        return ()
    found, left = list[str](), MAX_RANK_STACK
    for line in text[chosen.end() + 1 :].split("\n"):
        # Hostile names may be long.
        match = _FRAME.fullmatch(line[:MAX_LINE])
        if match is None:
            break
        frame = _frame(match[1], match[2], match[3] or "0")
        left -= len(frame)
        if left < 0:
            break
        found.append(frame)
    return tuple(found)


def _frame(function: str, file: str, line: str) -> str:
    """Write a frame as `file:function:line`, with other characters for colons in names."""
    path = "/".join(_printable(file).replace(":", "?").split("/")[-MAX_PATH_PARTS:])
    name = _printable(function).replace(":", "?").rpartition("<locals>.")[2]
    return f"{path[-MAX_PATH:]}:{name[-MAX_NAME:]}:{line[:9]}"


def _printable(text: str) -> str:
    return _NOT_PRINTABLE.sub("?", text)
