"""The entry: the next round of measurements, or the verdict, as a function of the question and the results so far."""

from runner.decide.isolate.fleet import Fleet
from runner.decide.isolate.node_states import States
from runner.decide.isolate.readings import Results, read
from runner.decide.isolate.rounds import plan_round
from runner.decide.isolate.verdict import judge
from runner.facts.messages.isolation import AloneResult, Judged, Measure, Question

# No round has a higher number; what is not judged then stays undecided. Chosen, not measured.
MAX_ROUNDS = 16


def next_step(
    question: Question, results: Results, *, asked: Measure | None = None
) -> Measure | Judged:
    """Return what is to be measured next, or the verdict.

    In the middle of a round it returns what that round still lacks. The order of results does not matter. Each `Measure` asks
    for something that has no result yet, and no isolation has more than MAX_ROUNDS rounds. `asked`: the whole round of the newest
    results, which saves its calculation.
    """
    fleet = Fleet(question)
    newest = max((result.round for result in results), default=-1)
    if newest >= 0:
        begun = asked
        if begun is None or begun.round != newest:
            before = [result for result in results if result.round < newest]
            begun = plan_round(States(fleet, read(fleet, before)), newest)
        lacking = _lacking(fleet, begun, results) if begun is not None else None
        if lacking is not None:
            return lacking
    states = States(fleet, read(fleet, results))
    planned = plan_round(states, newest + 1) if newest + 1 < MAX_ROUNDS else None
    return planned if planned is not None else judge(states, num_rounds=newest + 1)


def _lacking(fleet: Fleet, begun: Measure, results: Results) -> Measure | None:
    """Return what a round lacks; None if it has a result for everything."""
    alone, pairs = {}, {}
    for result in results:
        if result.round == begun.round:
            if isinstance(result, AloneResult):
                alone[result.node] = True
            elif all(node in fleet.index for node in result.nodes):
                pairs[fleet.pair(*result.nodes)] = True
    lacking = Measure(
        round=begun.round,
        alone=tuple(node for node in begun.alone if node not in alone),
        pairs=tuple(pair for pair in begun.pairs if pair not in pairs),
    )
    return lacking if lacking.alone or lacking.pairs else None
