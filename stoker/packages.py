"""Where Stoker's own packages lie (`runner`, `trainer`, `healthchecks`, `runbooks`), and how a process comes to import them.

In a checkout they lie beside this package. A wheel has them in `_packages`, so that none of their names is at the top level of
site-packages. The processes of Stoker have that folder on their search path. A user's script never has it: what the client needs of
`runner` is imported in a block that leaves nothing behind, so that a module `runner` of the script's own stays what it is.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

_HERE = os.path.dirname(os.path.realpath(__file__))
_BUNDLED = os.path.join(_HERE, "_packages")
FOLDER = _BUNDLED if os.path.isdir(_BUNDLED) else os.path.dirname(_HERE)


def add_to_path() -> None:
    """Let this process import Stoker's packages. In a checkout it can, where it can import this one."""
    if FOLDER == _BUNDLED and FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Let the block import Stoker's `runner`; afterwards `sys.path` and `sys.modules` are as before.

    In a process of Stoker, which has imported it already, nothing changes.
    """
    if _is_loaded():
        yield
        return
    foreign = {name: sys.modules.pop(name) for name in _loaded_names()}
    sys.path.insert(0, FOLDER)
    try:
        yield
    finally:
        sys.path.remove(FOLDER)
        for name in _loaded_names():
            del sys.modules[name]
        sys.modules.update(foreign)


def _loaded_names() -> list[str]:
    return [name for name in list(sys.modules) if name.partition(".")[0] == "runner"]


def _is_loaded() -> bool:
    path = getattr(sys.modules.get("runner"), "__file__", None) or ""
    return os.path.dirname(os.path.dirname(os.path.realpath(path))) == FOLDER
