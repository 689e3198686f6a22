"""The class of a node's hardware: nodes of one class are compared with each other.

GPUs by the model that the driver reports in /proc, without a library that may hang; processors by their model and number.
"""

import os
import re
from collections import Counter
from pathlib import Path

# As the driver writes it: one folder for each GPU.
NVIDIA = "proc/driver/nvidia/gpus"
MAX_CHARACTERS = 100
_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_PROCESSOR = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+?)\s*$", re.MULTILINE)


def hardware_class(root: Path = Path("/")) -> str:
    """Return the class, such as "8 x NVIDIA H100 80GB HBM3" or "2 x Intel(R) Xeon(R) ..."; "" where nothing is known."""
    models = [_first(_MODEL, path) for path in sorted((root / NVIDIA).glob("*/information"))]
    if models and all(models):
        counts = Counter(models)
        return ", ".join(f"{num} x {model}" for model, num in counts.items())[:MAX_CHARACTERS]
    processor = _first(_PROCESSOR, root / "proc/cpuinfo") or os.uname().machine
    return f"{os.cpu_count() or 0} x {processor}"[:MAX_CHARACTERS]


def _first(pattern: re.Pattern[str], path: Path) -> str:
    try:
        found = pattern.search(path.read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found is not None else ""
