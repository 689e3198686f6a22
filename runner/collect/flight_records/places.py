"""From the entries of one rank's flight record to its places: what it waits in, in order, and how far its groups are."""

import zlib
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from runner.collect.flight_records.entries import Content, Entry, Group, Status
from runner.collect.flight_records.habits import habit_at
from runner.facts.messages.rank_stacks import MAX_COLLECTIVES, PEERS, Collective
from runner.rootcause.flight.rank_spans import spans_of

MAX_GROUP_NAME = 40
# Operations of one group that a place lists. Chosen.
MAX_RECENT = 8
# Sends and receives that are listed: a pipeline stage has four open. Chosen.
MAX_PEER_PLACES = 16
# Places whose habit is examined. Chosen: the first decides.
MAX_HABITS = 8


def places_of(content: Content, *, most: int = MAX_COLLECTIVES) -> tuple[Collective, ...]:
    """Return a rank's places: those in which it waits first, by when it began them; then its other groups, the last used first."""
    known = {group.name: group for group in content.groups}
    counters = _counters(content)
    steps = _closed(content.entries)
    waiting = list[tuple[int, Collective]]()
    done = list[tuple[int, Collective]]()
    seen_p2p = [at for at, entry in steps if entry.is_p2p and not entry.is_over]
    for at in seen_p2p[:MAX_PEER_PLACES]:
        entry = content.entries[at]
        status = counters.get(entry.group)
        # A part of what was put together is never marked as over, and the counter is that of the last that was.
        if status is None or entry.sequence > status.completed:
            waiting.append((at, _peer_place(entry, known.get(entry.group))))
    by_group: dict[str, list[tuple[int, Entry]]] = {}
    for at, entry in steps:
        if not entry.is_p2p:
            by_group.setdefault(entry.group, []).append((at, entry))
    with_p2p = {entry.group for entry in content.entries if entry.is_p2p}
    for name, own in by_group.items():
        status = counters.get(name) if name not in with_p2p else None
        at, place = _group_place(own, status, known.get(name))
        (waiting if place.waits_at else done).append((at, place))
    for name, status in counters.items():
        if name not in by_group and name not in with_p2p:
            done.append((-1, _counter_place(status, known[name])))
    done = [(at, _with_doubt(place, content.entries, at)) for at, place in done]
    waiting.sort(key=lambda each: each[0])
    done.sort(key=lambda each: -each[0])
    waiting = [
        (at, _with_habit(place, content.entries, at) if number < MAX_HABITS else place)
        for number, (at, place) in enumerate(waiting)
    ]
    places = [place for _, place in waiting + done][:most]
    return (*places, *_hidden_peers(content.entries))


def _closed(entries: Sequence[Entry]) -> list[tuple[int, Entry]]:
    """Return entries with their indices; of a coalesced operation the one that closes it, or none where it is over and left out.

    torch records the parts of one without events, so they are never over.
    """
    parts: dict[tuple[str, bool, int], list[int]] = {}
    for at, entry in enumerate(entries):
        parts.setdefault((entry.group, entry.is_p2p, entry.sequence), []).append(at)
    found = list[tuple[int, Entry]]()
    for own in parts.values():
        last = entries[own[-1]]
        if len(own) == 1:
            found.append((own[0], last))
        elif "coalesced" in last.operation:
            found += _coalesced(entries, own, last)
        elif any(entries[at].is_over for at in own):
            found.append((own[-1], last))
    return sorted(found)


def _coalesced(
    entries: Sequence[Entry], own: list[int], last: Entry
) -> Iterator[tuple[int, Entry]]:
    """Yield the closing entry of a collective; of sends and receives each part, over when the closing entry is."""
    if not last.is_p2p:
        yield own[-1], last
        return
    for at in own[:-1]:
        yield at, entries[at]._replace(is_over=last.is_over)


def _counters(content: Content) -> dict[str, Status]:
    """Return the counters of groups by name. `pg_status` has the rank's own numbers of groups, entries and `pg_config` their names.

    Numbers and names both rise in the order in which groups were made, so the rest is paired by order, unless an entry
    contradicts that. gloo counts otherwise than its entries do.
    """
    if any(entry.backend == "gloo" for entry in content.entries):
        return {}
    pairs = {entry.pg_id: entry.group for entry in content.entries}
    names = [group.name for group in content.groups]
    if len(names) == len(content.status) and all(name.isdecimal() for name in names):
        ids = sorted(status.pg_id for status in content.status)
        ordered = dict(zip(ids, sorted(names, key=int), strict=True))
        if all(ordered.get(pg_id) == name for pg_id, name in pairs.items()):
            pairs = ordered
    known = set(names)
    return {
        pairs[status.pg_id]: status for status in content.status if pairs.get(status.pg_id) in known
    }


def _group_place(
    own: list[tuple[int, Entry]], status: Status | None, group: Group | None
) -> tuple[int, Collective]:
    """Return the place in one group, and the index of its entry."""
    completed = status.completed if status is not None else -1
    steps = {entry.sequence: (at, entry) for at, entry in own}
    pending = [
        number for number, (_, entry) in steps.items() if not entry.is_over and number > completed
    ]
    last = max(max(steps), status.enqueued if status is not None else 0)
    first_open = min(pending, default=0)
    at, entry = steps[first_open or max(steps)]
    recent = [
        steps[number][1] for number in range(last - MAX_RECENT + 1, last + 1) if number in steps
    ]
    is_whole = recent and recent[-1].sequence == last
    return at, Collective(
        group=group_name(entry, group),
        sequence=last,
        operation=entry.operation,
        waits_at=first_open,
        shape=entry.shape,
        members=spans_of(group.ranks) if group is not None else "",
        recent=tuple(each.signature for each in recent) if is_whole else (),
    )


def _peer_place(entry: Entry, group: Group | None) -> Collective:
    """Return the place of a send or receive, `send 0->3`, whose ranks count in the group."""
    kind, _, between = entry.operation.partition(" ")
    source, arrow, target = between.partition("->" if kind == "send" else "<-")
    is_known = arrow and source.isdecimal() and target.isdecimal() and group is not None
    if not is_known or group is None or int(target) >= len(group.ranks):
        return Collective(group=PEERS, sequence=1, operation=entry.operation, waits_at=1)
    return Collective(
        group=group_name(entry, group),
        sequence=entry.sequence,
        operation=kind,
        waits_at=entry.sequence,
        shape=entry.shape,
        members=spans_of(group.ranks),
        peer=group.ranks[int(target)],
    )


def _counter_place(status: Status, group: Group) -> Collective:
    """Return the place in a group of which the record has no entry, only counters."""
    return Collective(
        group=_name(group.name, group.description, group.ranks),
        sequence=max(status.enqueued, 0),
        members=spans_of(group.ranks),
    )


def _with_habit(place: Collective, entries: Sequence[Entry], at: int) -> Collective:
    return replace(place, habit=habit_at([f"{e.group} {e.signature}" for e in entries], at))


def _with_doubt(place: Collective, entries: Sequence[Entry], at: int) -> Collective:
    is_last = 0 <= at == len(entries) - 1 and entries[at].backend == "gloo"
    return replace(place, may_have_failed=True) if is_last else place


def _hidden_peers(entries: Sequence[Entry]) -> tuple[Collective, ...]:
    """Return the place that shows that sends and receives are not recorded: gloo counts them, and records none."""
    hidden = max(
        (each.op_id - each.sequence for each in entries if each.backend == "gloo"), default=0
    )
    return (Collective(group=PEERS, sequence=hidden),) if hidden > 0 else ()


def group_name(entry: Entry, group: Group | None) -> str:
    """Return a group's name, the same on all its ranks, with a hash of its ranks: two groups may have the same name."""
    return _name(entry.group, entry.description, group.ranks if group is not None else ())


def _name(name: str, description: str, ranks: Sequence[int]) -> str:
    shown = name if description in ("", "undefined", name) else f"{name} {description}"
    mark = f" #{zlib.crc32(str(list(ranks)).encode()) & 0xFFFF:04x}" if ranks else ""
    return shown[: MAX_GROUP_NAME - len(mark)] + mark
