"""`python -m runner.collect.catalogues [FOLDER]`: compile the catalogues of a folder into the cache."""

import sys
from pathlib import Path

from runner.collect.catalogues.cache import FOLDER, compiled

if __name__ == "__main__":
    compiled(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
