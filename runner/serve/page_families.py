"""Families of metrics of pages: how many reached a person, and what waits."""

from collections.abc import Iterator

from runner.facts.messages.cluster_status import PagesStatus
from runner.serve.exposition import MetricFamily, counter, gauge


def pages(status: PagesStatus, now: float) -> Iterator[MetricFamily]:
    """Describe the pages of the cluster so far; `now`: by its clock, seconds since 1970."""
    yield counter("stoker_pages_sent", "Pages sent.", status.sent)
    yield counter("stoker_page_failures", "Tries to send a page that failed.", status.failed)
    text = "Pages that some address never got."
    yield counter("stoker_pages_dropped", text, status.dropped)
    text = "Pages that were not sent, because their cause is paged."
    yield counter("stoker_pages_inhibited", text, status.inhibited)
    yield gauge("stoker_pages_waiting", "Pages that wait to be sent.", status.waiting)
    since = status.waiting_since
    age = 0.0 if since is None else max(0.0, now - since)
    yield gauge("stoker_page_waiting_seconds", "For how long the oldest of them waits.", age)
    text = "When the newest page was sent."
    yield gauge("stoker_page_sent_timestamp_seconds", text, status.last_sent_at)
    text = "When the newest sign of life for a dead-man's switch got through."
    yield gauge("stoker_page_heartbeat_timestamp_seconds", text, status.heartbeat_at)
    text = "1: the newest tries failed, or the file of addresses is wrong; `stoker status` has the reason."
    yield gauge("stoker_pages_failing", text, bool(status.problem))
