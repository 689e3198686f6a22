"""What the contract of a rank offers in Python beside the client: sealed checkpoints, their errors, and ids of attempts.

docs/contract.md says how a trainer uses them. Importing this module leaves no other name behind: a module `runner` of the script's
own stays importable. Standard library only.
"""

from stoker import packages

with packages.importable():
    from runner import checkpoints as checkpoints
    from runner.errors import CheckpointRefused as CheckpointRefused
    from runner.errors import CheckpointUnreadable as CheckpointUnreadable
    from runner.errors import Fenced as Fenced
    from runner.facts.ids import AttemptId as AttemptId
