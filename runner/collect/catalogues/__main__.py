"""`python -m runner.collect.catalogues [FOLDER [PARENT]]`: compile a folder's catalogues into the cache, unless they are there.

PARENT is the pid of the process that waits for it, with which it ends.
"""

import sys
from pathlib import Path

from runner.collect.catalogues.cache import FOLDER, compile_if_missing
from runner.parent_death import die_with

if __name__ == "__main__":
    if len(sys.argv) > 2:
        die_with(int(sys.argv[2]))
    compile_if_missing(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
