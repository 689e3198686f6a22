"""Proposals: what the ladders of the runbooks would do about the incidents of a watched run, rung after rung.

The rung is chosen by the ladder itself (`decide/incidents/ladder`). What is proposed counts as tried once the same incident comes
again, for watch-only cannot know what the owner of the run did about it. Spares are those that its owner names; they are taken in
that order, one for each swap that is proposed. Where none is left, a rung that asks for one is named beside the rung that is taken.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from runner.checkpoints.formats.folder_scan import newest_whole_save
from runner.decide.controller import Controller
from runner.decide.incidents.conditions import culprit_node
from runner.decide.incidents.ladder import next_rung
from runner.decide.state.cluster_state import Incident
from runner.facts.specs.runbook import VERBS, Runbook, Rung

# Characters of what a rung does, in one line; chosen.
MAX_MEANING = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What Stoker would do about an incident. `meaning`: of the rung, in words; `runbook`: the page it is on.

    `spare`: the node that would take the place of `node`; "": none is known. `with_spare`: the verb of the rung that would come
    first if a spare were idle; "": none would. `resumes_from`: the newest whole checkpoint, as a path, and its step, of a rung that
    starts the run again; "", 0: none is known.
    """

    incident: str
    do: str
    node: str
    args: str
    meaning: str
    runbook: str
    try_number: int
    spare: str = ""
    with_spare: str = ""
    resumes_from: str = ""
    resume_step: int = 0

    @property
    def text(self) -> str:
        """The proposal in one line."""
        what = self._what(self.do)
        if self.do in _SWAPPING:
            what += f" for {self.spare}" if self.spare else f" for a spare ({_NONE_KNOWN})"
        with_args = f" ({self.args})" if self.args else ""
        again = f", try {self.try_number}" if self.try_number > 1 else ""
        save = f", {self.resumes_from} of step {self.resume_step}" if self.resumes_from else ""
        first = ""
        if self.with_spare:
            first = (
                f"; if a spare were idle, would {self._what(self.with_spare)} first ({_NONE_KNOWN})"
            )
        page = f"[page {self.runbook}{again}]"
        return f"{self.incident}: would {what}{with_args}: {self.meaning}{save}{first} {page}"

    def _what(self, verb: str) -> str:
        where = f" {self.node}" if self.node and verb in _ABOUT_NODES else ""
        return f"{verb.replace('_', ' ')}{where}"


# Rungs after which the run starts again from its newest checkpoint.
_RESUMING = ("restart", "restart_elsewhere", "swap", "rewind")
_SWAPPING = ("swap", "swap_at_checkpoint")
_NONE_KNOWN = "none is known: --spare"
_SPARE_IS_IDLE = "spare_is_idle"
_ABOUT_NODES = ("swap", "swap_at_checkpoint", "quarantine", "restart_elsewhere")


class Proposals:
    """What is proposed about each incident. `all`: every proposal so far, oldest first.

    `saves`: the run's own checkpoints; `spares`: nodes that its owner keeps for it.
    """

    def __init__(
        self, controller: Controller, saves: Path | None = None, spares: Sequence[str] = ()
    ) -> None:
        self._controller, self._saves, self._spares = controller, saves, spares
        self.all: list[Proposed] = []
        # Incident -> how often it had failed when something was proposed, the page, and the place on it.
        self._places: dict[str, tuple[int, str, int, int]] = {}
        # Incident and place -> the verb that an idle spare would change to.
        self._with_spare: dict[tuple[str, int, str, int, int], str] = {}
        # Spare -> the incident, and how often it had failed, for which it was proposed.
        self._taken: dict[str, tuple[str, int]] = {}

    def new(self) -> list[Proposed]:
        """Return what is proposed now and was not before."""
        found = []
        for incident in self._asking():
            proposed = self._propose(incident)
            known = [replace(one, resumes_from="", resume_step=0) for one in self.all]
            if proposed is not None and proposed not in known:
                found.append(self._with_save(proposed, incident))
        self.all += found
        return found

    def _with_save(self, proposed: Proposed, incident: Incident) -> Proposed:
        """Name the checkpoint that a new start would go on from: one before the onset, where its numbers are what is wrong."""
        if self._saves is None or proposed.do not in _RESUMING:
            return proposed
        before = incident.onset if incident.is_in_weights else None
        newest = newest_whole_save(self._saves, before=before)
        if newest is None:
            return proposed
        path, step = newest
        return replace(proposed, resumes_from=str(path), resume_step=step)

    def _asking(self) -> Iterator[Incident]:
        """Yield the incidents about which something would be done now."""
        state = self._controller.state
        for incident in state.incidents.values():
            run = state.runs.get(incident.run or 0)
            is_held = run is not None and incident.incident in run.suspended
            has_cause = incident.awaited is None and incident.state in ("open", "acting")
            if incident.is_live and (is_held or has_cause):
                yield incident

    def _propose(self, incident: Incident) -> Proposed | None:
        page = self._controller.policy.page_for(incident)
        if page is None:
            return None
        spare = self._spare_for(incident)
        book = _if_a_spare_is_idle(page) if spare else page
        num_failures = len(incident.failures)
        known = self._places.get(incident.incident)
        at = incident
        if known is not None and known[1] == book.name:
            before, _, rung, tries = known
            if before == num_failures:
                # The same failure: the same rung, or one further down, if more is known of it.
                tries -= 1
            at = structs.replace(incident, runbook=book.name, rung=rung, tries=tries)
        chosen = next_rung(book, self._controller.state, at)
        if chosen is None:
            return None
        index, try_number = chosen
        place = (num_failures, book.name, index, try_number)
        self._places[incident.incident] = place
        # As it was when this rung was proposed first: the ladder goes on from there.
        with_spare = self._with_spare.setdefault(
            (incident.incident, *place),
            "" if spare else self._verb_with_spare(page, at, index),
        )
        rung_taken: Rung = book.ladder[index]
        if rung_taken.do not in _SWAPPING:
            spare = ""
        elif spare:
            self._taken[spare] = (incident.incident, num_failures)
        return Proposed(
            incident=incident.incident,
            do=rung_taken.do,
            node=culprit_node(self._controller.state, incident) or "",
            args=", ".join(f"{name} {value}" for name, value in rung_taken.args.items()),
            meaning=_first_sentence(VERBS[rung_taken.do].meaning),
            runbook=book.name,
            try_number=try_number,
            spare=spare,
            with_spare=with_spare,
        )

    def _spare_for(self, incident: Incident) -> str:
        """Return the spare that is proposed for this failure already, or else the next one that is left; "" without any."""
        purpose = (incident.incident, len(incident.failures))
        proposed = (name for name, taken in self._taken.items() if taken == purpose)
        own = [node.node for node in self._controller.state.nodes.values()]
        left = (name for name in self._spares if name not in self._taken and name not in own)
        return next(proposed, None) or next(left, "")

    def _verb_with_spare(self, page: Runbook, at: Incident, index: int) -> str:
        """Return the verb of the rung before `index` that an idle spare would change to; "" for none."""
        chosen = next_rung(_if_a_spare_is_idle(page), self._controller.state, at)
        return page.ladder[chosen[0]].do if chosen is not None and chosen[0] < index else ""


def _if_a_spare_is_idle(page: Runbook) -> Runbook:
    """Return a page whose conditions on idle spares are decided: one is idle. Its rungs keep their places."""
    return structs.replace(page, ladder=tuple(_decided(rung) for rung in page.ladder))


def _decided(rung: Rung) -> Rung:
    wanted = rung.when.get(_SPARE_IS_IDLE)
    rest = {name: given for name, given in rung.when.items() if name != _SPARE_IS_IDLE}
    return structs.replace(rung, when=rest, tries=0 if wanted is False else rung.tries)


def _first_sentence(text: str) -> str:
    first = re.sub(r" \([^)]*\)|`", "", text.split(". ")[0]).rstrip(".")
    return textwrap.shorten(first[:1].lower() + first[1:], MAX_MEANING, placeholder=" ...")
