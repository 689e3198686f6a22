"""Where the time of a test run goes: seconds by folder and the slowest tests, printed at the end in CI or with `--times`."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest

NUM_SLOWEST = 40
# Tests shorter than this together are one line; chosen.
MIN_FOLDER_SECONDS = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--times`."""
    parser.addoption(
        "--times",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="print the seconds of each folder and of the slowest tests; the default where CI=true",
    )


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print both tables. A fixture's time counts for the test that made it first."""
    if not config.getoption("--times"):
        return
    seconds_of: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds_of[report.nodeid] += report.duration
    print_times(terminalreporter, seconds_of)


def print_times(terminal: pytest.TerminalReporter, seconds_of: Mapping[str, float]) -> None:
    """Print what took long; `seconds_of`: by the tests' names as pytest gives them."""
    tests_of: Counter[str] = Counter()
    folders: defaultdict[str, float] = defaultdict(float)
    for name, seconds in seconds_of.items():
        folder = os.path.dirname(name.partition("::")[0])
        folders[folder] += seconds
        tests_of[folder] += 1
    terminal.section("seconds by folder")
    short = [folder for folder in folders if folders[folder] < MIN_FOLDER_SECONDS]
    for folder, seconds in _longest(folders):
        if folder not in short:
            terminal.write_line(f"{seconds:8.1f} s  {tests_of[folder]:5} tests  {folder}")
    if short:
        seconds, num_tests = (sum(of[folder] for folder in short) for of in (folders, tests_of))
        terminal.write_line(f"{seconds:8.1f} s  {num_tests:5} tests  {len(short)} other folders")
    terminal.write_line(f"{sum(folders.values()):8.1f} s  {len(seconds_of):5} tests  in all")
    terminal.section(f"the {NUM_SLOWEST} slowest tests")
    for name, seconds in _longest(seconds_of)[:NUM_SLOWEST]:
        terminal.write_line(f"{seconds:8.1f} s  {name}")


def _longest(seconds_of: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds_of.items(), key=lambda item: -item[1])
