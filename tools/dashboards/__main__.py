"""`python -m tools.dashboards FOLDER`: write each dashboard into the folder."""

import sys
from pathlib import Path

from tools.dashboards.fleet import FLEET_BOARD
from tools.dashboards.panels import rendered
from tools.dashboards.run import RUN_BOARD

BOARDS = (RUN_BOARD, FLEET_BOARD)


def main(folder: Path) -> None:
    """Write `<uid>.json` of each dashboard."""
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (folder / f"{board.uid}.json").write_text(rendered(board), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
