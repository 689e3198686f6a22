"""What the contract of a rank (docs/contract.md) fixes and more than one stage goes by."""

# A rank ends with it when what it was to resume from is not what its manifest says. Far from what programs and shells use.
EXIT_CHECKPOINT_REFUSED = 79
# In place of a fingerprint: a person approved of other data than before.
ANY_DATA = "any"
# Variables that a launch sets for each rank, as a regular expression that matches whole names.
OWN_VARIABLES = (
    r"STOKER_.*|TORCHELASTIC_.*|RANK|LOCAL_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|MASTER_ADDR|MASTER_PORT"
)
# Variables of the libraries that ranks communicate by: a measurement between nodes goes by those of the run.
COMMUNICATION_PREFIXES = ("NCCL_", "RCCL_", "GLOO_", "TORCH_NCCL_")
# Torch's own names for where a rank's flight recorder is asked, and where it writes; the second is that of older versions.
FLIGHT_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FLIGHT_RECORDS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
FLIGHT_VARIABLES = (FLIGHT_PIPE, *FLIGHT_RECORDS)
# What a record has: completed collectives too, by which ranks are compared. Megatron-LM sets 1 where the environment has no value.
FLIGHT_CONTENT = {"TORCH_INCLUDE_ONLY_ACTIVE": "0"}
# What is set for a rank and not for the process that imported its modules: torch reads it when ranks meet.
ATTEMPT_VARIABLES = "|".join((OWN_VARIABLES, *FLIGHT_VARIABLES, *FLIGHT_CONTENT))
