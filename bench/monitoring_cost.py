"""What pages, metrics and the web page cost a supervisor, beside what `bench.fleet` gives it: `python -m bench.monitoring_cost`.

One fleet, one supervisor with `metrics_port`, `web_port` and a file of addresses. Windows without visitors take turns with
windows in which Prometheus scrapes, readers follow the page, and signs of life leave, all of it ten times as often as usual: the
difference is ten times what it costs, and larger than the differences between windows of one kind.
"""

import argparse
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from bench.clusters import cpu_seconds
from bench.fleet.measures import SETTLE_SECONDS, start_runs
from bench.fleet.stage import Stage, stage
from bench.report import Report, median_interval
from bench.web import Visitor
from runner.act.pager.sender import FILE_SECONDS
from runner.token_file import web_token_file
from tests.act.webhook import Webhook

NODES, ROUNDS, WINDOW_SECONDS = 2000, 7, 8.0
# As often as usual: Prometheus' interval in deploy/prometheus.yml, the default of a sign of life, one reader.
SCRAPE_SECONDS, SIGN_SECONDS, NUM_READERS = 15.0, 60.0, 1
AMPLIFIED = 10
# Until the sender has read the file of addresses again.
CHANGE_SECONDS = FILE_SECONDS + 0.5
# Of what the supervisor takes without them.
LIMIT_PERCENT = 1.0
# For the processes that serve to start; far above what it takes.
START_SECONDS = 60.0


class Audience:
    """Who looks at one cluster, while `looking`: a Prometheus, readers of the page, and a receiver of signs of life."""

    def __init__(self, harness: Stage, *, metrics_port: int, web_port: int) -> None:
        self._harness, self._metrics_port, self._web_port = harness, metrics_port, web_port
        self._token = Path(web_token_file(harness.cluster, "viewer"))
        self.num_scrapes = self.num_events = 0

    @contextmanager
    def looking(self, receiver: Webhook) -> Iterator[None]:
        """Look while the block runs."""
        addresses = Path(self._harness.cluster.pages.addresses_file)
        lines = [f"oncall alertmanager://{receiver.place}", f"heartbeat http://{receiver.place}/"]
        addresses.touch(mode=0o600)
        addresses.write_text("\n".join(lines))
        is_over = threading.Event()
        scraper = threading.Thread(target=self._scrape, args=(is_over,))
        visitors = [
            Visitor(self._web_port, self._token.read_text().strip())
            for _ in range(NUM_READERS * AMPLIFIED)
        ]
        readers = [
            threading.Thread(target=visitor.follow, args=(visitor.open()[1],), daemon=True)
            for visitor in visitors
        ]
        for thread in (scraper, *readers):
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            scraper.join()
            for visitor in visitors:
                visitor.connection.close()
            self.num_events += min(visitor.num_events for visitor in visitors)
            addresses.unlink()

    def scrape(self) -> None:
        """Scrape once."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics") as answer:
            answer.read()

    def _scrape(self, is_over: threading.Event) -> None:
        while not is_over.wait(SCRAPE_SECONDS / AMPLIFIED):
            self.scrape()
            self.num_scrapes += 1

    def wait_for_servers(self) -> None:
        """Wait until metrics and page answer."""
        until = time.monotonic() + START_SECONDS
        self.scrape()
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._web_port), timeout=10.0).close()
                return
            except OSError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"no web page: {self._harness.report()}") from error
                time.sleep(0.1)


def measure(report: Report, given: argparse.Namespace) -> None:
    """Measure windows in pairs, each pair in the other order than the one before."""
    metrics_port, web_port = free_ports()
    fields = {
        "metrics_port": metrics_port,
        "web_port": web_port,
        "pages": {"addresses_file": "pages", "heartbeat_seconds": SIGN_SECONDS / AMPLIFIED},
    }
    with ExitStack() as stack:
        receiver = stack.enter_context(Webhook())
        harness = stack.enter_context(stage(given.nodes, fields=fields))
        harness.join()
        start_runs(harness)
        audience = Audience(harness, metrics_port=metrics_port, web_port=web_port)
        audience.wait_for_servers()
        time.sleep(given.settle)
        alone, watched = [], []
        for number in range(given.rounds):
            for is_watched in (False, True) if number % 2 else (True, False):
                if is_watched:
                    with audience.looking(receiver):
                        watched.append(_cores(harness, given.seconds))
                else:
                    alone.append(_cores(harness, given.seconds))
        num_signs = len(receiver.accepted)
    _report(report, alone, watched)
    report.figure("scrapes meanwhile", audience.num_scrapes, "", at_least=1)
    report.figure("updates of each reader meanwhile", audience.num_events, "", at_least=1)
    report.figure("signs of life meanwhile", num_signs, "", at_least=1)


def _report(report: Report, alone: list[float], watched: list[float]) -> None:
    """Print the cost; a pair's difference is of its own two windows, which the machine's load meets alike."""
    more = [(one / other - 1) * 100 for one, other in zip(watched, alone, strict=True)]
    low, high, coverage = median_interval(more)
    report.figure_of("supervisor, without any of it", alone, "cores, as measured")
    report.figure_of(
        f"supervisor, {AMPLIFIED} times as much as usual", watched, "cores, as measured"
    )
    report.figure(
        f"all of it as usual: more processor time of the supervisor ({coverage:.0%} interval)",
        statistics.median(more) / AMPLIFIED,
        "%",
        at_most=LIMIT_PERCENT,
        spread=(low / AMPLIFIED, high / AMPLIFIED),
    )


def _cores(harness: Stage, seconds: float) -> float:
    """Return what the supervisor takes, once a change of the addresses has reached it."""
    time.sleep(CHANGE_SECONDS)
    begun, before = time.monotonic(), cpu_seconds(harness.supervisor.pid)
    time.sleep(seconds)
    return (cpu_seconds(harness.supervisor.pid) - before) / (time.monotonic() - begun)


def free_ports() -> tuple[int, int]:
    """Return two free ports."""
    with closing(socket.socket()) as one, closing(socket.socket()) as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def main() -> int:
    """Measure and print; return 1 if the limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitoring_cost", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=WINDOW_SECONDS, help="of a window")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="before the first")
    given = parser.parse_args()
    report = Report(
        "pages, metrics and web page, beside a large fleet",
        f"{given.nodes} nodes as in bench.fleet, in gangs of 8; {given.rounds} pairs of windows of {given.seconds:g} s, "
        f"CPU time of the supervisor from /proc; of each pair one window with a scrape every {SCRAPE_SECONDS / AMPLIFIED:g} s, "
        f"{NUM_READERS * AMPLIFIED} readers of the page, and every {SIGN_SECONDS / AMPLIFIED:g} s a sign of life to a dead-man's "
        f"switch and to Alertmanager; usual is a {AMPLIFIED}th of that, and so is the cost",
    )
    measure(report, given)
    return int(report.num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
