"""Codes of CANN, the software of Ascend NPUs, by their families: a letter for the level, one for the module, four digits.

From 9000 on a code is of an inner error, whose text says more. The texts of single codes are in
the catalogue; they differ by release.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_SOURCE = "CANN, tables of error codes of GE, TBE, the runtime, HCCL and HCCP"
# Codes begin a line, behind its wrapping at most.
_CODE = r"(?:^|[\s\]:])(?:{0}): "

_hccl = partial(Signature, scope="fabric", source=_SOURCE + ": HCCL")
_config = partial(
    Signature, fault="config_error", layer="program", scope="user", is_lasting=True, source=_SOURCE
)

ASCEND = (
    Signature(
        "ascend-kernel-exception",
        r"\ban exception occurred during (?:AICPU|AI ?CPU|AI ?[Cc]ore|AI ?[Vv]ec\w*|[Vv]ector ?[Cc]ore|MTE|FFTS\+?)\w* (?:task"
        r" )?execution"
        r"|\b(?:retCode|reason)=\S{0,12},? ?\[(?:aicpu|aicore|ai core|aivec|aiv|vector core|mix) exception\]"
        r"|\b(?:Aicpu|Aicore|AICPU|AICORE|Aivec|AIV|MIX) [Kk]ernel (?:execute failed|task happen error)"
        r"|\bThere is an? (?:aicpu|aicore|aivec|vector core|fftsplus aicore|fftsplus aivector) (?:error )?exception\b"
        r"|\bThe (?:aicore|aicpu|aivec) (?:execution|exception) (?:is |was )?(?:abnormal|error)\b"
        r"|\bThe error from device\(.{1,60}\), serial number is \d+, there is an? (?:aicore|aivec|vector core|aicpu) error\b"
        r"|\berrorStr: The (?:DDR|UB|L1|L0\w?) address of the \w+ instruction is out of range",
        fault="cuda_illegal_access",
        layer="program",
        scope="rank",
        source="CANN runtime, device_error_proc.cc and task_info.cc: a kernel was ended by an exception of its core",
        sample="E39999: 2025-01-02-03:04:05.678.901  The error from device(chipId:0, dieId:0), serial number is 3, an exception "
        "occurred during AICPU execution, stream_id:2, task_id:19016, errcode:21008, msg:inner error.",
        near="all kernels of the AICPU were registered",
    ),
    Signature(
        "ascend-hccp",
        _CODE.format(r"EJ\d{4}")
        + r"|\b[Ff]ailed to initialize the HCCP process|\bHCCP process (?:failed|already exists|is in use)",
        fault="rendezvous",
        # The process of the device itself could not start; its driver reports that as well.
        layer="device",
        scope="fabric",
        source=_SOURCE + ": HCCP, the process on the device that connects it",
        sample="EJ0001: 2025-01-02-03:04:05.678.901 Failed to initialize the HCCP process.",
        near="the HCCP process was started",
    ),
    _hccl(
        "ascend-hccl-timeout",
        _CODE.format("EI0002")
        + r"|\bEI0002\b.{0,40}(?:\(|: ).{0,80}[Tt]ime|\bHCCL\(.{0,160}\[TaskExecStage\]\[Timeout\]",
        fault="nccl_timeout",
        layer="collective",
        scope="rank",
        sample="EI0002: [PID: 7] 2025-01-02-03:04:05.678.901 A timeout occurs when the Notify register waits for execution.",
        near="EI0013: [PID: 7] An error CQE occurred during operator execution.",
    ),
    _hccl(
        "ascend-hccl-meeting",
        _CODE.format("EI0006|EI0015|EI0019|EI0020"),
        fault="rendezvous",
        layer="network",
        sample="EI0015: [PID: 7] 2025-01-02-03:04:05.678.901 Failed to collect cluster information of the communicator.",
        near="EI0014: [PID: 7] Value 9 for ranktable variable rank_id is invalid.",
    ),
    _hccl(
        "ascend-hccl-link",
        _CODE.format("EI0009|EI0010|EI0013|EI0018"),
        fault="nccl_network",
        layer="network",
        sample="EI0013: [PID: 7] 2025-01-02-03:04:05.678.901 An error CQE occurred during operator execution.",
        near="EI0002: [PID: 7] A timeout occurs.",
    ),
    _config(
        "ascend-memory",
        _CODE.format("EI0007|EI0011|EL0004"),
        fault="cuda_oom",
        sample="EL0004: 2025-01-02-03:04:05.678.901 Failed to allocate memory.",
        near="EL0003: the argument is invalid",
    ),
    _config(
        "ascend-settings",
        # Arguments of HCCL, of the runtime and of the driver; GE and ATC; operators and their compilation.
        _CODE.format(
            r"EI000[13458]|EI001[467]|EE100[13-9]|EE40\d\d|EL000[1-35-9]|E[1246-8][0-8]\d{3}|E3[0-8]\d{3}|E5[0-8]\d{3}"
            r"|EB[0-8]\d{3}|EZ[0-8]\d{3}|EC[0-8]\d{3}"
        ),
        sample="E10001: 2025-01-02-03:04:05.678.901 Value [0] for parameter [--input_shape] is invalid. Reason: wrong form",
        near="E99999: 2025-01-02-03:04:05.678.901 Inner Error!",
    ),
)
