"""`stoker page`: how far pages got, and a test of every address."""

import click

from runner.act import pages
from runner.cli import exit_codes, output
from runner.cli.clusters import find_cluster
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.status import read_cluster_status
from runner.cli.request_client import requester
from runner.errors import UserError
from runner.facts.messages.cluster_status import PagesStatus
from runner.facts.wording import printable

_NONE = "pages reach the supervisor's log alone: name a file of addresses in pages.addresses_file of cluster.yaml"


@command(
    "stoker page           which addresses there are, what was sent and what waits",
    "stoker page --test    send a test to every address, and see what each one says",
)
@click.option("--test", "is_test", is_flag=True, help="Send a page to every address, from here.")
@cluster_option
@json_option
def page(where: str | None, *, is_test: bool, as_json: bool) -> None:
    """Show how far pages got; with --test, send one to every address and print what happened.

    A test needs no supervisor, and a dead-man's switch counts it as a sign of life.
    """
    if not is_test:
        status = read_cluster_status(where)
        text = f"{_NONE}; see `stoker docs paging`" if status.pages is None else _text(status.pages)
        output.print_answer(status.pages, text, as_json=as_json)
        return
    cluster = find_cluster(where)
    if not cluster.pages.addresses_file:
        raise UserError(f"{_NONE}; see `stoker docs paging`")
    found = [
        {"address": address.id, "kind": address.scheme, "error": error}
        for address, error in pages.send_test(cluster.pages, cluster.name, requester())
    ]
    columns = {
        "address": lambda one: one["address"],
        "kind": lambda one: one["kind"],
        "outcome": lambda one: printable(one["error"]) or "accepted",
    }
    output.print_answer(found, output.table(columns, found), as_json=as_json)
    if any(one["error"] for one in found):
        click.get_current_context().exit(exit_codes.FAILED)


def _text(status: PagesStatus) -> str:
    last = "-" if status.last_sent_at is None else output.moment(status.last_sent_at)
    lines = [
        f"addresses: {', '.join(map(printable, status.addresses)) or 'none'}",
        f"sent: {status.sent}, the last one at {last}; tries that failed: {status.failed}",
        f"waiting: {status.waiting}; due later: {status.due_later}; given up: {status.dropped}",
        f"held back, as their cause was paged: {status.inhibited}",
    ]
    if status.heartbeat_at is not None:
        lines.append(f"last sign of life: {output.moment(status.heartbeat_at)}")
    if status.problem:
        lines.append(f"problem: {printable(status.problem)}")
    return "\n".join(lines)
