"""What the contract of a rank (docs/contract.md) fixes and more than one stage goes by."""

from __future__ import annotations

# Variables that a launch sets for each rank, as a regular expression that matches whole names.
OWN_VARIABLES = (
    r"STOKER_.*|TORCHELASTIC_.*|RANK|LOCAL_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|MASTER_ADDR|MASTER_PORT"
)
# Those that differ from attempt to attempt: the same, and names of torch's that a launch sets unless the run does.
ATTEMPT_VARIABLES = (
    OWN_VARIABLES
    + r"|TORCH_NCCL_DEBUG_INFO_PIPE_FILE|TORCH_NCCL_DEBUG_INFO_TEMP_FILE|TORCH_FR_DUMP_TEMP_FILE"
)
