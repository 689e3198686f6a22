"""All that a rank imports, for a warm process that forks ranks: no tensor operation, no thread, no CUDA context.

`tests/trainer/test_preload.py` holds it to that. What libraries import only once they are used comes last.
"""

import numpy.ma
import torch.profiler._cupti_monitor
import torch.utils.serialization.config

from trainer import cli, loop

__all__ = ["cli", "loop", "numpy", "torch"]
