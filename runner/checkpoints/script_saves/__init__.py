"""Script saves: checkpoints of a script that knows nothing of Stoker, sealed from beside it and put back before it starts.

`python -m stoker.script_saves` is a command of a run: it starts a script as `python` would. Beside rank 0 a process
copies each save that is whole into the run's folder, seals it, and reports it. Before the script starts, the checkpoint that the
supervisor chose takes the place of a save that was torn. Standard library only, like all of `checkpoints`; nothing is unpickled.
"""
