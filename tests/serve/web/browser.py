"""The system's Chromium, driven by Playwright, which downloads none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

# For what a test expects of the browser; far above the usual time, for a loaded machine.
WAIT_MILLISECONDS = 60_000.0


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; skip the test where there is none, and fail in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        assert not os.environ.get("CI"), "tests/install-tools.sh installs chromium"
        pytest.skip("no chromium; tests/install-tools.sh installs it")
    # The sandbox wants another user than root, and /dev/shm is small in containers.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
