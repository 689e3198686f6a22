"""What signatures of jobs share: the layer and the scope that go with each fault of a job."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

# A person or a scheduler ended the job, or there was no room for it.
ended = partial(Signature, fault="preemption", layer="scheduler", scope="scheduler")
# The machine below the job is gone.
node_gone = partial(Signature, fault="node_failure", layer="scheduler", scope="node")
memory = partial(Signature, fault="host_oom", layer="machine", scope="node")
storage = partial(Signature, fault="filesystem", layer="machine", scope="storage")
# What was asked for is refused: it would be the next time.
refused = partial(Signature, fault="config_error", layer="program", scope="user")
# It ended, and the line does not say why.
failed = partial(Signature, fault="unknown", layer="launcher", scope="rank")
