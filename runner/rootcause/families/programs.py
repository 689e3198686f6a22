"""What programs report of themselves: shells, failed checks, memory, numbers."""

from runner.rootcause.families.family import ended, kernel, program
from runner.rootcause.missing_programs import REFUSED

PROGRAMS = (
    # ---- shells
    program(
        "shells",
        f"(?-i:{REFUSED})",
        "config_error",
        sample="/bin/sh: 1: torchrun: not found",
        near="spin: 1 wheel was not found",
        confidence=0.7,
    ),
    # ---- checks of C++ libraries: the condition says nothing of the cause
    ended(
        "failed-check",
        r"\bcheck failed: |\*\*\* check failure stack trace",
        sample="RuntimeError: csrc/helpers.cpp:273 : Check failed: out_size <= input_size (2 vs. 1)",
        near="all checks have passed",
    ),
    # ---- numbers and memory
    program(
        "device-memory",
        r"\b(?:RESOURCE_EXHAUSTED|pjrt\w*|stream_executor|bfc_allocator)\b.{0,80}\bout of memory\b|"
        r"\b(?:cuda|gpu|hip|device|vram|hbm|xpu|npu|xla|(?:cuda|hip)Malloc\w*)\b.{0,60}"
        r"\b(?:out[ _]of[ _]memory|OOM|memory exhausted)\b"
        r"|\b(?:out[ _]of[ _]memory|OOM)\b.{0,60}\b(?:cuda|gpu|hip|device|vram|hbm)\b"
        r"|\b(?:failed|unable|cannot) to allocate\b.{0,40}\b(?:device|gpu|cuda|hbm)\b"
        r"|\b(?:not enough|insufficient|ran out of|running out of)\b.{0,20}\b(?:gpu|device|cuda|vram|hbm|npu|xpu|mlu|hpu|card)\b"
        r".{0,12}\bmemory\b|\b(?:gpu|device|vram|hbm|npu|xpu|mlu|hpu|dcu|gcu|ipu)\b.{0,40}\bmemory (?:is )?(?:not enough"
        r"|isn't enough|insufficient|exhausted)\b",
        "cuda_oom",
        sample="allocator: GPU out of memory, 2.0 GiB were asked for",
        near="memory of the device was freed",
        confidence=0.8,
    ),
    kernel(
        "host-memory",
        r"\b(?:oom[- ]?kill\w*|out of (?:host |system )?memory|cannot allocate memory|bad_alloc|memory cgroup out"
        r"|page allocation failure|memory pressure|(?:running |was )?low on memory"
        r"|allocation failed|memory allocation of \d{1,20} bytes failed|ENOMEM"
        r"|failed to (?:allocate|alloc|map)\b.{0,40}\b(?:memory|pages?|buffer))\b",
        "host_oom",
        sample="worker 3 ended: std::bad_alloc",
        confidence=0.7,
    ),
    program(
        "not-finite",
        r"\b(?:loss|grad(?:ient)?s?|norm|logits|activations?|weights?)\b.{0,40}\b(?:nan|inf|non-?finite|infinite)\b"
        r"|\b(?:nan|non-?finite)s?\b.{0,40}\b(?:loss|grad(?:ient)?s?|norm|logits|activations?|weights)\b",
        "nan_loss",
        scope="rank",
        sample="step 812: gradient norm is inf, training cannot go on",
        near="the loss is finite again",
        confidence=0.7,
    ),
    program(
        "loss-scale",
        r"\bloss[ _-]?scal(?:e|er|ing)\b.{0,80}\b(?:minimum|min|floor|underflow|too (?:small|low)|zero|exhausted)\b",
        "loss_scale_floor",
        sample="the loss scaler reached its floor of 1.0",
        near="loss scale: 65536",
        confidence=0.8,
    ),
)  # fmt: skip
