"""The numbers of a run, kept: one row for each training step, in files beside the journal's.

    <journal's folder>/steps/<run>/000000000007-000001.steps     token of a leader's lease, number of the file

The leading supervisor writes; everyone else only reads, also while no one leads. A leader appends to files of its own, never to
an earlier one's, so that a supervisor which lost the lease unnoticed damages nothing. Where two files have a row for one step of
one attempt, the later leader's counts. A file is a head that names its columns, then blocks of rows of one size, each with a
checksum; a block that is torn or damaged is left out, and the rest is read.

`kill -9` of the supervisor costs the rows of its last two seconds (`supervisor/step_history.py`), a power cut what the kernel had
not written. Older rows are thinned evenly (`buckets.py`), and a run's files stay below 15 MB. Nothing here decides; a step that
is missing here is no fact: what happened is in the journal.
"""

from runner.steps.branch import contributing as contributing
from runner.steps.files import History as History
from runner.steps.files import RunFiles as RunFiles
from runner.steps.files import folder_beside as folder_beside
from runner.steps.files import load as load
from runner.steps.files import read as read
from runner.steps.files import read_newest as read_newest
from runner.steps.merger import StepMerger as StepMerger
from runner.steps.rows import COLUMNS as COLUMNS
from runner.steps.rows import StepRow as StepRow
