"""What every emitter can say is known, and what it says in health acts on nothing: each row is rendered and searched as a line."""

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import pytest

from runner.collect import engines
from runner.collect.catalogues.cache import FOLDER, load_table
from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.catalogues.files import (
    Catalogue,
    CatalogueRow,
    Level,
    paths_in,
    read_catalogue,
)
from runner.collect.catalogues.table import is_searched
from runner.collect.scan import BLOCK_BYTES, Scan
from runner.facts.matches import Match
from tests.collect.catalogues.rendered import rendered
from tests.collect.catalogues.samples import engine
from tests.suite.share import current

# Tens of thousands of rows, each with a pattern of its own.
pytestmark = pytest.mark.timeout(600)
# Of the rows of an emitter with a class, how many have to be found with it. Chosen.
LEAST_NAMED = 0.9
# Of all rows of errors: those with no words of their own, and those that another row of a lower level says as well. Chosen.
MOST_SHORT, MOST_OPEN = 0.005, 0.01
MOST_FEW = 3
# Of lines of lower levels: those of a word or two, which another emitter writes for an error. Chosen.
MOST_UNKNOWN = 0.001
FOUND = ("named", "unknown", "other", "open", "signature", "short", "nothing")


@pytest.fixture(scope="module")
def catalogues() -> Catalogues:
    """Load the catalogues of this release."""
    return Catalogues(load_table())


def lines(catalogue: Catalogue, levels: Sequence[Level]) -> list[tuple[CatalogueRow, str]]:
    """Render the rows of these levels that this run of the tests plays; each has a word that it requires."""
    assert catalogue.header is not None
    made = []
    for row in current().of([row for row in catalogue.rows if row.level in levels]):
        dice = random.Random(zlib.crc32(row.format.encode()))
        line = rendered(row.format, row.style or catalogue.header.style, dice)
        requires = row.requires or catalogue.header.requires
        if requires and not any(word.lower() in line.lower() for word in requires):
            line = f"{requires[0]}: {line}"
        made.append((row, " ".join(line.splitlines())))
    return made


def searched(
    catalogue: Catalogue, levels: Sequence[Level], catalogues: Catalogues
) -> Iterator[tuple[CatalogueRow, str, list[Match]]]:
    """Search the lines of a catalogue in one log."""
    made = lines(catalogue, levels)
    scan = Scan("log", engine=engine(engines.version()), catalogues=catalogues, max_matches=None)
    data = "".join(f"{line}\n" for _, line in made).encode()
    matches: defaultdict[int, list[Match]] = defaultdict(list)
    for at in range(0, len(data), BLOCK_BYTES):
        for found in scan.feed(data[at : at + BLOCK_BYTES]):
            if found.match is not None:
                matches[found.line].append(found.match)
    for number, (row, line) in enumerate(made, 1):
        yield row, line, matches[number]


def outcome(row: CatalogueRow, matches: Sequence[Match], *, is_open: bool) -> str:
    """Return what a line of an error was taken for. `is_open`: a row of a lower level explains as much of it."""
    faults = [match.fault for match in matches if match.weight == "primary" and match.fault]
    if row.fault in faults:
        return "named"
    is_by_signature = any(_is_known(match) for match in matches)
    if faults and not is_by_signature:
        return "other" if any(fault != "unknown" for fault in faults) else "unknown"
    if is_by_signature:
        # A hand-written signature has another opinion of it, and is the better judge.
        return "signature"
    return "open" if is_open else "nothing"


def _is_known(match: Match) -> bool:
    """Whether a signature knows more of a line than that it is an error."""
    generic = ("exception", "exception-of-code", "error-of-any-kind")
    return match.known_by == "signature" and match.role not in generic


def print_table(table: dict[str, Counter[str]]) -> None:
    """Print one line for each emitter."""
    print(f"\n{'emitter':32}{'errors':>8}{'classed':>8}" + "".join(f"{name:>10}" for name in FOUND))
    for emitter, num in table.items():
        counts = "".join(f"{num[name]:10}" for name in FOUND)
        print(f"{emitter[:31]:32}{num['errors']:8}{num['classed']:8}{counts}")


@pytest.mark.costly
def test_errors_of_all_emitters_are_known(
    catalogues: Catalogues, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those with a class are named, the others are unknown at least; a table by emitter shows it."""
    table: dict[str, Counter[str]] = {}
    lost = []
    for path in paths_in(FOLDER):
        catalogue = read_catalogue(path)
        assert not catalogue.defect
        assert catalogue.header is not None
        num = table.setdefault(catalogue.header.emitter, Counter())
        for row, line, matches in searched(catalogue, ["error"], catalogues):
            is_open = catalogues.row_of(line, line) is not None
            found = outcome(row, matches, is_open=is_open)
            if found == "nothing" and not is_searched(catalogue.header, row):
                found = "short"
            num.update(["errors", found, *(["classed"] if row.fault else [])])
            lost += [f"{path.name}: {line}"] if found == "nothing" else []
    total = sum(table.values(), Counter[str]())
    with capsys.disabled():
        print_table({**table, "all": total})
    assert lost == []
    assert total["short"] <= MOST_SHORT * total["errors"]
    assert total["open"] <= MOST_OPEN * total["errors"]
    # A handful of rows of an emitter is no ratio.
    few = [
        (name, num)
        for name, num in table.items()
        if num["named"] < LEAST_NAMED * (num["classed"] - num["signature"]) - MOST_FEW
    ]
    assert few == []


@pytest.mark.costly
def test_what_emitters_say_in_health_names_no_fault(
    catalogues: Catalogues, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line of info, debug or warning is a match of a catalogue that names a fault. Other tests judge signatures."""
    num_lines, unknown, wrong, by_signature = 0, list[str](), list[str](), 0
    for path in paths_in(FOLDER):
        catalogue = read_catalogue(path)
        for _, line, matches in searched(catalogue, ["warning", "info", "debug"], catalogues):
            primary = [match for match in matches if match.weight == "primary" and match.fault]
            known = [match for match in primary if match.known_by == "catalogue"]
            num_lines += 1
            by_signature += any(match.fault != "unknown" for match in primary) and not known
            wrong += [f"{path.name}: {line}" for match in known if match.fault != "unknown"]
            unknown += [f"{path.name}: {line}" for match in known if match.fault == "unknown"]
    with capsys.disabled():
        print(
            f"\n{num_lines} lines of lower levels: {len(wrong)} are named by a catalogue, "
            f"{len(unknown)} are unknown, {by_signature} are named by a signature"
        )
    assert wrong == []
    assert len(unknown) <= MOST_UNKNOWN * num_lines, unknown
