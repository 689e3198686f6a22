"""`stoker checkpoints` and `stoker pin`: which there are, how far each is trusted and why, and which are kept for good."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.runs.run_requests import run_request
from runner.facts.messages.requests import PinCheckpoint
from runner.facts.wording import printable

if TYPE_CHECKING:
    from runner.history.checkpoints import CheckpointRow


COLUMNS: dict[str, Callable[["CheckpointRow"], str]] = {
    "step": lambda row: str(row.step),
    "attempt": lambda row: row.attempt,
    "trust": lambda row: row.state,
    "pinned": lambda row: printable(row.pinned, 40) or "-",
    "why": lambda row: printable(row.why, 200),
}


@command(
    "stoker checkpoints tiny", "stoker checkpoints tiny --json | jq '.[] | select(.pinned != \"\")'"
)
@click.argument("run", required=False)
@cluster_option
@json_option
def checkpoints(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List a run's checkpoints: how far each is trusted, and why not further.

    committed: sealed. intact: read whole by a node. finite: no NaN in its tensors. healthy: nothing wrong was found in the run's
    numbers up to it. proven: nor in the steps after it. refused, set aside: never resumed from. `pinned` names who pinned it.
    """
    from runner.cli.reports.past import journal_entries
    from runner.history.checkpoints import checkpoints as fold

    with clusters.open_cluster(where) as (cluster, store):
        picked = clusters.pick_run(clusters.require_status(store, cluster), run)
        rows = fold(journal_entries(store, cluster), picked.run)
    output.print_answer(rows, output.table(COLUMNS, rows), as_json=as_json)


@command(
    "stoker pin tiny 800               keep it, whatever policy says",
    "stoker pin tiny 800 --remove      leave it to policy again",
)
@run_request(30.0, is_run_required=True)
@click.argument("step", type=click.IntRange(min=0))
@click.option("--remove", is_flag=True, help="Leave it to `keep_checkpoints` again.")
def pin(**fields: Any) -> PinCheckpoint:
    """Keep a run's checkpoint of a step until it is unpinned; `stoker checkpoints` lists them."""
    return PinCheckpoint(**fields)
