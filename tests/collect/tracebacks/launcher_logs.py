"""Logs as launchers write them: the text of several ranks with a prefix for each, mixed, and cut."""

import random
from collections.abc import Callable, Sequence

_Prefix = Callable[[int, random.Random], str]


def _time(dice: random.Random) -> str:
    return f"2026-11-26T10:{dice.randrange(60):02d}:{dice.randrange(60):02d}.{dice.randrange(1000000):06d}"


# Name -> what is before each line of a rank.
PREFIXES: dict[str, _Prefix] = {
    "none": lambda rank, dice: "",
    "[rank3]:": lambda rank, dice: f"[rank{rank}]: ",
    "[default3]:": lambda rank, dice: f"[default{rank}]:",
    "srun -l": lambda rank, dice: f"{rank}: ",
    "mpirun --tag-output": lambda rank, dice: f"[1,{rank}]<stderr>:",
    "kubectl --prefix": lambda rank, dice: f"[pod/job-{rank}/trainer] ",
    "containerd": lambda rank, dice: f"{_time(dice)}Z stderr F [rank{rank}]: ",
    "Ray": lambda rank, dice: f"(train_fn pid={4000 + rank}, ip=10.0.0.{rank}) ",
    "docker compose": lambda rank, dice: f"worker-{rank}  | ",
    "a logger": lambda rank, dice: (
        f"{_time(dice).replace('T', ' ')} worker{rank} ERROR trainer.py:88 "
    ),
}
PEER_GONE = (
    "Traceback (most recent call last):\n"
    '  File "/job/main.py", line 31, in advance\n'
    "    self.work(self.folder)\n"
    '  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83, in wrapper\n'
    "    return func(*args, **kwargs)\n"
    '  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806, in all_reduce\n'
    "    work.wait()\n"
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:41023\n"
)


def lines_of(text: str, rank: int, *, prefix: str, dice: random.Random) -> list[str]:
    """Return the lines of a rank with their prefix."""
    write = PREFIXES[prefix]
    return [write(rank, dice) + line for line in text.rstrip("\n").split("\n")]


def mixed(writers: Sequence[Sequence[str]], dice: random.Random) -> list[str]:
    """Return the lines of several writers in any order; those of each stay in theirs."""
    left = [list(reversed(lines)) for lines in writers]
    made: list[str] = []
    while any(left):
        chosen = dice.choice([lines for lines in left if lines])
        num = min(len(chosen), dice.randrange(1, 6))
        made.extend(chosen.pop() for _ in range(num))
    return made


def torn(text: str, num_writers: int, dice: random.Random) -> str:
    """Return a traceback that several ranks write to one file at once: pieces of lines are mixed.

    The interpreter writes a line of source and the name, the colon and the message of an exception one after the other.
    """
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        name, colon, message = line.partition(": ")
        is_exception = colon and not line[:1].isspace() and " " not in name
        pieces += [name, colon, message[:-1], "\n"] if is_exception else [line[:-1], "\n"]
    return "".join(mixed([pieces] * num_writers, dice))


def log_of(text: str, *, prefix: str, form: str, steps: int, dice: random.Random) -> bytes:
    """Return the log of a job in which one rank, or all, wrote `text`.

    `form`: "alone" (one rank), "all" (four ranks wrote it, mixed), "peers" (three others lost their peer, mixed), "no start" (the
    first lines are missing), "CRLF", "torn" (three ranks wrote it behind one prefix, pieces of lines
    mixed). `steps`: lines with steps before it.
    """
    if form == "torn":
        text = torn(text, 3, dice)
    writers = [lines_of(text, 2, prefix=prefix, dice=dice)]
    others = [rank for rank in range(4) if rank != 2] if prefix != "none" else []
    if form == "all":
        writers += [lines_of(text, rank, prefix=prefix, dice=dice) for rank in others]
    if form == "peers":
        writers += [lines_of(PEER_GONE, rank, prefix=prefix, dice=dice) for rank in others]
    made = mixed(writers, dice)
    if form == "no start":
        num_frames = sum('File "' in line for line in made)
        made = made[min(2 + dice.randrange(3), max(0, num_frames - 2)) :]
    before = [
        lines_of(
            f"step {step} | loss {2.5 - step * 0.01:.4f} | grad_norm 0.31",
            0,
            prefix=prefix,
            dice=dice,
        )[0]
        for step in range(1, steps + 1)
    ]
    start = lines_of("loading the configuration\nworld size 4", 0, prefix=prefix, dice=dice)
    end = "\r\n" if form == "CRLF" else "\n"
    return (end.join([*start, *before, *made]) + end).encode()


FORMS = ("alone", "all", "peers", "no start", "CRLF", "torn")
