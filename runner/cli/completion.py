"""`stoker completion`, and the names that the shell completes: commands, runs, nodes and incidents of the cluster meant.

Completion reads the published status alone. It prints nothing but names, takes COMPLETE_SECONDS at most, and never fails.
"""

import contextlib
import io
import threading
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class
from click.types import StringParamType

from runner.cli.options import command
from runner.cli.output import print_text
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.wording import printable

# A store that does not answer by then has no names. Chosen, not measured.
COMPLETE_SECONDS = 1.0
WHERE = {
    "bash": "echo 'eval \"$(stoker completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(stoker completion zsh)\"' >> ~/.zshrc",
    "fish": "stoker completion fish > ~/.config/fish/completions/stoker.fish",
}

Names = Iterable[tuple[str, str]]


@command(*WHERE.values())
@click.argument("shell", type=click.Choice([*WHERE]))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names.

    It completes names of runs, nodes and incidents, too: those of the cluster that the command line means.
    """
    from runner.cli.main import COMPLETE_VARIABLE

    found = get_completion_class(shell)
    root = click.get_current_context().find_root()
    assert found is not None
    print_text(found(root.command, {}, "stoker", COMPLETE_VARIABLE).source())


def add_names(target: click.Command) -> None:
    """Let the arguments and options of a command that are named after runs, nodes and incidents complete to these."""
    for parameter in target.params:
        names = _NAMES_OF.get(parameter.name or "")
        if names is not None and isinstance(parameter.type, StringParamType):
            parameter.type = _NameType(names)


class _NameType(StringParamType):
    """A text that the shell completes to a name."""

    def __init__(self, names: Callable[[ClusterStatus], Names]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so, each with its state."""
        status = _status(ctx.params.get("where"))
        if status is None:
            return []
        return [
            CompletionItem(name, help=printable(text, 60))
            for name, text in dict(self._names(status)).items()
            if name.startswith(incomplete)
        ]


def _status(where: str | None) -> ClusterStatus | None:
    """Return the status of the cluster meant; None if that takes long or fails, whatever the reason."""
    found: list[ClusterStatus | None] = []
    # A daemon: a store that hangs keeps no shell waiting.
    reader = threading.Thread(target=_read, args=(where, found), daemon=True)
    reader.start()
    reader.join(COMPLETE_SECONDS)
    return found[0] if found else None


def _read(where: str | None, found: list[ClusterStatus | None]) -> None:
    from runner.cli import clusters

    try:
        # What is printed would appear in the line that is being typed.
        with contextlib.redirect_stderr(io.StringIO()), clusters.open_cluster(where) as opened:
            cluster, store = opened
            found.append(clusters.status_in(store, cluster))
    except Exception:  # noqa: BLE001 - bulkhead: no names are better than a traceback in the line that is being typed
        return


def _runs(status: ClusterStatus) -> Names:
    return ((run.name, run.state) for run in status.runs)


def _nodes(status: ClusterStatus) -> Names:
    return ((node.node, node.state) for node in status.nodes)


def _incidents(status: ClusterStatus) -> Names:
    return (
        (incident.incident, f"{incident.fault}, {incident.state}") for incident in status.incidents
    )


_NAMES_OF: dict[str, Callable[[ClusterStatus], Names]] = {
    **dict.fromkeys(("run", "run_name"), _runs),
    **dict.fromkeys(("node", "nodes", "names", "spare"), _nodes),
    **dict.fromkeys(("incident", "seen"), _incidents),
}
