"""Lines that name a failure without one: test reports, help texts, and what schedulers within a program try again by themselves."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_benign = partial(
    Signature, fault="", layer="other", scope="rank", weight="benign", source="see each row"
)

SURVIVED = (
    _benign(
        "sequence-preempted",
        r"\bSequence group \S{1,80} is preempted by PreemptionMode|\bKV cache pool is full\. Retract requests"
        r"|\bRequest \S{1,80} (?:is|was) preempted\b.{0,60}\b(?:KV cache|recompute)",
        source="vLLM and SGLang: a request waits for room in the cache and goes on",
        sample="WARNING scheduler.py:1057] Sequence group 42 is preempted by PreemptionMode.RECOMPUTE mode",
        near="WARNING slurmstepd: job 42 is preempted",
    ),
    _benign(
        "sample-left-out",
        r"(?:cannot identify image file|image file is truncated|[Ii]nvalid data found|moov atom not found|AudioLoadingError"
        r"|[Ff]ailed to (?:decode|load|open|read) (?:audio|image|video|frames?|sample)|[Nn]o (?:samples|images|labels|examples"
        r"|utterances|documents) found|[Dd]ataset \S{1,120} is empty)\b.{0,240}\b(?:skipp(?:ed|ing)|ignor(?:ed|ing)|dropp(?:ed|ing)"
        r"|replac(?:ed|ing)|excluded|us(?:ed|ing) .{1,60} instead)\b",
        source="loaders that go on without a sample, or without one of several sets",
        sample="WARNING: cannot identify image file '/data/zh/12.png', skipped",
        near="ERROR: cannot identify image file '/data/zh/12.png'",
    ),
    _benign(
        "no-checkpoint-yet",
        r"=> no checkpoint found at |\b[Nn]o checkpoints? (?:was |were )?found\b.{0,200}\b(?:from scratch|fresh|first run)\b",
        source="examples of PyTorch, timm and others: a first run has none to resume from",
        sample="No checkpoint found at '/ckpt/run7'; training from scratch.",
        near="ValueError: No checkpoint found at '/ckpt/run7'",
    ),
    _benign(
        "task-tried-again",
        r"\bWARN (?:scheduler\.)?TaskSetManager: Lost task \d",
        source="Spark: a task that is lost is tried again; what gives up is an error",
        sample="23/06/12 10:11:12 WARN TaskSetManager: Lost task 12.0 in stage 4.0 (TID 881): Connection reset by peer",
        near="23/06/12 10:11:12 ERROR TaskSetManager: Task 12 in stage 4.0 failed 4 times; aborting job",
    ),
)
