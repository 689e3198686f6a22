"""`stoker watch-only`: judge a run that Stoker did not launch, and touch nothing of it."""

import os
import re
from pathlib import Path

import click

from runner.cli import exit_codes, output
from runner.cli.options import command, json_option
from runner.errors import UserError
from runner.facts.specs.run import RunSpec

_DEFAULTS = RunSpec(name="default")
# Attempts without progress end no run here.
_MAX_ATTEMPTS = 1000


@command(
    "stoker watch-only --pid 4711                       a launcher, a shell script or one process, and all below it",
    "stoker watch-only --pid 4711 --logs 'logs/*.log'   its output is in these files",
    "stoker watch-only --logs 'logs/**/*.out'           no process of this machine",
    "stoker watch-only -- torchrun --nproc-per-node 8 train.py",
    more=exit_codes.HELP,
)
@click.option(
    "--pid", type=click.IntRange(min=1), help="The process to watch, with all that it starts."
)
@click.option(
    "--logs",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Files of its output, `**` for folders; quoted. Files that come later count as well. May be given again.",
)
@click.option(
    "--kernel-log",
    default="/dev/kmsg",
    metavar="FILE",
    help="Kernel lines to read instead of /dev/kmsg; '' for none.",
)
@click.option(
    "--progress-seconds",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.progress_seconds,
    show_default=True,
    help="As in run.yaml: time without a step that is a hang, unless less was learned of the run.",
)
@click.option(
    "--start-seconds",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.start_seconds,
    show_default=True,
    help="As in run.yaml: time to the first step that is a hang.",
)
@click.option(
    "--metric-pattern", default="", metavar="REGEX", help="As in run.yaml: lines with a step."
)
@click.option(
    "--saves",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of its checkpoints: what would start again says from which. It is read, never written.",
)
@click.option(
    "--spare",
    "spares",
    multiple=True,
    metavar="NODE",
    help="A node that you keep for the run: proposals name it where Stoker would swap. It is not contacted.",
)
@click.option(
    "--name",
    default="",
    help="Name of the run in what is printed. Default: of the program or the files.",
)
@click.argument("started", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@json_option
def watch_only(  # noqa: PLR0913 - one for each option
    pid: int | None,
    *,
    patterns: tuple[str, ...],
    kernel_log: str,
    progress_seconds: float,
    start_seconds: float,
    metric_pattern: str,
    saves: Path | None,
    spares: tuple[str, ...],
    name: str,
    started: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge a run that Stoker did not launch, and touch nothing of it (`stoker watch` shows Stoker's own runs).

    Follows its output and the kernel's log, finds its ranks in /proc, and judges hangs, numbers, hardware and causes as of any run;
    what Stoker would have done is shown as a proposal. Starts, signals, traces and writes nothing. With `-- COMMAND` it starts that
    command, as `time` does: output and signals are passed on, the exit code is the command's, and what is seen goes to standard
    error. Ctrl-C ends the watch alone.
    """
    if bool(started) + (pid is not None) > 1 or not (started or pid is not None or patterns):
        raise UserError("give one of --pid PID, --logs GLOB (or both of these), or -- COMMAND")
    from runner.cli.watch.screens import JsonLines, Lines
    from runner.cli.watch.summary import summary_of, text_of
    from runner.watch.child import Child
    from runner.watch.core import WatchCore
    from runner.watch.outputs import Outputs
    from runner.watch.processes import WatchedProcess
    from runner.watch.targets import Target
    from runner.watch.watcher import Watcher

    process = WatchedProcess(pid, _start_ticks(pid)) if pid is not None else None
    run_name = _run_name(name, started, pid, patterns)
    spec = RunSpec(
        name=run_name,
        command=started or ("watched",),
        working_directory="/",
        mode="off",
        progress_seconds=progress_seconds,
        start_seconds=start_seconds,
        metric_pattern=metric_pattern,
        max_attempts_without_progress=_MAX_ATTEMPTS,
    )
    # The command's own output is on standard output.
    out = output.print_note if started else output.print_text

    def files() -> str:
        where = [_place_of(list(outputs.files))] if outputs.files else []
        return " and ".join([*where, *(["its pipes"] if started else [])]) or "-"

    screen = JsonLines(out, files) if as_json else Lines(out, files)
    outputs = Outputs(
        patterns=patterns,
        kernel_log=kernel_log,
        metric_pattern=metric_pattern,
        on_trouble=lambda text: watcher.note(text),
    )
    child = Child(started) if started else None
    if child is not None:
        outputs.add_pipes(child.tails)
    core = WatchCore(run_name)
    target = Target(process=process, child=child, saves=saves, spares=spares)
    watcher = Watcher(target, outputs, core, screen, spec)
    status = watcher.watch()
    has_ended = not watcher.was_interrupted
    summary = summary_of(status, core.run, files=files(), has_ended=has_ended)
    if summary is None:
        screen.note("no rank was found")
    elif isinstance(screen, JsonLines):
        screen.emit(
            "summary", {**output.plain(summary), "proposals": output.plain(watcher.proposals)}
        )
    else:
        out(f"\n{text_of(summary, watcher.proposals)}")
    if child is not None:
        code = watcher.exit_code
        click.get_current_context().exit(128 - code if code is not None and code < 0 else code or 0)
    if watcher.was_interrupted:
        click.get_current_context().exit(exit_codes.INTERRUPTED)
    is_bad = summary is not None and summary.run.state == "failed"
    click.get_current_context().exit(exit_codes.FAILED if is_bad else exit_codes.DONE)


def _place_of(files: list[str]) -> str:
    """Name the files that are followed, or their folder."""
    if len(files) <= 2:
        return ", ".join(files)
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
    return f"{folder} ({len(files)} files)"


def _start_ticks(pid: int) -> int:
    """Return when a process was started; raise UserError where there is none."""
    from runner.keeper.procfs import read_process

    process = read_process(pid)
    if process is None or process.state in "ZX":
        raise UserError(f"no process {pid} on this machine")
    return process.start_ticks


def _run_name(
    name: str, started: tuple[str, ...], pid: int | None, patterns: tuple[str, ...]
) -> str:
    """Return a name of letters, digits and hyphens: the one that is given, or the program's, or the files'."""
    text = name
    if not text and started:
        scripts = [word for word in started if word.endswith(".py")]
        text = Path(scripts[0] if scripts else started[0]).stem
    elif not text:
        plain = (
            [part for part in Path(patterns[0]).parts if not set("*?[") & set(part)]
            if patterns
            else []
        )
        text = f"pid-{pid}" if pid is not None else Path(plain[-1]).stem if plain else ""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "watched"
