"""A rank of the built-in trainer that times the reference loop after each step: `python -m bench.timed_rank` takes its arguments.

Rank 0 prints what supervision cost in a step, and an iteration of the loop: medians of the processor time of its one thread.
"""

import sys

import trainer.loop
from bench.reference_loop import ReferenceLoop
from trainer import cli
from trainer.contract.reports import Reporter


class TimedReporter(Reporter):
    """Reports as the trainer does; after each step it samples the loop, where caches are as supervision finds them."""

    loop = ReferenceLoop()

    def record_cost(self, agreement_seconds: float) -> None:
        """Record the cost, then take the step's sample."""
        super().record_cost(agreement_seconds)
        self.loop.sample()

    def log_cost(self) -> None:
        """Log both medians."""
        us = 1e6 * self.cost_seconds()
        self.log(f"supervision took {us:.1f} us a step, the reference loop {self.loop.us:.2f} us")


if __name__ == "__main__":
    vars(trainer.loop)["Reporter"] = TimedReporter
    sys.exit(cli.main())
