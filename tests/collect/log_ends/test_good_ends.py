"""Ends that are well: lines of a tear-down are no failure of work that is over, and hide none before it."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "".join(
    f"step:{number} - actor/loss:0.5{number} - timing_s/step:30.03\n" for number in (97, 98, 99)
)
BAR = "{share}%|#####| {done}/1000 [00:05<00:01, 9.9it/s, loss=0.3]\n"
BARS = "".join(BAR.format(share=one, done=10 * one) for one in (98, 99))
DONE = BARS + BAR.format(share=100, done=1000)
SUMMARY = (
    "wandb: \nwandb: Run history:\nwandb:   loss #-\nwandb: Run summary:\nwandb:   loss 0.31\n"
)
# What shows that a log ended well; of the last three that depends on what is missing above them.
ENDS = {
    "metrics of verl": STEPS
    + "(TaskRunner pid=532) (\"Final validation metrics: {'val/reward/mean@1': \"\n"
    + "(TaskRunner pid=532)  \"0.2, 'val/reward/mean@2': 0.0}\")\n",
    "metrics": STEPS + "Final test accuracy: 0.931\n",
    "words": STEPS + "Training completed\n",
    "seconds of Trainer": DONE + "{'train_runtime': 345.6, 'train_loss': 0.3, 'epoch': 1.0}\n",
    "a whole bar": DONE,
    "a whole bar, and one of a test": DONE + "Testing: 100%|###| 20/20 [00:02<00:00, 9it/s]\n",
    "a summary": STEPS + SUMMARY,
}
WEAK = ("a whole bar", "a summary")
TORCHRUN = "W1127 10:00:00.1 123 torch/distributed/elastic/"
TEAR_DOWNS = {
    "Ray": "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
    "problem, check the logs for the dead worker. Worker ID: f7ea Node ID: cc69 Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker exits unexpectedly by a signal. SystemExit is raised (sys.exit is called). Exit code: 1. The process "
    "receives a SIGTERM.\n",
    "Ray, an owner": "ray.exceptions.ActorDiedError: The actor is dead because its owner has died.\n",
    "torchrun": f"{TORCHRUN}agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers\n"
    f"{TORCHRUN}multiprocessing/api.py:900] Sending process 140884 closing signal SIGTERM\n",
    "torch": "[rank0]:[W1127 10:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: process group has NOT been destroyed before we "
    "destruct ProcessGroupNCCL\n",
    "semaphores": "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be "
    "6 leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '\n",
    "a handler": "signal handler: received SIGTERM, exiting\n",
    "a shell": "Terminated\n",
}
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 has a total capacity of 79.15 GiB\n"
ASSERTION = 'Traceback (most recent call last):\n  File "/opt/job/train.py", line 8, in main\n    go()\nRuntimeError: it broke\n'


@pytest.mark.parametrize("tear_down", TEAR_DOWNS)
@pytest.mark.parametrize("end", ENDS)
def test_a_tear_down_after_the_end_is_no_failure(end: str, tear_down: str) -> None:
    """Whatever tells the end, and whatever tears down."""
    assert verdicts_of(ENDS[end] + TEAR_DOWNS[tear_down]) == []


@pytest.mark.parametrize("tear_down", ["Ray", "torchrun", "a handler", "a shell"])
@pytest.mark.parametrize("before", [STEPS, BARS], ids=["steps", "a bar"])
def test_what_was_told_to_end_before_its_end_is_sick(before: str, tear_down: str) -> None:
    """The same lines in the middle of the work are all that is known of why it ended."""
    (verdict,) = verdicts_of(before + TEAR_DOWNS[tear_down])
    assert verdict.cause.fault in ("preemption", "unknown")


@pytest.mark.parametrize("end", ENDS)
def test_a_phase_that_is_followed_by_steps_is_no_end(end: str) -> None:
    """A run of several trainings, or of several epochs, ends in a later one."""
    more = "".join(f"step:{number} - actor/loss:0.25\n" for number in (1200, 1201))
    (verdict,) = verdicts_of(ENDS[end] + more + TEAR_DOWNS["torchrun"])
    assert verdict.cause.fault == "preemption"


@pytest.mark.parametrize("tear_down", TEAR_DOWNS)
@pytest.mark.parametrize(
    ("failure", "fault"), [(OUT_OF_MEMORY, "cuda_oom"), (ASSERTION, "unknown")]
)
@pytest.mark.parametrize("summary", ["", SUMMARY], ids=["", "a summary"])
def test_a_failure_before_a_tear_down_stays_one(
    failure: str, fault: str, summary: str, tear_down: str
) -> None:
    """A summary is written after a failure too."""
    (verdict,) = verdicts_of(STEPS + failure + summary + TEAR_DOWNS[tear_down])
    assert verdict.cause.fault == fault or fault == "unknown"
    assert verdict.evidence[0].line >= 4


@pytest.mark.parametrize("end", WEAK)
@pytest.mark.parametrize(
    "failure", [OUT_OF_MEMORY, ASSERTION, "Segmentation fault (core dumped)\n"]
)
def test_a_failure_after_a_whole_bar_stays_one(end: str, failure: str) -> None:
    """A last evaluation or save may fail; only the words of a tear-down are taken back."""
    assert verdicts_of(ENDS[end] + failure)


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 1/3\n" + DONE,
        DONE.replace("100%", "Epoch 0: 100%"),
        "epoch 1\n" + DONE,
    ],
)
def test_a_whole_bar_of_an_epoch_is_no_end(text: str) -> None:
    """Where lines count epochs, the last one has to be over."""
    (verdict,) = verdicts_of(text + TEAR_DOWNS["torchrun"])
    assert verdict.cause.fault == "preemption"
    assert verdicts_of("Epoch 3/3\n" + DONE + TEAR_DOWNS["torchrun"]) == []
