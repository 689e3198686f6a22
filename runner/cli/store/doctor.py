"""`stoker store`: the commands about a cluster's store."""

from collections.abc import Iterator
from contextlib import closing, suppress

import click

from runner.cli import exit_codes, output
from runner.cli.clusters import find_cluster
from runner.cli.options import SentenceGroup, cluster_option, command, examples, json_option
from runner.cli.store.accept import accept
from runner.errors import StokerError, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.folder_modes import exposures
from runner.journal.doctor import examine
from runner.signer import settle_token, signer_of
from runner.store.examination import FAIL, CheckFailed, StoreCheck, named, overall, run_checks
from runner.store.registry import open_store

NAME_COLUMN_WIDTH = 11


@click.group(
    cls=SentenceGroup,
    epilog=examples(
        "stoker store doctor                      is the store fit for a supervisor?",
        "stoker store doctor --cluster c.yaml     before the first start, too",
    ),
)
def store() -> None:
    """Inspect and repair the store: journal, lease and signals, in files or on a Redis server."""


@command("stoker store doctor", "stoker store doctor --cluster cluster.yaml --json    for programs")
@json_option
@cluster_option
def doctor(*, where: str | None, as_json: bool) -> None:
    """Examine the store: reach, TLS, rights, durability, disk, memory, clock, speed, contents.

    One line per check: PASS, FAIL or UNKNOWN, with the way out. Nothing of the cluster changes:
    tests use a stream, a register and a lease named `doctor`. UNKNOWN is not healthy (exit code 4).
    """
    found: list[StoreCheck] = []
    for result in _results(find_cluster(where)):
        if not as_json:
            if not found:
                output.print_text(_row("CHECK", "OUTCOME", "WHY"))
            output.print_text(_row(result.check, result.outcome, result.reason))
        found.append(result)
    outcome = overall(found)
    by_outcome = {
        words: [each.check for each in found if each.outcome == wanted]
        for words, wanted in (("failed", "FAIL"), ("unknown", "UNKNOWN"))
    }
    parts = [f"{words}: {', '.join(names)}" for words, names in by_outcome.items() if names]
    answer = {"overall": {"outcome": outcome, **by_outcome}, "checks": found}
    output.print_answer(answer, "\n" + "; ".join([outcome, *parts]), as_json=as_json)
    click.get_current_context().exit(exit_codes.OF_CHECK[outcome])


def _results(cluster: ClusterSpec) -> Iterator[StoreCheck]:
    yield from run_checks(cluster, named(_permissions))
    try:
        # A server can be examined before a supervisor used it; files exist only afterwards.
        opened = open_store(cluster, create=cluster.spans_machines)
    except StokerError as error:
        yield StoreCheck(check="reach", outcome=FAIL, reason=str(error))
        return
    with closing(opened):
        signer = None
        with suppress(UserError):
            signer = signer_of(cluster)
        yield from examine(opened, signer)


def _permissions(cluster: ClusterSpec) -> str:
    if problems := exposures(settle_token(cluster)):
        raise CheckFailed("; ".join(problems))
    return "no other user of this machine may change the state folder, the journal or the token"


def _row(name: str, outcome: str, why: str) -> str:
    return f"{name:<{NAME_COLUMN_WIDTH}}  {outcome:<7}  {why}".rstrip()


store.add_command(doctor)
store.add_command(accept)
