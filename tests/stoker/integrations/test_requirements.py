"""What a callback needs: its library, the library's hooks, and one gang."""

import subprocess
import sys

import pytest

from stoker.integrations.requirements import EXIT_BAD_SETTINGS, check_gang, check_hooks


class OldCallback:
    """A library's class of callbacks with one hook."""

    def on_step_end(self) -> None:
        """The only one."""


def test_a_library_without_a_hook_is_named_with_its_version() -> None:
    """At the import, not in the middle of a training."""
    check_hooks(OldCallback, ["on_step_end"], library="pytest", least="1.0")
    with pytest.raises(
        ImportError,
        match=rf"pytest {pytest.__version__} lacks the hooks on_log, on_save of OldCallback; install pytest>=1\.0",
    ):
        check_hooks(
            OldCallback, ["on_log", "on_step_end", "on_save"], library="pytest", least="1.0"
        )
    with pytest.raises(ImportError, match="nonesuch of unknown version lacks"):
        check_hooks(OldCallback, ["on_log"], library="nonesuch", least="1.0")


def test_processes_that_train_alone_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks of which each believes to be alone would write each other's checkpoints; no restart can help."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_gang(2, library="Trainer", way_out="use both")
    with pytest.raises(SystemExit) as ended:
        check_gang(1, library="Trainer", way_out="use both")
    assert ended.value.code == EXIT_BAD_SETTINGS
    assert capsys.readouterr().err == (
        "stoker: Trainer trains with 1 process, and the gang has 2 ranks (WORLD_SIZE); use both\n"
    )


@pytest.mark.costly
@pytest.mark.parametrize(
    ("module", "library"), [("huggingface", "transformers"), ("lightning", "lightning")]
)
def test_a_library_that_is_not_there_is_named(module: str, library: str) -> None:
    """And nothing of the client imports it before."""
    pytest.importorskip("torch")
    program = (
        "import sys, stoker\n"
        f"assert '{library}' not in sys.modules\n"
        f"sys.modules['{library}'] = None\n"
        f"import stoker.integrations.{module}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert f"ImportError: stoker.integrations.{module} needs {library}" in ended.stderr
