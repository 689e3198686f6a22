"""Which attempts of a run have output here, of which ranks, and where the output of other ranks is."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.cli.clusters import LIVE_STATES
from runner.cli.logs.output_lines import OutputFile
from runner.errors import UserError
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import RunStatus
from runner.facts.wording import join_words, known_words

_NAME = re.compile(r"rank(\d+)\.(out|err)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is to be shown. `ranks`: () for all; `nodes`: rank -> node of the attempts that are known, {} if not asked for."""

    run: RunStatus
    attempt: AttemptId | None = None
    ranks: tuple[int, ...] = ()
    node: str | None = None
    nodes: Mapping[AttemptId, Mapping[int, str]]

    def wants(self, attempt: AttemptId, rank: int) -> bool:
        """Whether the output of a rank is to be shown."""
        is_rank = not self.ranks or rank in self.ranks
        return is_rank and (self.node is None or self.nodes.get(attempt, {}).get(rank) == self.node)


def attempts_here(run: RunStatus) -> list[AttemptId]:
    """Return the attempts whose folders are on this machine, oldest first."""
    found = []
    try:
        for path in Path(run.folder, "attempts").iterdir():
            try:
                found.append(AttemptId.parse(path.name))
            except ValueError:
                continue
    except OSError:
        return []
    return sorted(found, key=lambda attempt: attempt.numbers)


def files_here(chosen: Chosen, attempt: AttemptId) -> list[OutputFile]:
    """Return the output files of an attempt on this machine that are to be shown, by rank, standard output first."""
    found = []
    try:
        names = [path.name for path in folder_of(chosen.run, attempt).iterdir()]
    except OSError:
        names = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and chosen.wants(attempt, int(match[1])):
            path = folder_of(chosen.run, attempt) / name
            found.append(OutputFile(path, int(match[1]), match[2]))
    return sorted(found, key=lambda file: (file.rank, file.stream != "out"))


def folder_of(run: RunStatus, attempt: AttemptId) -> Path:
    """Return the folder of an attempt's output, on each of its nodes."""
    return Path(run.folder, "attempts", attempt)


def ranks_by_attempt(
    entries: Iterable[r.JournalEntry], run: int
) -> dict[AttemptId, dict[int, str]]:
    """Return the node of each rank of each attempt of a run, from the journal."""
    per_node, found = 1, dict[AttemptId, dict[int, str]]()
    for entry in entries:
        for record in entry.records:
            if isinstance(record, r.RunAdmitted) and record.run == run:
                per_node = record.spec.ranks_per_node
            elif isinstance(record, r.AttemptPlanned) and record.attempt.run == run:
                found[record.attempt] = {
                    rank: record.nodes[rank // per_node]
                    for rank in range(per_node * len(record.nodes))
                }
    return found


def attempt_to_show(chosen: Chosen) -> AttemptId:
    """Return the attempt that was asked for, or the newest that has output or nodes. Raises UserError."""
    known = sorted({*attempts_here(chosen.run), *chosen.nodes}, key=lambda known: known.numbers)
    if chosen.attempt is not None and chosen.attempt not in known:
        raise UserError(
            f"no attempt {chosen.attempt} of run {chosen.run.name!r}; {known_words(chosen.attempt, map(str, known))}"
        )
    if not known and chosen.run.state not in LIVE_STATES:
        raise UserError(
            f"run {chosen.run.run} {chosen.run.name} is {chosen.run.state}, and {chosen.run.folder} has no output of it here: "
            "it never started, its files are on another machine, or they were removed"
        )
    if not known:
        doing = chosen.run.attempt_state or chosen.run.state
        why = f" ({chosen.run.reason})" if chosen.run.reason else ""
        raise UserError(
            f"run {chosen.run.run} {chosen.run.name} has no output yet: it is {doing}{why}; `stoker logs -f` waits for it"
        )
    if chosen.attempt is not None:
        return chosen.attempt
    # An attempt that is being started has none yet.
    return next((one for one in reversed(known) if files_here(chosen, one)), known[-1])


def elsewhere(chosen: Chosen, attempt: AttemptId, here: Iterable[int]) -> Iterator[str]:
    """Yield, for each node whose ranks are to be shown and have no file here, where their files are."""
    has_file, missing = set(here), dict[str, list[int]]()
    for rank, node in chosen.nodes.get(attempt, {}).items():
        if rank not in has_file and chosen.wants(attempt, rank):
            missing.setdefault(node, []).append(rank)
    for node, ranks in missing.items():
        names = f"ranks {join_words(ranks)}" if len(ranks) > 1 else f"rank {ranks[0]}"
        path = folder_of(chosen.run, attempt) / f"rank{ranks[0]}.out"
        yield f"{names}: on node {node}, {path} there"


def unknown_choice(chosen: Chosen, attempt: AttemptId) -> str:
    """Say why nothing of an attempt is to be shown: no such rank or node; "" where there may be output."""
    known = chosen.nodes.get(attempt, {})
    for rank in chosen.ranks:
        if known and rank not in known:
            there = f"ranks 0 to {max(known)}" if max(known) else "rank 0 only"
            return f"no rank {rank} in attempt {attempt}; it has {there}"
    if chosen.node is not None and known and chosen.node not in known.values():
        return f"no node {chosen.node!r} in attempt {attempt}; {known_words(chosen.node, list(dict.fromkeys(known.values())))}"
    return ""
