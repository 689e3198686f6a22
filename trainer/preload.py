"""All imports of a rank, for a process that forks ranks: no tensor operation, no thread, no CUDA context.

`tests/trainer/test_preload.py` checks that. The first three are those that libraries import only when they are used.
"""

import numpy.ma
import torch.profiler._cupti_monitor
import torch.utils.serialization.config

from trainer import cli, loop

__all__ = ["cli", "loop", "numpy", "torch"]
