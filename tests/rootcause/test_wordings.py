"""Wordings: an error line of an emitter without a catalogue is judged by its family and by its words."""

from pathlib import Path

import pytest

from runner.collect.wordings import EMPTY, installed_wordings, read_wordings
from runner.facts.faults import FAULTS, fault_kind
from runner.facts.matches import LAYERS, MAX_TEXT
from runner.rootcause.wordings import judge_line, words_of


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("ValueError: hidden_size of the adapter must be divisible by its number of heads", ["config_error"]),
        ("[rank3] RuntimeError: No CUDA GPUs are available", ["config_error"]),
        ("ShardReadError: sample 812 of shard-00041.rec is truncated, checksum differs", ["data_error"]),
        ("CheckpointError: optimizer state in iter_0004000 is incomplete: a file is missing", ["checkpoint_io"]),
        ("myfs: error: write to /mnt/scratch failed: No space left on device", ["filesystem"]),
        ("[811.2] acmenic 0000:5d:00.0 eth4: transmit queue 3 timed out, resetting the card", ["nccl_network"]),
        ("[811.2] nvme nvme2: controller is down; will reset: CSTS=0xffffffff", ["filesystem", "host_hardware"]),
        ("[811.2] acmefs (nvme0n1p2): error: metadata block is corrupt, I/O error", ["filesystem"]),
        ("[811.2] EDAC skx MC3: HANDLING MCE MEMORY ERROR", ["host_hardware"]),
        ("NVRM: a message that no catalogue lists", ["gpu_xid_other"]),
        ("n3:81:92 [1] transport/net_acme.cc:812 NCCL WARN NET/ACME : completion failed", ["nccl_network"]),
        ("the scheduler lost node gpu-117: it was marked down after 300 s", ["node_failure"]),
        ("actor 17 of the pool died unexpectedly", ["unknown"]),
        ("workload llm-7b was preempted by a workload of higher priority", ["preemption"]),
        ("acme-launch: error: process 4 exited with exit code 3", ["unknown"]),
        ("acmecl: all_reduce of group 12 timed out after 1800 s", ["nccl_timeout"]),
        ("acme allocator: GPU 2 is out of memory, 3.2 GiB are missing", ["cuda_oom"]),
        ("step 811: the gradient norm is nan", ["nan_loss"]),
    ],
)  # fmt: skip
def test_a_line_of_no_list_is_judged(text: str, faults: list[str]) -> None:
    """Made-up emitters and events, in the words of their trade."""
    verdict = judge_line(text, installed_wordings())
    assert verdict is not None
    assert verdict.fault in faults
    assert verdict.layer in LAYERS
    assert verdict.scope
    assert 0 < verdict.confidence <= 1
    assert verdict.why


def test_an_error_without_known_words_is_unknown_and_one_without_words_nothing() -> None:
    """An error is never nothing; a line of numbers is no error."""
    verdict = judge_line("zyxwq vutsr", installed_wordings())
    assert verdict is not None
    assert verdict.fault == "unknown"
    assert judge_line("0x7f 12 -- 3", installed_wordings()) is None
    assert judge_line("", installed_wordings()) is None


def test_without_a_table_families_judge_alone() -> None:
    """A table that is missing or broken costs the words, and no more."""
    verdict = judge_line("EDAC MC0: 1 UE memory read error", EMPTY)
    assert verdict is not None
    assert verdict.fault == "host_hardware"
    verdict = judge_line("ValueError: bad axis", EMPTY)
    assert verdict is not None
    assert verdict.fault == "unknown"


def test_words_are_split_at_joints_and_lose_their_endings() -> None:
    """Names of many spellings have the same words; numbers part them."""
    assert words_of("ValueError: num_workers=3 failed") == [
        *("=valueerror", "value", "error", "value error"),
        *("=num_workers", "num", "worker", "num worker", "fail"),
    ]


def test_a_long_line_is_cut() -> None:
    """Hostile lines cost no more than any."""
    verdict = judge_line("word " * 10**5, installed_wordings())
    assert verdict is None or verdict.fault in FAULTS
    assert len(words_of("a bb ccc dddd " * MAX_TEXT)) <= 200


def test_the_table_is_sound_and_calibration_never_falls() -> None:
    """Its classes are faults that lines may name, and more probability means more that is right."""
    table = installed_wordings()
    assert table is not EMPTY
    assert len(table.words) > 2000
    assert all(name in FAULTS and fault_kind(name).action != "none" for name in table.classes)
    limits, shares = zip(*table.calibration, strict=True)
    assert list(limits) == sorted(limits)
    assert list(shares) == sorted(shares)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"classes":[],"prior":[],"unseen":[],"words":{}}',
        b'{"classes":["unknown"],"prior":[0],"unseen":[0],"words":{"a":[7,1]}}',
        b'{"classes":["unknown"],"prior":[0],"unseen":[0],"words":{"a":[0]}}',
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, content: bytes) -> None:
    """The reader names the file or what is wrong in it."""
    path = tmp_path / "wordings.json"
    path.write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 -- msgspec's and ours
        read_wordings(path)
