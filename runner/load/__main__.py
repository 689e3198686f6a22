"""`python -m runner.load`: write the generated pages (--docs), or judge files without starting anything (--run, --cluster)."""

import argparse
import sys
from pathlib import Path

from runner.errors import SpecError
from runner.load.reference_pages import PAGES
from runner.load.specs import load_cluster, load_run


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say; return 0, or 2 when a file was refused."""
    parser = argparse.ArgumentParser(prog="python -m runner.load", description=__doc__)
    parser.add_argument(
        "--docs", type=Path, metavar="FOLDER", help="write the pages into this folder"
    )
    parser.add_argument("--run", type=Path, metavar="FILE", help="judge a run.yaml")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="judge a cluster.yaml")
    given = parser.parse_args(arguments)
    if given.docs:
        for name, page in PAGES.items():
            (given.docs / name).write_text(page(), encoding="utf-8")
    try:
        if given.run:
            load_run(given.run)
        if given.cluster:
            load_cluster(given.cluster)
    except SpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
