"""Every signature can fire, on its own sample and on others like it, and stays silent on lines that only resemble it."""

import re

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine, ReEngine
from runner.collect.scan import Scan, engine_for
from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS
from runner.rootcause.signatures import SIGNATURES, Signature

WRAPPINGS = ("", "[rank5]: ", "[default3]:", "2026-02-03 04:05:06,789 ", "17: ")
BEFORE = "loading the model\nall ranks are ready\n"
AFTER = "this line matches nothing\n"


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


def varied(sample: str) -> str:
    """Rewrite the sample for another GPU, process, rank and address, at another time."""
    sample = re.sub(r"\b([0-9a-f]{4}):[0-9a-f]{2}:", r"\1:b7:", sample)
    sample = re.sub(r"pid=\d+", "pid=778899", sample)
    sample = re.sub(r"\(pid[^)]*\d+\)", "(pid 60321)", sample)
    sample = re.sub(r"\b10\.\d+\.\d+\.\d+", "10.77.66.55", sample)
    return sample.replace("2026-02-03T04:05:06", "2027-11-12T13:14:15")


def names_in(text: str, engine: Engine) -> dict[str, str]:
    """Return signature -> text of what is found in a log."""
    scan = Scan("log", engine=engine)
    found = [*scan.feed(text.encode()), *scan.finish()]
    return {one.match.signature: one.match.text for one in found if one.match is not None}


@pytest.mark.parametrize(
    "signature",
    # Frames of any kind go to the reader of tracebacks, and are no matches.
    [one for one in SIGNATURES if one.role != "frame"],
    ids=lambda signature: signature.name,
)
def test_a_signature_knows_its_sample_however_it_is_wrapped_and_not_what_is_near_it(
    signature: Signature, engine: Engine
) -> None:
    """Through the scan, bytes in; another GPU, rank, time or prefix makes no difference."""
    for wrapping in WRAPPINGS:
        for sample in (signature.sample, varied(signature.sample)):
            text = f"{BEFORE}{wrapping}{sample}\n{AFTER}"
            assert signature.name in names_in(text, engine), text
        near = f"{BEFORE}{wrapping}{signature.near}\n{AFTER}"
        assert signature.name not in names_in(near, engine), near


@pytest.mark.parametrize(
    "signature",
    # Rows of reports need the title of their section.
    [one for one in SIGNATURES if one.weight == "primary" and one.role != "in-section"],
    ids=lambda signature: signature.name,
)
def test_a_signature_that_names_a_fault_becomes_an_incident_with_its_line_as_evidence(
    signature: Signature, engine: Engine
) -> None:
    """All the way from bytes to a verdict; what only supports others makes none."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("log")
    log.feed(f"{BEFORE}[rank5]: {varied(signature.sample)}\n{AFTER}".encode())
    log.finish()
    (verdict,) = diagnosis.verdicts()
    deciding = verdict.evidence[0]
    assert deciding.line == 3
    # The words of an error that no signature knows may name a fault.
    is_likeliest = signature.fault == "unknown" and deciding.known_by == "family"
    assert verdict.cause.fault == signature.fault or is_likeliest


def test_what_only_supports_others_is_no_incident_by_itself(engine: Engine) -> None:
    """Nor what excuses a line."""
    for signature in SIGNATURES:
        if signature.weight != "primary" and not signature.role.startswith(("traceback", "frame")):
            diagnosis = Diagnosis(engine=engine)
            log = diagnosis.log("log")
            log.feed(f"{BEFORE}{signature.sample}\n{AFTER}".encode())
            assert not diagnosis.verdicts(), signature.name


def test_names_are_unique_and_faults_and_layers_are_known() -> None:
    """A fault that is not listed would have no runbook and no answer."""
    names = [signature.name for signature in SIGNATURES]
    assert len(dict.fromkeys(names)) == len(names)
    for signature in SIGNATURES:
        assert signature.layer in LAYERS
        assert signature.fault in FAULTS or (signature.weight != "primary" and not signature.fault)


def test_both_engines_find_the_same(engine: Engine) -> None:
    """Hyperscan and `re` do not always mean the same by a pattern; here they do."""
    plain = ReEngine([signature.pattern for signature in SIGNATURES])
    lines = [line for one in SIGNATURES for line in (one.sample, one.near, varied(one.sample))]
    block = "\n".join(lines).encode()
    assert _found(engine, block, len(SIGNATURES)) == _found(plain, block, len(SIGNATURES))


def _found(engine: Engine, block: bytes, num_patterns: int) -> list[tuple[int, int]]:
    """Return (line, pattern) for all that an engine finds."""
    found: dict[tuple[int, int], bool] = {}

    def note(index: int, end: int) -> None:
        if index < num_patterns:
            found[block.count(b"\n", 0, max(end - 1, 0)), index] = True

    engine.search(block, note)
    return sorted(found)
