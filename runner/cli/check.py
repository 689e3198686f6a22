"""`stoker check`: runs the program with the health checks of this machine, and shows its results."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import click

from runner.cli import exit_codes, output
from runner.cli.options import cluster_option, command, json_option
from runner.errors import StokerError, UserError
from runner.facts.specs.check_levels import LEVELS
from runner.facts.specs.programs import module_command

PROGRAM = module_command("healthchecks")
REFUSED_EXIT_CODE = 64
NAME_COLUMN_WIDTH = 16
MAX_ERROR_BYTES = 2000


@command(
    "stoker check                                  what the machine reports of itself, and short tests",
    "stoker check --level standard --python .venv/bin/python     real work on each device, for two minutes",
    "stoker check --folder /checkpoints --json     where runs write, for programs",
    "stoker check --cause gpu_ecc                  what a failure is explained by: is it this machine?",
    "stoker check --check memory --seconds 60      one check, with more time",
    "stoker check --nodes n3,n4 --level quick      idle nodes of the running cluster, at once",
    "stoker check --limit disk_space.free_bytes=5e12",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="How thorough: passive (the default, 10 s at most), quick (60 s), standard (120 s), deep (an hour).",
)
@click.option(
    "--cause",
    metavar="FAULT",
    help="Only what can confirm or clear this cause of a failure, as `stoker explain` names it: the targeted level.",
)
@click.option(
    "--python",
    metavar="FILE",
    help="The interpreter of your runs, for checks that need torch. Default: the one that runs this command.",
)
@click.option(
    "--check", multiple=True, metavar="NAME", help="Run this check only; may be repeated."
)
@click.option(
    "--folder",
    multiple=True,
    metavar="DIR",
    help="A folder where runs write; may be repeated. Default: this one and the one for temporary files.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Deadline of each check; one that hangs is killed then. Default: twice its time at the level, and 30 s at least.",
)
@click.option(
    "--limit", multiple=True, metavar="NAME=VALUE", help="Another limit; may be repeated."
)
@click.option(
    "--slots",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    help="Ranks that the node is to hold; limits follow them. Default: one for each GPU.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0, max=10_000),
    metavar="N",
    help="GPUs of the node. Default: those that the drivers show in /dev and /sys.",
)
@click.option(
    "--storage",
    multiple=True,
    metavar="PATH",
    help="A folder or file that runs read from and that has to answer; may be repeated.",
)
@click.option(
    "--site-script",
    metavar="FILE",
    help="A health program of your site: it ends with 0 on a healthy node.",
)
@click.option(
    "--ports",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    help="Ports of InfiniBand or RoCE that have to be active. Default: not known.",
)
@click.option(
    "--cores",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    help="Cores that the node should have. Default: not known.",
)
@click.option(
    "--memory-bytes",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Memory that the node should have. Default: not known.",
)
@click.option("--kernel-log", metavar="FILE", help="Kernel lines to read instead of /dev/kmsg.")
@click.option(
    "--nodes",
    metavar="N1,N2",
    help="Check these idle nodes of a running cluster instead, with its own settings; only --level and the next two go with it.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="With --nodes: how long to wait for the verdicts. Default: twice the time of the level for each node.",
)
@cluster_option
@json_option
def check(
    *,
    as_json: bool,
    nodes: str | None,
    timeout_seconds: float | None,
    where: str | None,
    **asked: Any,
) -> None:
    """Check this machine. It needs no cluster, no run and no root; the last line says what was not looked at.

    A level runs all checks of the cheaper ones, too. PASS needs every required check to pass; a check without a result is UNKNOWN,
    which is not healthy (exit code 4). With --nodes a running cluster checks nodes of its own: a node that fails is taken out.
    """
    if nodes is not None:
        from runner.cli.nodes.check_nodes import check_nodes

        level = asked.pop("level")
        others = [f"--{name.replace('_', '-')}" for name, given in asked.items() if given]
        if others:
            raise UserError(
                f"check: {', '.join(others)} does not go with --nodes, whose agents have settings of their own (cluster.yaml); "
                "leave it out, or run `stoker check` on the node"
            )
        names = [name.strip() for name in nodes.split(",") if name.strip()]
        if not names:
            raise UserError(f"check: --nodes {nodes!r} names no node; write --nodes n1,n2")
        click.get_current_context().exit(
            check_nodes(
                list(dict.fromkeys(names)),
                level or "",
                where=where,
                timeout_seconds=timeout_seconds,
                as_json=as_json,
            )
        )
    if where is not None or timeout_seconds is not None:
        option = "--cluster" if where is not None else "--timeout"
        raise UserError(
            f"check: {option} goes with --nodes only; this machine is checked without a cluster"
        )
    asked["python"] = asked["python"] or sys.executable
    arguments = [
        f"--{name.replace('_', '-')}={value}"
        for name, given in asked.items()
        for value in (given if isinstance(given, tuple) else (given,))
        if value is not None
    ]
    progress = output.ProgressLine()
    if progress.is_shown:
        arguments.append("--progress")
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert child.stdout is not None
        with child:
            found = _follow(child.stdout, progress, as_json=as_json)
        total = _total(found, child.returncode, errors)
    answer = {"overall": total, "checks": found[:-1]}
    output.print_answer(answer, f"\n{_summary(total)}", as_json=as_json)
    click.get_current_context().exit(exit_codes.OF_CHECK[total["outcome"]])


def _follow(
    lines: IO[str], progress: output.ProgressLine, *, as_json: bool
) -> list[dict[str, Any]]:
    """Read results as they arrive; show a row for each check that ended, and on a terminal which one runs."""
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            one: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise StokerError(
                f"the health checks printed a line that is not JSON: {line[:200]!r}"
            ) from error
        if one["kind"] == "begins":
            where = f"{one['number']} of {one['of']}: {one['check']}"
            progress.write(f"{where}, about {output.seconds(one['seconds'])}")
            continue
        progress.clear()
        found.append(one)
        if one["kind"] == "check" and not as_json:
            if len(found) == 1:
                output.print_text(_row("CHECK", "OUTCOME", "TIME", "WHY"))
            took = output.seconds(one["seconds"])
            output.print_text(_row(one["check"], one["outcome"], took, one["reason"]))
    return found


def _row(name: str, outcome: str, time: str, why: str) -> str:
    return f"{name:<{NAME_COLUMN_WIDTH}}  {outcome:<7}  {time:>7}  {why}".rstrip()


def _total(found: Sequence[dict[str, Any]], code: int, errors: IO[bytes]) -> dict[str, Any]:
    """Return the program's summary. Raises UserError if it refused its arguments, StokerError if it printed no summary."""
    errors.seek(0)
    text = errors.read()[-MAX_ERROR_BYTES:].decode(errors="replace").strip()
    if code == REFUSED_EXIT_CODE:
        raise UserError(text.removeprefix("healthchecks: "))
    if not found or found[-1]["kind"] != "overall":
        raise StokerError(
            f"the health checks ended with {code} before their summary: {text or 'no output'}"
        )
    return found[-1]


def _summary(total: dict[str, Any]) -> str:
    text = f"{total['outcome']}; required: {', '.join(total['required'])}"
    labels = {"failed": "failed", "unknown": "unknown", "left_out": "not asked for"}
    labels["not_covered"] = "not looked at"
    for key, label in labels.items():
        if total[key]:
            text += f"; {label}: {', '.join(total[key])}"
    return text
