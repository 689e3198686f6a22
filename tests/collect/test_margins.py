"""Margins: a log that was pasted into a mail, a list or a YAML file is read as it was written."""

import json
import random
from pathlib import Path

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.margins import MAX_MARGIN, Margin
from runner.collect.scan import engine_for
from runner.facts.causes import Cause
from runner.facts.matches import LoggedStep
from runner.rootcause.signatures import SIGNATURES

CASES = Path(__file__).parents[2] / "../shared/data/logs/cases.jsonl"
RECORDED = sorted((Path(__file__).parent / "trainers/recorded").glob("*.log"))
MARGINS = ("    ", "\t", "> ", "  > > \t")
# What the fifth rank of a job printed, between which a list has empty lines.
PASTED = """Traceback (most recent call last):
  File "/opt/train.py", line 9, in <module>
    main()

  File "/opt/train.py", line 5, in main
    feed(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


def judged(text: str, engine: Engine) -> tuple[list[tuple[Cause, bool]], LoggedStep | None]:
    """Judge one log; return its causes without what they quote, whether they are over, and the furthest step."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("log")
    log.feed(text.encode())
    log.finish()
    causes = [(one.cause, one.recovered) for one in diagnosis.verdicts()]
    return causes, log.steps.furthest


def indented(text: str, margin: str) -> str:
    """Put a margin before each line."""
    return "\n".join(margin + line for line in text.split("\n"))


def named(found: tuple[list[tuple[Cause, bool]], LoggedStep | None]) -> object:
    """Return what was found without the quotations, which have no blanks at their ends any more."""
    causes, furthest = found
    return [
        (one.fault, one.scope, one.culprit, one.node, one.confidence, one.action_class, is_over)
        for one, is_over in causes
    ], furthest


def without_margin(text: str, size: int = 1 << 20) -> str:
    """Read a text in blocks of this many bytes."""
    margin, raw = Margin(), text.encode()
    blocks = [margin.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    return (b"".join(blocks) + margin.finish()).decode()


@pytest.mark.costly
@pytest.mark.skipif(not CASES.is_file(), reason="../shared/data is not here")
def test_real_logs_get_the_same_verdict_behind_every_margin(engine: Engine) -> None:
    """Fault, culprit, confidence, action and steps of each case do not depend on how it was pasted."""
    changed = []
    for line in CASES.read_text().splitlines():
        case = json.loads(line)
        plain = named(judged(case["log"], engine))
        changed += [
            (case["id"], margin)
            for margin in MARGINS
            if named(judged(indented(case["log"], margin), engine)) != plain
        ]
    assert changed == []


@pytest.mark.costly
def test_single_lines_of_signatures_get_the_same_verdict_behind_every_margin(
    engine: Engine,
) -> None:
    """A log of one line, and one in which other lines are around it."""
    changed = []
    for one in SIGNATURES:
        for text in (one.sample, f"step 4 loss 2.25\n{one.sample}\n\nexit"):
            plain = named(judged(text, engine))
            changed += [
                (one.name, margin)
                for margin in MARGINS
                if named(judged(indented(text, margin), engine)) != plain
            ]
    assert changed == []


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_steps_are_read_behind_every_margin(file: Path, engine: Engine) -> None:
    """The furthest step of a real trainer's log, and its line."""
    text = file.read_text()
    plain = named(judged(text, engine))
    assert judged(text, engine)[1] is not None
    for margin in MARGINS:
        assert named(judged(indented(text, margin), engine)) == plain


@pytest.mark.parametrize("margin", MARGINS)
def test_blocks_may_be_cut_anywhere(margin: str) -> None:
    """Blocks of every size give the text without its margin, with and without an end of the last line."""
    long = PASTED + "x" * (3 * MAX_MARGIN) + "\n"
    for text in (PASTED, PASTED.rstrip(), long, long.rstrip(), long.replace("\n", "\r\n")):
        pasted = indented(text, margin).replace(f"\n{margin}\n", f"\n{margin.rstrip()}\n")
        for size in (1, 2, 3, 7, 64, 65, 1 << 16):
            assert without_margin(pasted, size).rstrip(" ") == text.rstrip(" ")


def test_a_log_that_is_not_indented_passes_as_it_is() -> None:
    """One line at the edge is enough, wherever it is; what was read before it may have lost its margin."""
    rng = random.Random(7)
    for text in (PASTED, "\n\n" + PASTED, "    below\n" + PASTED, ">>> x\n> y\n", "", "\n", "   "):
        assert without_margin(text) == text
        size = rng.randint(1, 40)
        assert without_margin(PASTED + text, size) == PASTED + text


def test_frames_of_a_stack_whose_header_is_missing_keep_their_own_blanks() -> None:
    """Python writes two before each; only what is beyond them is a margin."""
    frames = "\n".join(PASTED.splitlines()[1:3])
    assert without_margin(frames) == frames
    assert without_margin(indented(frames, "    ")) == frames


def test_the_marks_of_a_comment_are_a_margin() -> None:
    """A log that was pasted into a program has one before every line, and before empty ones none behind it."""
    text = "# Epoch 1/20\n#\n# 313/313 [====] - 16s 51ms/step - loss: 0.6966\n"
    margin = Margin()
    read = margin.feed(text.encode()) + margin.finish()
    assert read == b"Epoch 1/20\n\n313/313 [====] - 16s 51ms/step - loss: 0.6966\n"


def test_blanks_of_a_web_page_are_blanks(engine: Engine) -> None:
    """Pages write blanks that do not break lines; what is read has its usual words."""
    text = PASTED.replace(" ", "\N{NO-BREAK SPACE}").encode()
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("page.txt")
    log.feed(text)
    log.finish()
    (verdict,) = diagnosis.verdicts()
    assert verdict.cause.fault == "cuda_oom"
    assert verdict.evidence[0].text.startswith("torch.OutOfMemoryError: CUDA out of memory. ")
