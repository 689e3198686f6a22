"""What is proposed is what the ladder would take: the first rung, and the next one when the same comes again."""

import time
from pathlib import Path

from runner.checkpoints.formats.folder_scan import newest_whole_save
from runner.facts.matches import Match
from runner.facts.messages.signals import LinesMatched, StepRecord
from runner.facts.specs.run import RunSpec
from runner.watch.core import WatchCore
from runner.watch.proposals import Proposals
from tests.checkpoints.formats.made_saves import lightning_file


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


def lasting_sign(core: WatchCore) -> None:
    """Let the rank die of an error that its GPU will have again."""
    gang = core.gang
    assert gang is not None
    tail = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    core.signal(gang.exited(0, 1, stderr_tail=tail))
    match = Match(
        signature="torch-ecc",
        fault="gpu_ecc",
        layer="device",
        scope="gpu",
        is_lasting=True,
        text=tail,
        rank=0,
        node="here",
    )
    core.signal(
        LinesMatched(**gang.header(), generation=gang.generation, matches=(match,), is_last=True)
    )
    core.gone()
    core.judge()


def test_a_swap_that_lacks_a_spare_is_named_beside_what_is_proposed() -> None:
    """The ladder's first rung asks for an idle spare, and a watch knows of none."""
    core = begun()
    proposals = Proposals(core.controller)
    lasting_sign(core)
    (proposed,) = proposals.new()
    assert (proposed.do, proposed.with_spare, proposed.spare) == ("restart", "swap", "")
    assert (
        "; if a spare were idle, would swap here first (none is known: --spare) [" in proposed.text
    )
    assert proposals.new() == []


def test_each_swap_that_is_proposed_takes_the_next_of_the_named_spares() -> None:
    """When they are used up, and when the only one is the run's own node, it is said that none is known."""
    core = begun()
    proposals = Proposals(core.controller, spares=("here", "n8", "n9"))
    swaps = []
    for _ in range(3):
        lasting_sign(core)
        (proposed,) = proposals.new()
        swaps.append((proposed.do, proposed.spare))
        assert proposals.new() == []
        launch(core, 3)
    assert swaps[:2] == [("swap", "n8"), ("swap", "n9")]
    assert "would swap here for n8: the culprit's node leaves" in proposals.all[0].text
    assert swaps[2][1] == ""
    assert "none is known: --spare" in proposals.all[2].text


def test_the_newest_whole_checkpoint_is_named_with_what_starts_the_run_again(
    tmp_path: Path,
) -> None:
    """A torn one is passed over, though it is newer. A newer one changes no proposal that was made."""
    core = begun()
    proposals = Proposals(core.controller, tmp_path)
    crash(core)
    (first,) = proposals.new()
    assert (first.do, first.resumes_from) == ("restart", "")

    lightning_file(tmp_path / "step=2.ckpt", 2)
    lightning_file(tmp_path / "step=3.ckpt", 3)
    (tmp_path / "step=4.ckpt").write_bytes((tmp_path / "step=3.ckpt").read_bytes()[:-40])
    other = Proposals(core.controller, tmp_path)
    (named,) = other.new()
    assert (named.resumes_from, named.resume_step) == (str(tmp_path / "step=3.ckpt"), 3)
    assert f", {tmp_path}/step=3.ckpt of step 3 [page " in named.text
    lightning_file(tmp_path / "step=5.ckpt", 5)
    assert other.new() == []


def test_a_checkpoint_from_before_a_step_is_found(tmp_path: Path) -> None:
    """Where the run's numbers are wrong from a step on, newer ones are not named."""
    for step in (2, 3):
        lightning_file(tmp_path / f"step={step}.ckpt", step)
    assert newest_whole_save(tmp_path, before=3) == (tmp_path / "step=2.ckpt", 2)
    assert newest_whole_save(tmp_path, before=2) is None


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
