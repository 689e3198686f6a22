"""`python -m tools.dashboards FOLDER`: write each dashboard into the folder."""

import sys
from pathlib import Path

from tools.dashboards.boards import BOARDS
from tools.dashboards.panels import rendered


def main(folder: Path) -> None:
    """Write `<uid>.json` of each dashboard."""
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (folder / f"{board.uid}.json").write_text(rendered(board), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
