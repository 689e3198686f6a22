"""Machines: nodes as they really are, and agents that obey their register, keep what they could not send, and fence themselves.

A model of `runner.agent`, in virtual time: what it says, and in which order, is what a real agent says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from runner.agent.fence import Fence
from runner.facts.actions import ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.simulate.node_env import NodeEnv

# a message's way through the store
LATENCY = 0.01
# an agent's start
BOOT_SECONDS = 0.3
# ranks' start
SPAWN_SECONDS = 0.2
# until a node's checks have ended
CHECK_SECONDS = 0.5
# from SIGKILL until nothing of a rank is seen
KILL_SECONDS = 0.03
# until the stacks of a node's ranks are written down
STACKS_SECONDS = 0.05
# between two looks at the states of ranks
LOOK_SECONDS = 0.2
DRILLS = ("kill-rank", "stop-rank", "kill-node", "kill-agent")
FAR = -1e9

Condition = Literal["running", "stopped"]
NoticeKind = Literal["maintenance", "preemption"]
# of a node's checks
Verdict = Literal["PASS", "FAIL", "UNKNOWN", "hang"]


@dataclass(slots=True)
class Share:
    """The ranks of one attempt on this machine, dead ones too, until the agent is told to end them."""

    plan: LaunchPlan
    epoch: int
    # those alive
    ranks: dict[int, Condition] = field(default_factory=dict)
    stopped_at: dict[int, float] = field(default_factory=dict)
    ending: bool = False
    fenced: bool = False
    # ranks whose stacks were written down
    stacks: int = 0
    # why they were not forked, though they were to be
    cold: str = ""


def _differ_in_warm_alone(before: Assignment | None, after: Assignment) -> bool:
    """Whether only what is to be warm changed, or who obeys: then nothing about ranks is to be confirmed again."""
    if before is None or (before.warm, before.life) == (after.warm, after.life):
        return False
    return replace(before, warm=None, life="") == replace(after, warm=None, life="")


class SimNode:
    """One node. Attributes are its real condition, which the controller can only guess."""

    def __init__(self, name: str, world: NodeEnv, *, hardware: str = "") -> None:
        """`name` is what its agent calls itself; another machine may do so too."""
        self.name = name
        self.hardware = hardware or f"board:{name}"
        # of its checks
        self.verdict: Verdict = "PASS"
        self.life = ""
        self.agent = False
        self.keeper = False
        # its link: it neither hears nor is heard, and no probe reaches it
        self.cut = False
        # its ranks do not reach their peers either
        self.isolated = False
        # its agent hangs: alive, and deaf and dumb
        self.mute = False
        self.program_missing = False
        # ranks that outlive SIGKILL
        self.undying: tuple[int, ...] = ()
        # its agent begins launches, and gets nowhere
        self.is_stuck = False
        # devices of which something keeps memory
        self.devices_held = 0
        # why nothing can be forked from its warm process
        self.cold = ""
        self.share: Share | None = None
        self.incarnation = 0
        # highest obeyed
        self.epoch = 0
        self.launched: tuple[int, AttemptId] | None = None
        self._world = world
        self._assignment: Assignment | None = None
        self._launching: Assignment | None = None
        # that its devices are held; it will tell that they are free
        self._told_held = False
        self._task_cursor = 0
        # survives the agent, as its file does
        self._outbox: list[object] = []
        # exits that the keeper holds for an agent
        self._unheard: list[tuple[int, int | None]] = []
        # whether the register has named its life
        self._is_named = False
        # whether the tasks it is to read first are older than its agent
        self._has_waited = False
        self._lost_since: float | None = None
        self._progress: tuple[int | None, float] = (None, FAR)
        cluster = world.cluster
        self._fence = Fence(
            fence_seconds=cluster.fence_seconds, hard_cap_seconds=cluster.hard_cap_seconds
        )

    # ---- life -------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start an agent, and a keeper if there is none."""
        if self.agent:
            return
        if not self.keeper:
            self.share, self._unheard = None, []
        self.agent = self.keeper = True
        self.mute = False
        self.incarnation += 1
        self._assignment = self._launching = None
        self._told_held = self._is_named = False
        self._has_waited = True
        self.life = f"{self.hardware}.{self.incarnation}"
        self._join(self.life)
        share = self.share
        if share is None:
            self._confirm_gone()
        else:
            self._say_started(share)
            unheard, self._unheard = self._unheard, []
            for rank, code in unheard:
                self._say_exited(share, rank, code)
        self.read()

    def _join(self, life: str) -> None:
        """Ask for the name, and again from time to time until the register says that it is ours."""
        if self.life != life or not self.agent or self._is_named:
            return
        share = self.share
        self.say(
            s.NodeJoined(
                **self._stamp(),
                hardware=self.hardware,
                parts=(self.hardware,),
                slots=self._world.cluster.local.slots,
                address="10.0.0." + self.name[1:],
                pid=1000 + self.incarnation,
                epoch=share.epoch if share else self.epoch,
                attempt=share.plan.attempt if share else None,
                ranks_alive=tuple(share.ranks) if share else (),
            )
        )
        self._world.agenda.after(self._world.cluster.silence_seconds, lambda: self._join(life))

    def die(self) -> None:
        """Lose agent, keeper and ranks at once; what is on the disk stays."""
        self.agent = self.keeper = False
        self._unheard, self._launching = [], None
        self._lose_ranks()

    def lose_keeper(self) -> None:
        """Lose the keeper, and with it the ranks; the agent sees it and starts another."""
        self.keeper = False
        share = self.share
        ranks = list(share.ranks) if share else []
        self._lose_ranks()
        if self.agent:
            self.keeper = True
            for rank in ranks if share and not share.ending else ():
                assert share is not None
                self._say_exited(share, rank, None)

    def take_notice(self, notice: NoticeKind, seconds: float | None) -> None:
        """Pass on that the node will be taken away."""
        if self.agent:
            self.say(s.Notice(**self._stamp(), notice=notice, deadline_seconds=seconds))

    def leave(self) -> None:
        """End ranks and keeper, say so, and end."""
        if self.agent and not self.mute:
            self.say(s.NodeLeft(**self._stamp()))
            self.flush()
        self.die()

    def isolate(self) -> None:
        """Neither hear nor be heard, by the peers of its ranks neither."""
        self.cut = self.isolated = True
        if self.share is not None:
            self._world.rank_died(self.share.plan.attempt)

    def _lose_ranks(self) -> None:
        share = self.share
        if share is not None:
            share.ranks = {}
            self._world.rank_died(share.plan.attempt)

    # ---- the link ---------------------------------------------------------------------------------------------------

    @property
    def is_heard(self) -> bool:
        """Whether what its agent sends arrives."""
        return self.agent and not self.mute and not self.cut and self._world.store_answers()

    def mend(self) -> None:
        """Hear and be heard again."""
        self.cut = self.isolated = False
        self.resume()

    def resume(self) -> None:
        """Send what waited and read what was missed."""
        if self.is_heard:
            self._lost_since = None
            self.flush()
            self.read()
            self.heartbeat()

    def say(self, fact: object) -> None:
        """Send a durable signal; it waits while the store is out of reach."""
        self._outbox.append(fact)
        self._world.agenda.after(LATENCY, self.flush)

    def flush(self) -> None:
        """Send what waits, in order."""
        while self._outbox and self.is_heard:
            self._world.post(self._outbox.pop(0))

    def heartbeat(self) -> None:
        """Look, tell, and judge whether to go on without the store."""
        if not self.agent or self.mute:
            return
        share, now = self.share, self._world.agenda.now
        step = self._world.last_step(share.plan.attempt) if share else None
        if step != self._progress[0]:
            self._progress = (step, now)
        if not self.is_heard:
            self._lost_since = now if self._lost_since is None else self._lost_since
            if share is not None and not share.ending and share.ranks:
                lost, advanced = self._lost_since, self._progress[1]
                if self._fence.verdict(now, lost_since=lost, progress_at=advanced, resumed_at=FAR):
                    self._end(share, grace_seconds=0.0, fenced=True)
            return
        ranks = share.ranks if share else {}
        phase = self._world.phase(share.plan.attempt) if share else ""
        writes, every_seconds = 0, 0.0
        if share is not None and 0 in ranks:
            writes, every_seconds = self._world.writes(share.plan.attempt)
        self._world.beat(
            s.Heartbeat(
                **self._stamp(),
                epoch=share.epoch if share else self.epoch,
                attempt=share.plan.attempt if share else None,
                ranks_alive=tuple(ranks),
                ranks_stopped=self._stopped_for_long(),
                last_step=step,
                writes=writes,
                writing_seconds=every_seconds * max(0, writes - 1),
                longest_quiet_seconds=every_seconds if writes > 1 else 0.0,
                phases={str(rank): phase for rank in ranks} if phase else {},
                start=self._world.start(share.plan.attempt, tuple(ranks)) if share else {},
                warm=self.cold or "ready" if self._assignment and self._assignment.warm else "",
            )
        )

    def _stamp(self) -> dict[str, Any]:
        return {"node": self.name, "incarnation": self.incarnation, "life": self.life}

    # ---- obeying ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the register and the tasks, and obey both if the register names this agent."""
        if not self.is_heard:
            return
        assignment = self._world.read_register(self.name)
        if assignment is not None and assignment.life not in ("", self.life):
            if self._is_named:
                # another agent has the name now
                self.die()
            return
        self._is_named = self._is_named or (assignment is not None and bool(assignment.life))
        if assignment is not None and assignment.epoch >= self.epoch:
            before, self._assignment = self._assignment, assignment
            self.epoch = assignment.epoch
            if assignment.plan is not None or self.share is not None or self._launching is not None:
                self._converge()
            elif not _differ_in_warm_alone(before, assignment):
                self._confirm_gone()
        for number, task in self._world.read_tasks(self.name, self._task_cursor):
            self._task_cursor = number
            self._do(task, has_waited=self._has_waited)
        self._has_waited = self._has_waited and not self._is_named

    def _converge(self) -> None:
        wanted, share = self._assignment, self.share
        if wanted is None:
            return
        if self._launching is not None:
            if wanted.epoch > self._launching.epoch:
                self._launching = None
                self._confirm_gone()
                self._converge()
        elif share is not None:
            if wanted.plan is None or wanted.epoch > share.epoch:
                self._dump(share, wanted)
        elif wanted.plan is not None and (self.launched or (0, None))[0] < wanted.epoch:
            self.launched = (wanted.epoch, wanted.plan.attempt)
            self._launching = wanted
            self._world.agenda.after(SPAWN_SECONDS, lambda: self._spawn(wanted))

    def _confirm_gone(self) -> None:
        if self.launched is not None:
            epoch, attempt = self.launched
            self.say(s.RanksTerminated(**self._stamp(), epoch=epoch, attempt=attempt))
        idle = self._assignment
        if idle is None or idle.plan is not None or idle.attempt is None:
            return
        if self.launched is None or self.launched[1] != idle.attempt:
            self.say(s.RanksTerminated(**self._stamp(), epoch=idle.epoch, attempt=idle.attempt))

    def _spawn(self, wanted: Assignment) -> None:
        plan = wanted.plan
        if self._launching is not wanted or plan is None or not self.agent:
            return
        if self.devices_held:
            limit = self._world.cluster.device_release_seconds
            self._world.agenda.after(limit, lambda: self._give_up_waiting(wanted, plan.attempt))
            return
        if self.is_stuck:
            return
        self._launching = None
        if self.program_missing:
            reason = f"no program {plan.command[0]!r}"
            self.say(
                s.LaunchFailed(
                    **self._stamp(), epoch=wanted.epoch, attempt=plan.attempt, reason=reason
                )
            )
            return
        ranks: dict[int, Condition] = dict.fromkeys(plan.ranks, "running")
        cold = self.cold if wanted.warm is not None else ""
        self.share = Share(plan=plan, epoch=wanted.epoch, ranks=ranks, cold=cold)
        self._say_started(self.share)
        self._world.spawned(plan, wanted.epoch)
        self._converge()

    def free_devices(self) -> None:
        """Release the devices; a launch that waits for them goes on, a controller that gave up is told."""
        self.devices_held = 0
        if self._launching is not None:
            self._spawn(self._launching)
        elif self._told_held and self.agent:
            self._told_held = False
            self.say(s.DevicesReleased(**self._stamp()))

    def _give_up_waiting(self, wanted: Assignment, attempt: AttemptId) -> None:
        if self._launching is not wanted or not self.agent or not self.devices_held:
            return
        self._launching, self._told_held = None, True
        held = [f"GPU {index} has 70000 MiB in use" for index in range(self.devices_held)]
        reason = f"{', '.join(held)} after {self._world.cluster.device_release_seconds:g} s"
        self.say(
            s.LaunchFailed(
                **self._stamp(),
                epoch=wanted.epoch,
                attempt=attempt,
                reason=reason,
                devices_held=True,
            )
        )
        self._converge()

    def _say_started(self, share: Share) -> None:
        self.say(
            s.RanksStarted(
                **self._stamp(), epoch=share.epoch, attempt=share.plan.attempt, cold=share.cold
            )
        )

    def _dump(self, share: Share, wanted: Assignment) -> None:
        """End ranks as told, having written their stacks down if that is wanted."""
        if wanted.stacks_seconds < STACKS_SECONDS or not share.ranks or share.ending:
            self._end(share, grace_seconds=wanted.grace_seconds)
            return
        share.stacks, share.ending = len(share.ranks), True
        self._world.agenda.after(STACKS_SECONDS, lambda: self._kill(share))

    def _end(self, share: Share, *, grace_seconds: float, fenced: bool = False) -> None:
        share.fenced = share.fenced or fenced
        agenda = self._world.agenda
        if grace_seconds > 0 and share.ranks and not share.ending:
            agenda.after(KILL_SECONDS, lambda: self._term(share))
            agenda.after(grace_seconds, lambda: self._kill(share))
        else:
            self._kill(share)
        share.ending = True

    def _term(self, share: Share) -> None:
        """End what SIGTERM ends: everything that is not stopped."""
        share.ranks = {rank: how for rank, how in share.ranks.items() if how == "stopped"}
        self._world.rank_died(share.plan.attempt)
        if not share.ranks:
            self._kill(share)

    def _kill(self, share: Share) -> None:
        if self.share is share:
            share.ranks = {}
            self._world.rank_died(share.plan.attempt)
            wait = self._world.cluster.kill_wait_seconds if self.undying else KILL_SECONDS
            self._world.agenda.after(wait, lambda: self._gone(share))

    def _gone(self, share: Share) -> None:
        if self.share is not share or not self.agent:
            return
        self.share = None
        self.say(
            s.RanksTerminated(
                **self._stamp(),
                epoch=share.epoch,
                attempt=share.plan.attempt,
                last_step=self._world.last_step(share.plan.attempt),
                left_behind=self.undying,
                fenced=share.fenced,
                stacks=share.stacks,
            )
        )
        self._converge()

    # ---- ranks ------------------------------------------------------------------------------------------------------

    def end_rank(self, rank: int, code: int | None, words: str = "") -> None:
        """Let a rank end by itself."""
        share = self.share
        if share is None or rank not in share.ranks:
            return
        del share.ranks[rank]
        if self.agent:
            self._say_exited(share, rank, code, words)
        else:
            self._unheard.append((rank, code))
        self._world.rank_died(share.plan.attempt)

    def stop_rank(self, rank: int) -> None:
        """SIGSTOP a rank: nobody dies, nothing moves."""
        share = self.share
        if share is not None and rank in share.ranks:
            share.ranks[rank] = "stopped"
            share.stopped_at[rank] = self._world.agenda.now
            limit = self._world.cluster.stopped_seconds
            self._world.agenda.after(limit + LOOK_SECONDS / 2, self.heartbeat)

    def _stopped_for_long(self) -> tuple[int, ...]:
        now, limit = self._world.agenda.now, self._world.cluster.stopped_seconds
        stopped = self.share.stopped_at.items() if self.share is not None else ()
        return tuple(rank for rank, at in stopped if now >= at + limit)

    def _say_exited(self, share: Share, rank: int, code: int | None, words: str = "") -> None:
        self.say(
            s.RankExited(
                **self._stamp(),
                epoch=share.epoch,
                attempt=share.plan.attempt,
                rank=rank,
                exit_code=code,
                last_step=self._world.last_step(share.plan.attempt),
                stderr_tail=words,
            )
        )

    # ---- tasks ------------------------------------------------------------------------------------------------------

    def _check(self, task: Task) -> None:
        """Answer as the machine's condition is, a while later; checks that hang are answered by nobody."""
        life, verdict = self.life, self.verdict
        names = list(task.args["checks"])
        verdicts = [{"check": name, "outcome": "PASS", "reason": ""} for name in names]
        verdicts[0] |= {
            "outcome": verdict,
            "reason": "" if verdict == "PASS" else "as the story has it",
        }
        detail = {"outcome": verdict, "checks": verdicts}

        def answer() -> None:
            if self.agent and self.life == life and verdict != "hang":
                self.say(ActionResult(id=task.id, outcome="done", detail=detail))

        self._world.agenda.after(CHECK_SECONDS, answer)

    def _do(self, task: Task, *, has_waited: bool) -> None:
        if task.task == "check":
            self._check(task)
            return
        share = self.share
        refusal = ""
        if task.epoch < (share.epoch if share else self.epoch):
            refusal = f"task {task.id} is of epoch {task.epoch}, older than what runs here"
        elif has_waited and task.task == "drill":
            refusal = f"task {task.id} waited while no agent was listening here; ask again"
        elif share is None:
            refusal = f"no ranks run on node {self.name!r}"
        if refusal or share is None:
            self.say(ActionResult(id=task.id, outcome="failed", message=refusal))
        elif task.task == "drill":
            fault, rank = str(task.args["fault"]), task.args.get("rank")
            self.say(ActionResult(id=task.id, outcome="done", message=fault))
            self.flush()
            self._world.strike(fault, self.name, rank)
        else:
            understood = self._world.ask_gang(share.plan.attempt, task.id, dict(task.args))
            said = "asked" if understood else "the ranks said hello to no request"
            outcome: Literal["done", "failed"] = "done" if understood else "failed"
            self.say(ActionResult(id=task.id, outcome=outcome, message=said))
