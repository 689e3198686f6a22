"""What is proposed is what the ladder would take: the first rung, and the next one when the same comes again."""

import time

from runner.facts.messages.signals import StepRecord
from runner.facts.specs.run import RunSpec
from runner.watch.core import WatchCore
from runner.watch.proposals import Proposals


def begun() -> WatchCore:
    """Return a watch of one rank that has made three steps."""
    core = WatchCore("job", node="here")
    spec = RunSpec(
        name="job",
        command=("watched",),
        working_directory="/",
        mode="off",
        max_attempts_without_progress=1000,
    )
    core.begin_run(spec)
    launch(core, 3)
    return core


def launch(core: WatchCore, steps: int) -> None:
    """Start the next gang, which makes so many steps."""
    now = time.monotonic()
    gang = core.launched({0: 0}, now)
    assert gang is not None
    for fact in gang.add_log_steps([StepRecord(step=step + 1) for step in range(steps)], 0, now):
        core.signal(fact)
    core.heartbeat(gang.heartbeat(now))


def crash(core: WatchCore) -> None:
    """Let the rank die and the gang be gone."""
    gang = core.gang
    assert gang is not None
    core.signal(gang.exited(0, 1, stderr_tail="ValueError: no such thing"))
    core.gone()
    core.judge()


def test_the_same_crash_again_goes_down_the_ladder() -> None:
    """Its owner restarts it each time, and it dies at the same step: restarts in the end give way to a stop."""
    core = begun()
    proposals = Proposals(core.controller)
    done = []
    for _ in range(6):
        crash(core)
        done += [one.do for one in proposals.new()]
        launch(core, 3)
    assert done[0] == "restart"
    assert done[-1] == "stop"
    assert len(core.controller.state.incidents) == 1


def test_nothing_is_proposed_of_a_run_that_goes_on() -> None:
    """Nor twice for one incident."""
    core = begun()
    proposals = Proposals(core.controller)
    assert proposals.new() == []
    crash(core)
    assert len(proposals.new()) == 1
    assert proposals.new() == []


def test_a_watch_issues_no_action_that_could_reach_anything() -> None:
    """The mode is off: what is issued prepares a launch that is another's, or pages; nothing is left open."""
    core = begun()
    kinds: list[str] = []
    submit = core.submit

    def record(action: object) -> None:
        kinds.append(action.action)  # type: ignore[attr-defined]
        submit(action)  # type: ignore[arg-type]

    core.submit = record  # type: ignore[method-assign]
    for _ in range(3):
        crash(core)
        launch(core, 3)
    assert set(kinds) <= {"prepare_attempt", "page"}
    assert not core.controller.state.actions
