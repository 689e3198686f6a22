"""Lists and suggestions for messages that people read."""

from runner.facts.wording import settings_text


def test_settings_are_listed_once_each_without_those_that_are_empty() -> None:
    """A rate that is named twice is shown once; no skipped steps are no setting."""
    values = {"lr": 5e-05, "lr_factor": 1.0, "skip_steps": [], "clip": None, "betas": [0.9, 0.95]}
    names = ("lr", "skip_steps", "clip", "lr", "lr_factor", "betas", "precision")
    assert settings_text(values, names) == "lr 5e-05, lr_factor 1, betas [0.9, 0.95]"
    assert settings_text({"skip_steps": ()}, names) == ""
