"""What orchestrators write, at any level, when they take the machines of a job; and what of it only may come."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of


@pytest.mark.parametrize(
    "line",
    [
        "I 02-03 04:05:06 controller.py:118] Cluster is preempted (status: INIT). Recovering...",
        "INFO: The cluster is preempted.",
        "run terminated: interrupted_by_no_capacity",
        "INFO: trial 12 was preempted",
        "Exiting due to preemption",
        "replica workerpool0-0 was preempted",
        "TPU node spin-7 has state: PREEMPTED",
        "Preempted to accommodate a workload (UID: 7) due to prioritization in the ClusterQueue",
        "004 (123.000.000) 02/03 04:05:06 Job was evicted.",
        "TERM_OWNER: job killed by owner.",
        "PBS: job deleted by user",
        "Interrupted - Training job was interrupted",
        "job 12 exceeded hard wallclock time - initiate terminate method",
    ],
)
def test_a_job_whose_machines_were_taken(line: str) -> None:
    """It outranks what fails in the same log after it."""
    after = "ERROR launch: spin-39: the jobs cannot be cancelled\nAttributeError: 'NoneType' object has no attribute 'spin'\n"
    for log in (f"{line}\n", f"{line}\n{after}"):
        assert verdicts_of(log)[0].cause.fault == "preemption"


@pytest.mark.parametrize(
    "line",
    [
        "jobs may be preempted at any time",
        "the node can be preempted",
        "if the job is preempted, it resumes",
        "preempted: False",
        "This is a preemptible instance",
        "worker 3 was not preempted",
        "preemption_count=0",
    ],
)
def test_what_may_come_is_none(line: str) -> None:
    """It is no incident, and hides no cause."""
    assert not verdicts_of(f"{line}\n")
    found = verdicts_of(f"{line}\nAttributeError: 'NoneType' object has no attribute 'spin'\n")
    assert found[0].cause.fault == "config_error"


def test_the_name_of_a_model_is_no_word_of_the_kernel() -> None:
    """BERT is a table of firmware, and the name of a model."""
    for line in ("ERROR cannot cancel bert-qa-39", "ERROR BERT: the model is not built"):
        assert verdicts_of(f"{line}\n")[0].cause.fault != "host_hardware"
