"""All that a rank imports, for a warm process that forks ranks: no tensor operation, no thread, no CUDA context.

`tests/trainer/test_preload.py` holds it to that.
"""

from trainer import cli, loop

__all__ = ["cli", "loop"]
