"""How processes ended."""

from runner.rootcause.families.family import ended

ENDINGS = (
    ended(
        "signal",
        r"\b(?:segmentation fault|sig(?:segv|abrt|bus|ill|fpe|trap|kill)|signal[: ]{1,3}(?:\(?sig)?(?:4|5|6|7|8|9|11)\b"
        r"|bus error|core dumped"
        r"|illegal instruction|floating point exception|aborted \(|terminate called|double free|stack smashing"
        r"|\*\*\* process received signal)",
        sample="rank 4 ended by signal 11",
        near="signal handlers are installed",
    ),
    ended(
        "non-zero-exit",
        r"\b(?:exit(?:ed|s|ing)? ?(?:with |status |code |value )?(?:a |an )?(?:non-?zero )?(?:exit )?(?:code|status"
        r"|value)?[ :=]{0,3}-?[1-9]\d{0,2}"
        r"|exitcode[ :=]{1,3}-?[1-9]|non-?zero (?:exit )?(?:code|status)|return(?:ed)? code[ :=]{1,3}-?[1-9])\b",
        sample="srun: error: n3: task 4: Exited with exit code 7",
        near="all tasks exited with exit code 0",
    ),
    ended(
        "worker-gone",
        r"\b(?:worker|actor|task|process|executor|child|container|pod|rank|replica|job|trial|trainer|replica ?group"
        r"|subprocess)s?\b.{0,80}"
        r"\b(?:died|dead|killed|crash\w*|exited|terminated|unexpectedly|failed|failure|lost|gone|aborted|unavailable"
        r"|unreachable|stopped)\b"
        r"|\b(?:lost|losing) (?:worker|actor|executor|rank|replica)\b|\bCrashLoopBackOff\b",
        sample="The actor died unexpectedly before it finished this task",
        near="3 workers have joined",
    ),
)  # fmt: skip
