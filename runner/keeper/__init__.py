"""The keeper: parent process of a node's ranks. It outlives the agent, as containerd-shim outlives containerd.

The law of this package. Standard library only, any Python from 3.9 on, one thread. The interpreter is that of the ranks and
need not know our package, so an agent runs the folder: `python -I -S <this folder>`. `__main__.py` then makes the folder known
as `runner.keeper`; each module has this one name, in the keeper as in the control plane, which reads /proc by `procfs`. No
module may import anything of `runner` but this package; `runner/__init__.py` stays empty. No module may have the name of one of
the standard library: the warm process starts with its own folder first in its search path.

The keeper spawns ranks, sees each death at once (pidfd), keeps exits until an agent has acknowledged them, and hands the
agent's ends of the ranks' channels to the agent that is connected. When the keeper dies its ranks die with it
(PR_SET_PDEATHSIG, which the kernel ties to the spawning *thread*: hence one thread). As a subreaper it inherits what its ranks
leave behind, so that nothing escapes by forking twice.

`warm` is a program of its own, run in the interpreter of the ranks: it imports what they need and forks them. It is a child
of the keeper, so an import that hangs or crashes cannot touch ranks that run. The keeper spawns what it cannot fork.
"""
