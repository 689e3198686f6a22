"""Servers that both tests use."""

from collections.abc import Iterator

import pytest

from tests.e2e.monitoring.servers import Webhook


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Give a webhook."""
    receiver = Webhook()
    yield receiver
    receiver.close()
