"""The client of Stoker for training scripts: `run = stoker.attach()`, and a few lines in the loop (docs/client.md).

Where no Stoker started the process it does next to nothing. It needs the standard library alone; `stoker.integrations` has ready
callbacks, each of which needs the library that it is for.
"""

# Of `typing`, whose import would take longer than all else that a process of Stoker's own needs of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.run import Run as Run
    from stoker.run import attach as attach

__all__ = ["Run", "attach"]


def __getattr__(name: str) -> object:
    """Import the client when it is first used: processes of Stoker's own start without it."""
    if name not in __all__:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("stoker.run"), name)
