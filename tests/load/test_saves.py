"""What run.yaml says of checkpoints that a script saves by itself."""

from pathlib import Path

import pytest

from runner.errors import SpecError
from runner.facts.specs.placeholders import with_resume_arguments
from runner.load.specs import load_run


def written(folder: Path, text: str) -> Path:
    """Write a run.yaml."""
    path = folder / "run.yaml"
    path.write_text(f"name: tiny\n{text}")
    return path


def test_folders_are_absolute_and_the_format_is_known(tmp_path: Path) -> None:
    """Both are relative to the file's folder."""
    spec = load_run(
        written(
            tmp_path,
            "command: [train, '{resume_arguments}']\ncheckpoints: sealed\nsaves: out\ncheckpoint_format: megatron\n",
        )
    )
    assert spec.saves == str(tmp_path / "out")
    assert spec.checkpoints == str(tmp_path / "sealed")
    assert spec.checkpoint_format == "megatron"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("command: [a]\nsaves: out\n", "name a folder for the sealed copies as `checkpoints`"),
        ("command: [a, '{resume_arguments}']\n", "name a folder for checkpoints as `checkpoints`"),
        (
            "command: [a, '--x={resume_arguments}']\ncheckpoints: c\n",
            "stands for several words; give it as a word of its own",
        ),
        ("trainer: {recipe: tiny_cpu}\nsaves: out\n", "the built-in trainer seals its own"),
        ("command: [a]\ncheckpoints: c\ncheckpoint_format: keras\n", "hugging_face"),
        (
            "command: [a]\ncheckpoints: c\nsaves: ./c\ncheckpoint_format: torchtitan\n",
            "name torchtitan's own folder as `saves`, and another one as `checkpoints`",
        ),
    ],
)
def test_what_has_no_effect_is_refused_with_the_way_out(
    tmp_path: Path, text: str, problem: str
) -> None:
    """One line names the field."""
    with pytest.raises(SpecError) as refused:
        load_run(written(tmp_path, text))
    assert problem in str(refused.value)


def test_the_placeholder_becomes_any_number_of_words() -> None:
    """Braces in them are literal."""
    command = ("train", "{resume_arguments}", "--lr={lr}")
    assert with_resume_arguments(command, ()) == ("train", "--lr={lr}")
    words = ("--load", "/a/{b}")
    assert with_resume_arguments(command, words) == ("train", "--load", "/a/{{b}}", "--lr={lr}")
