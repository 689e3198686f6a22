"""A cluster that serves metrics, with a script that really trains on a CPU and reports what it can measure."""

import socket
import sys
from dataclasses import dataclass

from tests.e2e.cluster_harness import ClusterHarness

# Least squares by gradient descent in plain Python, with the client's lines around it; it ends when `enough` exists.
SCRIPT = """
import os, json, random, resource, time
import stoker

run = stoker.attach()
numbers = random.Random(int(os.environ["RANK"]))
weights, step = [0.0, 0.0], run.resume_step
if run.resume_folder is not None:
    weights = json.loads((run.resume_folder / "weights").read_text())
factor = run.remedies("lr_factor").get("lr_factor", 1.0)
rate = 0.05 * factor
run.read_back(step, lr=rate, lr_factor=factor)
while not os.path.exists("enough"):
    began, step, samples = time.monotonic(), step + 1, 64
    loss, gradient = 0.0, [0.0, 0.0]
    for _ in range(samples):
        x = numbers.uniform(-1.0, 1.0)
        off = weights[0] * x + weights[1] - (3.0 * x - 1.0)
        loss += off * off / samples
        gradient = [gradient[0] + 2 * off * x / samples, gradient[1] + 2 * off / samples]
    weights = [w - rate * g for w, g in zip(weights, gradient)]
    time.sleep(0.05)
    took = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    norm = sum(g * g for g in gradient) ** 0.5
    run.step(step, loss=loss, grad_norm=norm, lr=rate, tokens_per_second=samples / took, peak_memory_bytes=peak)
    if run.should_checkpoint or step % 20 == 0:
        if os.environ["RANK"] == "0":
            with run.checkpoint(step) as folder:
                (folder / "weights").write_text(json.dumps(weights))
    if run.should_stop:
        break
"""


@dataclass(frozen=True, slots=True)
class Monitored:
    """A cluster whose supervisor serves metrics on a port, with a run that trains."""

    harness: ClusterHarness
    metrics_port: int


def monitored_run(harness: ClusterHarness, *, pages_to: str = "") -> Monitored:
    """Start the supervisor, two nodes and a spare, and the run; return once the gang trains. `pages_to`: an address for pages."""
    port = free_port()
    limits: dict[str, object] = {"metrics_port": port, "token_file": "token"}
    if pages_to:
        addresses = harness.folder / "pages.addresses"
        addresses.touch(mode=0o600)
        addresses.write_text(f"oncall {pages_to}\n")
        limits["pages"] = {"addresses_file": str(addresses), "every_rung": True}
    harness.write_cluster(nodes=2, slots=1, spares=1, limits=limits)
    harness.write_script(SCRIPT)
    where = {"python": sys.executable, "checkpoints": "saved"}
    wanted = {"total_steps": 1_000_000, "deadline": "2100-01-01T00:00Z", "cost_rate": 2.5}
    harness.write_run(command="{python} train.py", nodes=2, ranks_per_node=1, **where, **wanted)
    return started(harness, port)


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def started(harness: ClusterHarness, metrics_port: int) -> Monitored:
    """Start the supervisor and the run whose files are written; return once the gang trains."""
    harness.start("supervise")
    harness.until(harness.view, "a first status")
    handed = harness.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed
    harness.training(past_step=3)
    return Monitored(harness, metrics_port)


def end(monitored: Monitored) -> None:
    """Let the ranks end, and shut the cluster down."""
    harness = monitored.harness
    (harness.folder / "enough").touch()
    ended = harness.stoker("shutdown")
    assert ended.returncode == 0, ended
    harness.until(lambda: not harness.processes(), "all processes have ended")
