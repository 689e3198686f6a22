"""What a test run plays of what is exhaustive, and where its time goes: seconds by folder, the slowest tests."""

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.suite import budgets, share, whole_files

NUM_SLOWEST = 40
# Tests shorter than this together are one line; chosen.
MIN_FOLDER_SECONDS = 1.0
# The share, if the environment asks for one.
_settled: list[share.Share] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--times`."""
    parser.addoption(
        "--times",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="print the seconds of each folder and of the slowest tests; the default where CI=true",
    )


def pytest_configure() -> None:
    """Settle the share once: workers and what tests start read it as it is printed. What is started can be interrupted.

    A shell without job control starts commands in the background with SIGINT ignored, and their children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        played = share.current()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if share.VARIABLE in os.environ:
        _settled.append(played)
        os.environ[share.VARIABLE] = str(played)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of tests that `-m` leaves out as a whole."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return whole_files.is_left_out(collection_path, config.getoption("markexpr")) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of other shares."""
    played = share.current()
    left_out = [
        item
        for item in items
        # By the marker's number, where balance asks for one; else by its name.
        for marker in item.iter_markers("shared")
        if not played.has(*marker.args or (item.nodeid,))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the share and both tables. A fixture's time counts for the test that made it first."""
    if hasattr(config, "workerinput"):
        # A lane's own summary, which is not shown; the whole run's has its tests too.
        return
    for played in _settled:
        terminalreporter.write_line(f"Of what is exhaustive: {played.words()}")
    seconds_of: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds_of[report.nodeid] += report.duration
    folders: defaultdict[str, float] = defaultdict(float)
    for name, seconds in seconds_of.items():
        folders[_folder(name)] += seconds
    if file := os.environ.get(budgets.VARIABLE):
        budgets.add_seconds(Path(file), folders)
    if config.getoption("--times"):
        print_times(terminalreporter, seconds_of, folders)


def print_times(
    terminal: pytest.TerminalReporter,
    seconds_of: Mapping[str, float],
    folders: Mapping[str, float],
) -> None:
    """Print what took long. `seconds_of`: by the tests' names as pytest gives them; `folders`: by folder."""
    tests_of = Counter(map(_folder, seconds_of))
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


def _folder(name: str) -> str:
    return os.path.dirname(name.partition("::")[0])


def _longest(seconds_of: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds_of.items(), key=lambda item: -item[1])
