"""The command `stoker`."""

from stoker import packages


def main() -> None:
    """Run the command; `runner.cli` has its parts."""
    packages.add_to_path()
    from runner.cli.main import main as run

    run()
