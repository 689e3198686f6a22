"""The warm process: it has imported what ranks import, and forks them. A program of its own, in the interpreter of the ranks.

A keeper starts `__main__.py` in the interpreter, environment and working directory of the ranks. It imports the `preload`
modules, makes sure that it can be forked from (one thread, no descriptor left open, no GPU touched), says `ready`, and waits.
Asked for ranks, it forks a middle process that forks them and ends, so that the keeper, a subreaper, becomes their parent:
exits, kills and adoption work as for ranks it had spawned itself, and nothing dies with the warm process.

A rank then makes itself what a fresh process would have been (`forked_rank.py`): session, descriptors, environment (in
/proc/PID/environ too, by which ranks are found), arguments, sys.path, `__main__`. Where that is not possible it does not try:
a refusal names the reason, and the keeper spawns as usual.

The law of this package. The standard library and `runner.keeper.protocol` only, any Python from 3.9 on. Its modules are no
modules of the program: `__main__.py` imports them all before anything of the user's, and takes them out of `sys.modules`. So
no function here may import one of them later.
"""
