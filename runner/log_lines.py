"""The log of a program: lines of one form, visible characters only, since ranks, logs and the store fill them."""

import logging

from runner.facts.wording import visible


class _VisibleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def start_log(form: str) -> None:
    """Log to standard error from now on, in this form (of `logging`)."""
    handler = logging.StreamHandler()
    handler.setFormatter(_VisibleFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
