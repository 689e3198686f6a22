"""`{resume_arguments}` in a command: words of the trainer that saved the checkpoint, of forked ranks and of fresh ones."""

import sys
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.agent.config import AgentConfig
from runner.agent.launch import rank_commands
from runner.agent.launch.rank_commands import Launch
from runner.checkpoints.script_saves.adoption import seal_copy
from runner.errors import CheckpointRefused
from runner.facts.messages.assignments import Assignment
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from tests.checkpoints.formats.made_saves import megatron_folder
from tests.plans import launch_plan


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Give the sealed copy of a checkpoint of Megatron-LM."""
    megatron_folder(tmp_path / "out/iter_0000020", 20)
    return seal_copy(tmp_path / "out/iter_0000020", tmp_path / "sealed", "tiny")


def launch_of(folder: Path, resume: str) -> Launch:
    """Return a launch that is prepared."""
    (folder / "train.py").touch()
    plan = launch_plan(
        command=("{python}", "train.py", "--lr=1", "{resume_arguments}", "--rank={rank}"),
        working_directory=str(folder),
        checkpoints=str(folder / "sealed"),
        saves=str(folder / "out"),
        output_folder=str(folder / "attempt"),
        resume=resume,
    )
    launch = Launch(assignment=Assignment(node="n1", generation=3, plan=plan))
    rank_commands.prepare_checkpoints(launch, state="")
    return launch


def ranks_of(folder: Path, launch: Launch, *, forked: bool) -> list[dict[str, Any]]:
    """Return what the keeper is asked to start."""
    cluster = ClusterSpec(name="lab", state=str(folder), local=LocalNodes(nodes=1, slots=2))
    config = AgentConfig(node="n1", folder=folder / "n1", cluster=cluster, python=sys.executable)
    program = rank_commands.program_of(launch.plan, sys.executable) if forked else None
    ranks: list[dict[str, Any]] = rank_commands.spawn_request(launch, config, program=program)[
        "ranks"
    ]
    return ranks


def test_each_rank_gets_the_words_in_their_place(tmp_path: Path, sealed: Path) -> None:
    """Also as the arguments of a forked rank, whose program is known before the words are."""
    launch = launch_of(tmp_path, str(sealed))
    words = ["--load", str(sealed), "--ckpt-step", "20"]
    for number, rank in enumerate(ranks_of(tmp_path, launch, forked=True)):
        assert rank["command"] == [sys.executable, "train.py", "--lr=1", *words, f"--rank={number}"]
        assert rank["argv"] == ["train.py", "--lr=1", *words, f"--rank={number}"]
    (first, _) = ranks_of(tmp_path, launch, forked=False)
    assert first["command"][3:7] == words


def test_without_a_checkpoint_there_is_no_word(tmp_path: Path) -> None:
    """The script starts as its command is written."""
    (first, _) = ranks_of(tmp_path, launch_of(tmp_path, ""), forked=True)
    assert first["argv"] == ["train.py", "--lr=1", "--rank=0"]


def test_a_checkpoint_whose_manifest_is_gone_ends_the_launch(tmp_path: Path, sealed: Path) -> None:
    """The reason names the file."""
    (sealed / checkpoints.MANIFEST).write_text("{}")
    with pytest.raises(CheckpointRefused, match=checkpoints.MANIFEST):
        launch_of(tmp_path, str(sealed))
