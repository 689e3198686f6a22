"""What the catalogues of schedulers and launchers say of single messages."""

import pytest

from tests.rootcause.catalogues.rows_of import levels, row


@pytest.mark.parametrize(
    ("name", "errors", "harmless"),
    [
        ("slurm", 3000, 800),
        ("open_mpi", 1800, 300),
        ("systemd", 1500, 150),
        ("kubernetes", 1000, 500),
        ("containerd", 900, 60),
        ("docker", 800, 20),
    ],
)
def test_a_catalogue_has_errors_and_what_is_harmless(name: str, errors: int, harmless: int) -> None:
    """The rows by level are about those that the sources have."""
    counts = levels(name)
    assert counts["error"] + counts["warning"] >= errors
    assert counts["info"] >= harmless


@pytest.mark.parametrize(
    ("name", "text", "level", "fault"),
    [
        ("slurm", "Nodes %s not responding, setting DOWN", "error", "node_failure"),
        ("slurm", "DUE TO NODE FAILURE", "error", "node_failure"),
        ("slurm", "DUE TO JOB NOT ENDING WITH SIGNALS", "error", "node_failure"),
        ("slurm", "Job killed due node failure", "error", "node_failure"),
        ("slurm", "DUE TO TIME LIMIT", "error", "preemption"),
        ("slurm", "DUE TO PREEMPTION", "error", "preemption"),
        ("slurm", "Some of the step tasks have been OOM Killed", "error", "host_oom"),
        ("slurm", "Cannot read step's oom_kill counter", "error", ""),
        ("slurm", "Requested node configuration is not available", "error", "config_error"),
        ("slurm", "Job credential expired", "error", "config_error"),
        ("slurm", "Node %s now responding", "info", ""),
        ("open_mpi", "PRTE has lost communication with a remote daemon.", "error", "node_failure"),
        ("open_mpi", "process is unreachable", "error", "nccl_network"),
        ("open_mpi", "There are not enough slots available in the system", "error", "config_error"),
        ("systemd", "Killed %s due to memory pressure", "info", "host_oom"),
        (
            "systemd",
            "A process of this unit has been killed by the OOM killer.",
            "info",
            "host_oom",
        ),
        ("kubernetes", "Container runtime not ready", "error", "node_failure"),
        ("kubernetes", "Unable to attach or mount volumes: %v", "warning", "filesystem"),
        ("containerd", "cleaning up after shim disconnected", "warning", "node_failure"),
    ],
)
def test_a_message_has_the_class_that_its_document_gives(
    name: str, text: str, level: str, fault: str
) -> None:
    """Class and level of messages that the manuals explain."""
    found = row(name, text)
    assert (found["level"], found["fault"]) == (level, fault)
