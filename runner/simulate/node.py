"""Simulated nodes: their real condition, and agents that obey their register, buffer signals, and fence themselves.

A model of `runner.agent` in virtual time: it sends what a real agent sends, in the same order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from runner.agent.fence import Fence
from runner.agent.folders import OVERDUE_SECONDS
from runner.agent.tasks import refusal
from runner.facts.actions import ActionResult, UnderWay
from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.simulate.check_verdicts import detail_of
from runner.simulate.lines import kernel_matches, matches_in
from runner.simulate.measurements import GB_PER_SECOND, TFLOPS, alone_detail, pair_detail

if TYPE_CHECKING:
    from runner.simulate.training import SimCheckpoint
    from runner.simulate.world import World

# How long things take, in seconds.
LATENCY = 0.01
BOOT_SECONDS = 0.3
SPAWN_SECONDS = 0.2
CHECK_SECONDS = 0.5
# Between two reports of a node that reads a checkpoint.
PROGRESS_SECONDS = 20.0
KILL_SECONDS = 0.03
# From a rank's end until its output is searched.
SEARCH_SECONDS = 0.6
STACKS_SECONDS = 0.05
# Between two polls of the states of ranks.
LOOK_SECONDS = 0.2
LONG_AGO = -1e9

Condition = Literal["running", "stopped"]


@dataclass(slots=True)
class SimShare:
    """The ranks of one attempt on this node, dead ones included, until its assignment ends them."""

    plan: LaunchPlan
    generation: int
    # Those alive.
    ranks: dict[int, Condition]
    stopped_at: dict[int, float] = field(default_factory=dict)
    ending: bool = False
    fenced: bool = False
    num_stacks: int = 0
    # Although the plan wanted them forked.
    not_forked_reason: str = ""

    @property
    def source(self) -> dict[str, Any]:
        """Generation and attempt, as signals about its ranks name them."""
        return {"generation": self.generation, "attempt": self.plan.attempt}


def _only_preload_differs(before: Assignment | None, after: Assignment) -> bool:
    """Whether only the preload or the agent instance changed: then nothing about ranks is confirmed again."""
    if before is None or (before.warm, before.instance_id) == (after.warm, after.instance_id):
        return False
    return replace(before, warm=None, instance_id="") == replace(after, warm=None, instance_id="")


class SimNode:
    """One node. Its attributes are its real condition, which the controller can only infer."""

    def __init__(self, name: str, world: "World", *, hardware: str = "") -> None:
        """`name` is the node name that its agent claims; another machine may claim it, too."""
        self.name = name
        self.hardware = hardware or f"board:{name}"
        self.check_outcome: Literal["PASS", "FAIL", "UNKNOWN", "busy", "hang"] = "PASS"
        # The task that is under way although the supervisor gave it up. As agents may, it says how long that takes from its begin.
        self.occupied_by: UnderWay | None = None
        # TFLOP/s that its checks measure, and their floor, 0 without one.
        self.rate: tuple[float, float] | None = None
        # The version of its driver, as one number.
        self.driver: float | None = None
        # What it computes is wrong; what its link to its peers carries, in GB/s; peers that no packet of it reaches.
        self.is_wrong = False
        self.link_rate = GB_PER_SECOND
        self.cut_peers: tuple[str, ...] = ()
        # Of its machine, which several nodes may share.
        self.address = "10.0.0." + name[1:]
        self.instance_id = ""
        self.agent = self.keeper = False
        # From store and probes; `isolated`: its ranks from their peers, too.
        self.partitioned = self.isolated = False
        self.agent_hung = False
        self.program_missing = False
        # Ranks that survive SIGKILL.
        self.unkillable: tuple[int, ...] = ()
        self.launches_hang = False
        # A mount below the run's folders that does not answer, and since when.
        self.hung_mount: tuple[str, float] | None = None
        # Devices whose memory another process uses.
        self.num_busy_devices = 0
        # Why its warm process cannot fork ranks.
        self.not_forked_reason = ""
        self.share: SimShare | None = None
        self.incarnation = 0
        self.highest_generation = 0
        self.launched: tuple[int, AttemptId] | None = None
        self._world, self._agenda, self._cluster = world, world.agenda, world.cluster
        self._assignment: Assignment | None = None
        self._launching: Assignment | None = None
        self._has_reported_busy = False
        self._task_cursor = 0
        # Survives the agent, as the spool does.
        self._outbox: list[object] = []
        # The keeper reports them to the next agent.
        self._pending_exits: list[tuple[int, int | None]] = []
        # Shares of checkpoints that it reads; they survive the agent, too.
        self._verifications: dict[str, Task] = {}
        # The register has named this agent instance.
        self._is_registered = False
        self._may_tasks_be_stale = False
        self._lost_since: float | None = None
        self._progress: tuple[int | None, float] = (None, LONG_AGO)
        fence_seconds, cap_seconds = world.cluster.fence_seconds, world.cluster.hard_cap_seconds
        self._fence = Fence(fence_seconds=fence_seconds, hard_cap_seconds=cap_seconds)

    @property
    def is_down(self) -> bool:
        """Whether the supervisor's machine, which is this one's too, sees none of its processes."""
        return not (self.agent or self.keeper or self.partitioned)

    def boot(self) -> None:
        """Start an agent, and a keeper if there is none."""
        if self.agent:
            return
        if not self.keeper:
            self.share, self._pending_exits = None, []
        self.agent = self.keeper = True
        self.agent_hung = False
        self.incarnation += 1
        self._assignment = self._launching = None
        self._has_reported_busy = self._is_registered = False
        self._may_tasks_be_stale = True
        self.instance_id = f"{self.hardware}.{self.incarnation}"
        self._join(self.instance_id)
        for task in list(self._verifications.values()):
            self._read_share(task)
        share = self.share
        if share is None:
            self._confirm_terminated()
        else:
            self._report_started(share)
            exits, self._pending_exits = self._pending_exits, []
            for rank, code in exits:
                self._report_exited(share, rank, code)
        self.read()

    def _join(self, instance_id: str) -> None:
        """Join, again and again until the register names this agent instance."""
        if self.instance_id != instance_id or not self.agent or self._is_registered:
            return
        self.signal(
            s.NodeJoined,
            hardware=self.hardware,
            parts=(self.hardware,),
            slots=self._cluster.local.slots,
            address=self.address,
            pid=1000 + self.incarnation,
            **self._position(),
        )
        self._agenda.after(self._cluster.heartbeat_timeout_seconds, lambda: self._join(instance_id))

    def die(self) -> None:
        """Lose agent, keeper and ranks at once; files stay."""
        self.agent = self.keeper = False
        self._pending_exits, self._launching = [], None
        self._lose_ranks()

    def kill_keeper_and_ranks(self) -> None:
        """Lose the keeper and its ranks; the agent notices and starts another keeper."""
        share, self.keeper = self.share, self.agent
        ranks = list(share.ranks) if share is not None else []
        self._lose_ranks()
        if share is not None and self.agent and not share.ending:
            for rank in ranks:
                self._report_exited(share, rank, None)

    def on_notice(self, notice: str, seconds: float | None = None) -> None:
        """Report that the node will be taken away."""
        if self.agent:
            self.signal(s.Notice, notice=notice, deadline_seconds=seconds)

    def leave(self) -> None:
        """End ranks and keeper, report it, and end."""
        if self.agent and not self.agent_hung:
            self.signal(s.NodeLeft)
            self.flush()
        self.die()

    def isolate(self) -> None:
        """Cut off the node, and its ranks from their peers."""
        self.partitioned = self.isolated = True
        if self.share is not None:
            self._world.gangs.on_rank_died(self.share.plan.attempt)

    def _lose_ranks(self) -> None:
        share = self.share
        if share is not None:
            share.ranks = {}
            self._world.gangs.on_rank_died(share.plan.attempt)

    @property
    def reaches_peers(self) -> bool:
        """Whether packets between its ranks and those of other nodes arrive."""
        return not self.isolated and self.link_rate > 0

    @property
    def is_reachable(self) -> bool:
        """Whether messages of its agent arrive."""
        answers = self.agent and not self.agent_hung
        return answers and not self.partitioned and self._world.is_store_up

    def reconnect(self) -> None:
        """Reconnect the node."""
        self.partitioned = self.isolated = False
        self.resume()

    def resume_agent(self) -> None:
        """Let an agent that hung go on."""
        self.agent_hung = False
        self.resume()

    def resume(self) -> None:
        """Send what waited, and read what was missed."""
        if self.is_reachable:
            self._lost_since = None
            self.flush()
            self.read()
            self.heartbeat()

    def signal(self, kind: Callable[..., s.Signal], **fields: Any) -> None:
        """Send a signal of this agent."""
        self._emit(kind(**self._header(), **fields))

    def _emit(self, fact: object) -> None:
        """Send something durable; it waits while the store is out of reach."""
        self._outbox.append(fact)
        self._agenda.after(LATENCY, self.flush)

    def flush(self) -> None:
        """Send what waits, in order."""
        while self._outbox and self.is_reachable:
            self._world.append_signal(self._outbox.pop(0))

    def heartbeat(self) -> None:
        """Send a heartbeat, or decide whether to fence the ranks while the store is out of reach."""
        if not self.agent or self.agent_hung:
            return
        share, now, gangs = self.share, self._agenda.now, self._world.gangs
        step = gangs.last_step(share.plan.attempt) if share else None
        before = self._progress[0]
        if step != before:
            self._progress = (step, now)
        if not self.is_reachable:
            self._lost_since = now if self._lost_since is None else self._lost_since
            if share is not None and not share.ending and share.ranks:
                lost, advanced = self._lost_since, self._progress[1]
                if self._fence.verdict(
                    now, lost_since=lost, progress_at=advanced, resumed_at=LONG_AGO
                ):
                    self._end(share, grace_seconds=0.0, fenced=True)
            return
        status: dict[str, Any] = {}
        if share is not None:
            status = gangs.heartbeat_fields(share.plan.attempt, tuple(share.ranks), before)
        is_warm = self._assignment is not None and self._assignment.warm is not None
        self._world.supervisor.on_heartbeat(
            s.Heartbeat(
                **self._header(),
                **self._position(),
                **status,
                last_step=step,
                ranks_stopped=self._stopped_for_long(),
                warm=(self.not_forked_reason or "ready") if is_warm else "",
                hung_folders=self._hung_folders() if share is not None else (),
            )
        )

    def hang_folder(self, mount: str) -> None:
        """Let a mount hang: the agent notices it a while later."""
        self.hung_mount = (mount, self._agenda.now)

    def _hung_folders(self) -> tuple[s.HungFolder, ...]:
        if self.hung_mount is None:
            return ()
        mount, since = self.hung_mount
        seconds = self._agenda.now - since
        hung = s.HungFolder(
            folder=f"{mount}/runs",
            mount=mount,
            file_system="nfs4",
            source="files:/a",
            seconds=seconds,
        )
        return (hung,) if seconds >= OVERDUE_SECONDS else ()

    def _header(self) -> dict[str, Any]:
        return {"node": self.name, "incarnation": self.incarnation, "instance_id": self.instance_id}

    def _position(self) -> dict[str, Any]:
        """Return what the node runs."""
        if self.share is None:
            return {"generation": self.highest_generation}
        return {**self.share.source, "ranks_alive": tuple(self.share.ranks)}

    def read(self) -> None:
        """Read the register and the tasks, and obey both if the register names this agent."""
        if not self.is_reachable:
            return
        assignment = self._world.read_register(self.name)
        if assignment is not None and assignment.instance_id not in ("", self.instance_id):
            if self._is_registered:
                # Another agent has the name now.
                self.die()
            return
        if assignment is not None and assignment.instance_id:
            self._is_registered = True
        if assignment is not None and assignment.generation >= self.highest_generation:
            before, self._assignment = self._assignment, assignment
            self.highest_generation = assignment.generation
            if assignment.plan is not None or self.share is not None or self._launching is not None:
                self._reconcile()
            elif not _only_preload_differs(before, assignment):
                self._confirm_terminated()
        for number, task in self._world.read_tasks(self.name, self._task_cursor):
            self._task_cursor = number
            self._run_task(task, has_waited=self._may_tasks_be_stale)
        self._may_tasks_be_stale = self._may_tasks_be_stale and not self._is_registered

    def _reconcile(self) -> None:
        wanted, share = self._assignment, self.share
        if wanted is None:
            return
        if self._launching is not None:
            if wanted.generation > self._launching.generation:
                self._launching = None
                self._confirm_terminated()
                self._reconcile()
        elif share is not None:
            if wanted.plan is None or wanted.generation > share.generation:
                self._end_with_stacks(share, wanted)
        elif wanted.plan is not None and (self.launched or (0, None))[0] < wanted.generation:
            self.launched = (wanted.generation, wanted.plan.attempt)
            self._launching = wanted
            self._agenda.after(SPAWN_SECONDS, lambda: self._spawn(wanted))

    def _confirm_terminated(self) -> None:
        if self.launched is not None:
            generation, attempt = self.launched
            self.signal(s.RanksTerminated, generation=generation, attempt=attempt)
        idle = self._assignment
        if idle is None or idle.plan is not None or idle.attempt is None:
            return
        if self.launched is None or self.launched[1] != idle.attempt:
            self.signal(s.RanksTerminated, generation=idle.generation, attempt=idle.attempt)

    def _spawn(self, wanted: Assignment) -> None:
        plan = wanted.plan
        if self._launching is not wanted or plan is None or not self.agent:
            return
        if self.num_busy_devices:
            limit = self._cluster.device_release_seconds
            self._agenda.after(limit, lambda: self._give_up_waiting(wanted, plan.attempt))
            return
        if self.launches_hang:
            return
        self._launching = None
        if self.program_missing:
            reason = f"no program {plan.command[0]!r}"
            source = {"generation": wanted.generation, "attempt": plan.attempt}
            self.signal(s.LaunchFailed, **source, reason=reason)
            return
        self.share = SimShare(plan, wanted.generation, dict.fromkeys(plan.ranks, "running"))
        self.share.not_forked_reason = self.not_forked_reason if wanted.warm is not None else ""
        self._report_started(self.share)
        self._world.on_ranks_started(self, plan, wanted.generation)
        self._reconcile()

    def free_devices(self) -> None:
        """Release the devices: a waiting launch continues, a failed one is followed by a report."""
        self.num_busy_devices = 0
        if self._launching is not None:
            self._spawn(self._launching)
        elif self._has_reported_busy and self.agent:
            self._has_reported_busy = False
            self.signal(s.DevicesReleased)

    def _give_up_waiting(self, wanted: Assignment, attempt: AttemptId) -> None:
        if self._launching is not wanted or not self.agent or not self.num_busy_devices:
            return
        self._launching, self._has_reported_busy = None, True
        held = [f"GPU {index} has 70000 MiB in use" for index in range(self.num_busy_devices)]
        reason = f"{', '.join(held)} after {self._cluster.device_release_seconds:g} s"
        source = {"generation": wanted.generation, "attempt": attempt}
        self.signal(s.LaunchFailed, **source, reason=reason, devices_busy=True)
        self._reconcile()

    def _report_started(self, share: SimShare) -> None:
        self.signal(s.RanksStarted, **share.source, not_forked_reason=share.not_forked_reason)

    def _end_with_stacks(self, share: SimShare, wanted: Assignment) -> None:
        """End ranks, after writing their stacks if the assignment asks for it."""
        if wanted.stacks_seconds < STACKS_SECONDS or not share.ranks or share.ending:
            self._end(share, grace_seconds=wanted.grace_seconds)
            return
        share.num_stacks, share.ending = len(share.ranks), True
        self._agenda.after(STACKS_SECONDS, lambda: self._kill(share))

    def _end(self, share: SimShare, *, grace_seconds: float, fenced: bool = False) -> None:
        share.fenced = share.fenced or fenced
        if grace_seconds > 0 and share.ranks and not share.ending:
            self._agenda.after(KILL_SECONDS, lambda: self._term(share))
            self._agenda.after(grace_seconds, lambda: self._kill(share))
        else:
            self._kill(share)
        share.ending = True

    def _term(self, share: SimShare) -> None:
        """End the ranks that SIGTERM ends: all that are not stopped."""
        share.ranks = {rank: how for rank, how in share.ranks.items() if how == "stopped"}
        self._world.gangs.on_rank_died(share.plan.attempt)
        if not share.ranks:
            self._kill(share)

    def _kill(self, share: SimShare) -> None:
        if self.share is share:
            self._lose_ranks()
            wait = self._cluster.kill_wait_seconds if self.unkillable else KILL_SECONDS
            self._agenda.after(wait, lambda: self._on_terminated(share))

    def _on_terminated(self, share: SimShare) -> None:
        if self.share is not share or not self.agent:
            return
        self.share = None
        self.signal(
            s.RanksTerminated,
            **share.source,
            last_step=self._world.gangs.last_step(share.plan.attempt),
            left_behind=self.unkillable,
            fenced=share.fenced,
            num_stacks=share.num_stacks,
        )
        self._reconcile()

    def end_rank(self, rank: int, code: int | None, words: str = "") -> None:
        """Let a rank end by itself."""
        share = self.share
        if share is None or rank not in share.ranks:
            return
        del share.ranks[rank]
        if self.agent:
            self._report_exited(share, rank, code, words)
        else:
            self._pending_exits.append((rank, code))
        self._world.gangs.on_rank_died(share.plan.attempt)

    def stop_rank(self, rank: int) -> None:
        """SIGSTOP a rank: it is alive and does not move."""
        share = self.share
        if share is not None and rank in share.ranks:
            share.ranks[rank] = "stopped"
            share.stopped_at[rank] = self._agenda.now
            limit = self._cluster.stopped_seconds
            self._agenda.after(limit + LOOK_SECONDS / 2, self.heartbeat)

    def _stopped_for_long(self) -> tuple[int, ...]:
        now, limit = self._agenda.now, self._cluster.stopped_seconds
        stopped = self.share.stopped_at.items() if self.share is not None else ()
        return tuple(rank for rank, at in stopped if now >= at + limit)

    def _report_exited(self, share: SimShare, rank: int, code: int | None, words: str = "") -> None:
        self.signal(
            s.RankExited,
            **share.source,
            rank=rank,
            exit_code=code,
            last_step=self._world.gangs.last_step(share.plan.attempt),
            stderr_tail=words,
        )
        if words:
            instance_id = self.instance_id
            lines = matches_in(words, f"rank{rank}.err", rank)

            def report() -> None:
                if self.agent and self.instance_id == instance_id:
                    self.signal(s.LinesMatched, **share.source, matches=lines, is_last=True)

            self._agenda.after(SEARCH_SECONDS, report)

    def log_line(self, line: str) -> None:
        """Let the kernel of this node log a line."""
        found = kernel_matches(line)
        if self.agent and self.share is not None:
            self.signal(s.LinesMatched, **self.share.source, matches=found, ranks_alive=True)
        elif self.agent and found:
            self.signal(s.KernelLinesMatched, matches=found)

    def occupy(self, seconds: float) -> None:
        """Let a task be under way that the supervisor no longer waits for; it is answered at its end."""
        name = f"late-{self.name}"
        self.occupied_by = UnderWay(name, seconds)

        def end() -> None:
            self.occupied_by = None
            if self.agent:
                self._emit(ActionResult(id=name, outcome="done", detail={"outcome": "FAIL"}))

        self._agenda.after(seconds, end)

    def _check(self, task: Task) -> None:
        """Answer with the node's condition after a while; hanging checks are never answered."""
        instance_id, outcome = self.instance_id, self.check_outcome
        detail = (
            {} if outcome == "hang" else detail_of(task, outcome, self.rate, driver=self.driver)
        )

        def answer() -> None:
            if not self.agent or self.instance_id != instance_id or not detail:
                return
            has_ranks = self.share is not None or self._launching is not None
            if has_ranks and not task.args.get("beside"):
                self._answer(task, "failed", message="the checks gave way: ranks are to start")
            else:
                self._answer(task, "done", detail=detail)

        self._agenda.after(CHECK_SECONDS, answer)

    def _measure(self, task: Task) -> None:
        """Answer after a while as the node's condition and that of its peer is then; a node that is gone does not."""
        instance_id = self.instance_id

        def answer() -> None:
            if self.agent and self.instance_id == instance_id:
                self._answer(task, "done", detail=self._measured(task))

        self._agenda.after(CHECK_SECONDS, answer)

    def _measured(self, task: Task) -> dict[str, Any]:
        if task.task == "check":
            tflops = self.rate[0] if self.rate is not None else TFLOPS
            return alone_detail(task, tflops=tflops, is_wrong=self.is_wrong)
        other = next(name for name in task.args["nodes"] if name != self.name)
        peer = self._world.machines[other]
        return pair_detail(
            is_peer_there=peer.agent and not peer.isolated,
            is_path_whole=self.reaches_peers
            and peer.reaches_peers
            and self.name not in peer.cut_peers
            and other not in self.cut_peers,
            gb_per_second=min(self.link_rate, peer.link_rate),
        )

    def _verify(self, task: Task) -> None:
        """Read a share of a checkpoint; the same task, sent again, is under way."""
        if task.id not in self._verifications:
            self._verifications[task.id] = task
            self._read_share(task)

    def _read_share(self, task: Task) -> None:
        """Report from time to time, and answer at the end; an agent that dies or hangs meanwhile does neither."""
        instance_id = self.instance_id
        checkpoint = self._world.find_checkpoint(str(task.args["path"]))
        if checkpoint is None or self.name in checkpoint.training.blind_nodes:
            self._end_share(task, {"damaged": False}, "no such folder here")
            return
        read_seconds = checkpoint.training.read_seconds

        def go_on(done_seconds: float) -> None:
            is_mine = task.id in self._verifications and self.instance_id == instance_id
            if not is_mine or not self.agent or self.agent_hung:
                return
            if done_seconds < read_seconds:
                done, total = int(done_seconds), int(read_seconds)
                self.signal(s.TaskProgressed, id=task.id, done_bytes=done, total_bytes=total)
                wait(done_seconds)
            elif checkpoint.corrupt:
                self._end_share(task, {"damaged": True}, "the hash of rank0 differs")
            else:
                self._end_share(task, found=_scan_of(checkpoint))

        def wait(done_seconds: float) -> None:
            seconds = min(PROGRESS_SECONDS, read_seconds - done_seconds)
            self._agenda.after(seconds, lambda: go_on(done_seconds + seconds))

        wait(0.0)

    def _end_share(
        self,
        task: Task,
        trouble: dict[str, bool] | None = None,
        message: str = "",
        found: Mapping[str, object] | None = None,
    ) -> None:
        del self._verifications[task.id]
        outcome: Literal["done", "failed"] = "done" if trouble is None else "failed"
        self._answer(task, outcome, message=message, detail=trouble or found or {})

    def _run_task(self, task: Task, *, has_waited: bool) -> None:
        if task.task == "check" and self.occupied_by is not None:
            reason = f"check task {self.occupied_by.task} is under way here"
            self._answer(task, "failed", message=reason, detail=self.occupied_by.detail)
            return
        if "isolation" in task.args:
            self._measure(task)
            return
        if task.task in ("check", "verify"):
            (self._check if task.task == "check" else self._verify)(task)
            return
        share = self.share
        reason = refusal(
            task,
            node=self.name,
            instance_id=self.instance_id,
            generation=self.highest_generation,
            gang_generation=share.generation if share is not None else None,
            has_waited=has_waited,
        )
        if reason:
            self._answer(task, "failed", message=reason)
        elif task.task == "drill":
            fault, rank = str(task.args["fault"]), task.args.get("rank")
            self._answer(task, "done", message=fault)
            self.flush()
            self._world.inject_fault(fault, self.name, rank)
        elif share is not None and task.task == "conditions":
            self._world.gangs.report_conditions(share.plan.attempt, self.name)
            self._answer(task, "done", message="reported")
        elif share is not None:
            attempt, gangs = share.plan.attempt, self._world.gangs
            if gangs.submit_request(attempt, str(task.args.get("id", task.id)), dict(task.args)):
                self._answer(task, "done", message="asked")
            else:
                self._answer(task, "failed", message="the ranks said hello to no request")

    def _answer(self, task: Task, outcome: Literal["done", "failed"], **fields: Any) -> None:
        self._emit(ActionResult(id=task.id, outcome=outcome, **fields))


def _scan_of(checkpoint: "SimCheckpoint") -> dict[str, object]:
    """Return what the scan of a checkpoint that is as it was sealed finds."""
    if not checkpoint.training.is_covered:
        return {"tensors": 0, "uncovered": "rank0: no known format of tensors", "not_finite": ""}
    what = "rank0: weight has NaN (number 7 of 64, float32)" if checkpoint.is_sick else ""
    return {"tensors": 1, "uncovered": "", "not_finite": what}
