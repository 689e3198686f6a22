"""`python -P -m runner.agent --cluster STATE/cluster.json --node n1`: one node's agent, until SIGTERM."""

import argparse
import logging
import sys
from contextlib import closing
from pathlib import Path

from runner.agent.agent import Agent
from runner.agent.config import AgentConfig
from runner.agent.launch import survey
from runner.errors import StokerError, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import decode
from runner.log_lines import start_log
from runner.store.registry import open_store_in_time


def main(arguments: list[str] | None = None) -> int:
    """Run an agent; 2 when it was started wrongly, 1 when it cannot work here."""
    parser = argparse.ArgumentParser(prog="stoker agent", description="One node's agent.")
    parser.add_argument(
        "--cluster", type=Path, required=True, help="cluster.json in the cluster's state folder"
    )
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--folder", type=Path, help="the node's folder (STATE/nodes/NODE)")
    parser.add_argument("--slots", type=int, help="ranks the node can hold (as cluster.json says)")
    parser.add_argument(
        "--address", default="127.0.0.1", help="address other nodes reach this one at"
    )
    options = parser.parse_args(arguments)
    start_log(f"%(asctime)s {options.node} %(levelname)s %(message)s")
    try:
        cluster = _cluster(options.cluster)
        state = Path(cluster.state or options.cluster.parent).absolute()
        config = AgentConfig(
            node=options.node,
            folder=options.folder or state / "nodes" / options.node,
            cluster=cluster,
            slots=options.slots or cluster.local.slots,
            address=options.address,
        )
        with closing(open_store_in_time(cluster, logging.warning)) as store:
            return Agent(store, config).run()
    except StokerError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, UserError) else 1
    finally:
        survey.end_children()


def _cluster(path: Path) -> ClusterSpec:
    try:
        found = decode(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"--cluster {path}: {error}; a supervisor writes it when it starts"
        ) from error
    if not isinstance(found, ClusterSpec):
        raise UserError(
            f"--cluster {path} holds no cluster; name the cluster.json of a state folder"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
