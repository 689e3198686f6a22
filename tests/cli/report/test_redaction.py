"""What a report must not carry is removed from every text; what it is for stays."""

import pytest

from runner.cli.report.redaction import Redaction

ENVIRONMENT = {"WANDB_API_KEY": "f00dfeedbeef", "MODE": "1", "DATA": "/mnt/lustre/team/data"}


@pytest.mark.parametrize(
    "secret",
    [
        "f00dfeedbeef",
        "hf_abcdefghijklmnop",
        "sk-proj-0123456789abcdef",
        "ghp_0123456789abcdefghij",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "0123456789abcdef0123456789abcdef01234567",
        "redis://ops:hunter2@store:6379/0",
    ],
)
@pytest.mark.parametrize("form", ["{}", "error: {} was refused", '"{}",', "--key={}"])
def test_secrets_are_removed_with_and_without_paths(secret: str, form: str) -> None:
    """Values of the run's environment, known forms of keys, long words of letters and digits, addresses."""
    for with_paths in (False, True):
        found = Redaction(ENVIRONMENT, with_paths=with_paths).text(form.format(secret))
        assert secret not in found
        assert "hunter2" not in found


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=abc123", "abc123"),
        ("password: 'a b c'", "a b c"),
        ('{"api_key": "xyz", "a": 1}', "xyz"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("db_passwd=x1;", "x1"),
    ],
)
def test_what_its_name_gives_away_is_removed(text: str, secret: str) -> None:
    """The name stays: a reader sees that there was something."""
    found = Redaction({}, with_paths=True).text(text)
    assert secret not in found
    assert found[:2] == text[:2]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("File /home/ann/run/train.py, line 3", "File [path], line 3"),
        ("resumes from /ckpt/1.1.0-00000100", "resumes from [path]"),
        ("in ~/data and ~ann/x/y", "in [path] and [path]"),
        ("/mnt/lustre/team/data/part-1", "[value of DATA]/part-1"),
    ],
)
def test_paths_are_left_out_unless_asked_for(text: str, clean: str) -> None:
    """Without them a sentence still reads; with them it is as it was."""
    assert Redaction(ENVIRONMENT, with_paths=False).text(text) == clean
    kept = Redaction({}, with_paths=True).text(text)
    assert kept == text


@pytest.mark.parametrize(
    "text",
    [
        "rank 1 on n1 ended with signal 9",
        "node n7, GPU 3: 12.5 GB/s, 3/8 ranks, step 900/1000",
        "loss 2.5 -> 3.1e-4 (a/b)",
        "board:0123456789ab faults: gpu_ecc",
        "attempt 12.45.2 of run 12",
        "",
    ],
)
def test_what_a_report_is_about_stays(text: str) -> None:
    """Numbers, ratios, names of nodes, serial numbers and attempts are neither secrets nor paths."""
    assert Redaction(ENVIRONMENT, with_paths=False).text(text) == text
