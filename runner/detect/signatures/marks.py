"""Marks: lines that are no fault and tell how to read those that are: the run has ended well."""

from __future__ import annotations

from runner.detect.signatures.signature import Signature, any_of

MARKS = (
    Signature(
        name="ended-well",
        role="ended-well",
        pattern=any_of(
            r"\"key\": \"(?:run_stop|status)\".*\"(?:status|value)\": \"success\"",
            r"exiting program (?:after|at) ",
            r"[Tt]raining (?:is |has |was )?(?:completed|complete|finished|done)\b",
            r"(?:[Ff]inished|[Cc]ompleted) training\b",
            r"'train_runtime': ",
            r"`Trainer\.(?:fit|train)` stopped: `max_",
            r"ENDING TIMING RUN AT",
            r"\bFinal \S+ score: ",
            r"[Mm]ax(?:imum)? (?:steps|iterations|epochs) reached",
        ),
        fault="",
        layer="other",
        scope="scheduler",
        weight="supports",
        source="last words of Megatron-LM, MLPerf, Hugging Face Trainer, Lightning, AlgoPerf",
        sample="[exiting program after 1190.04 minutes] datetime: 2026-08-08 01:00:51",
        near="training will be finished after 1190 minutes",
    ),
    Signature(
        name="harmless",
        pattern=any_of(
            r"mlx5_cmd_\w+:.*ACCESS_REG.*failed",
            r"AER: (?:Multiple )?Correct(?:ed|able) error",
            r"severity=Correct(?:ed|able)",
            r"process group has NOT been destroyed before",
            r"This can potentially cause a hang",
            r"NVML: Failed to get Compute running procs",
            r"Proxy Service \d+\] Failed to execute operation Close",
            r"\[W[^\]]*TCPStore\.cpp",
            r"[Ff]ailed to check the \"should dump\" flag on TCPStore",
            r"[Ss]ending process \d+ closing signal SIGTERM",
            r"Could not load dynamic library",
            r"will (?:not load any checkpoints|start from random)",
            r"[Ff]alling back to",
            r"(?:will retry|, retrying|retrying in \d|\bRetrying\b)",
            r"[Ss]kipping (?:bad |broken |corrupt(?:ed)? )?(?:sample|batch|file|shard|document|record)",
        ),
        fault="",
        layer="other",
        scope="node",
        weight="excuses",
        source="health checks and real logs of runs that ended well: noise of monitors, of tear-down, and what was corrected",
        sample="pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
        near="pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:16:00.0",
    ),
    Signature(
        name="ignored-exception",
        role="ignored",
        pattern=r"Exception ignored in: |Error in atexit\._run_exitfuncs|Exception in thread .*(?:_monitor|tqdm|wandb)",
        fault="",
        layer="other",
        scope="rank",
        weight="supports",
        source="Python, sys.unraisablehook and atexit: what is raised while the interpreter ends",
        sample="Exception ignored in: <function _releaseLock at 0x7f1c2a3b4c10>",
        near="no exception was ignored in the last run",
    ),
)
