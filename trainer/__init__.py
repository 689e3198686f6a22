"""The trainer: one rank of a tensor x pipeline x data parallel run that follows the contract of a rank.

It trains, saves, reports and obeys requests; it never restarts itself, never deletes a checkpoint
and never decides what a loss spike means: the supervisor does. Of Stoker it imports `runner.facts`,
`runner.checkpoints` and `runner.errors` only. `trainer.parallel.engine` alone imports DeepSpeed.
Importing any module of this package runs no tensor operation and starts no thread, so that ranks
may be forked from a process that has imported it.

Letters in tensor names: B sequences, T positions, D model width, H heads of this rank, K width of
a head, F width of the feed-forward layer, V vocabulary of this rank, N tokens (B x T), R ranks of
the tensor axis. `axis` is an axis of the layout (pipeline, data, tensor); `dim` one of a tensor.
"""
