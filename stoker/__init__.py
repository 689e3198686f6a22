"""The client of Stoker for training scripts: `run = stoker.attach()`, and a few lines in the loop (docs/client.md).

Where no Stoker started the process it does next to nothing. It needs the standard library alone; `stoker.integrations` has ready
callbacks, each of which needs the library that it is for.
"""

from stoker.run import Run as Run
from stoker.run import attach as attach

__all__ = ["Run", "attach"]
