"""An interpreter for scripts that the kernel starts: their first line holds no blank, and folders of people may."""

import sys
from pathlib import Path


def shebang(folder: Path) -> str:
    """Return a first line that names this interpreter; through a link in `folder` where its own path has blanks."""
    if not any(letter.isspace() for letter in sys.executable):
        return f"#!{sys.executable}"
    link = folder / "python-without-blanks"
    if not link.exists():
        link.symlink_to(Path(sys.executable).parents[1])
    return f"#!{link / 'bin' / Path(sys.executable).name}"
