"""Watch: a run that Stoker did not launch, judged by the same core, which may do nothing.

Output, the kernel's log and /proc are read, and become the signals that an agent would send. Detectors, controller and ledger are
those of a supervisor, in memory, in mode `off`: they decide what has happened; what they would have done is a proposal.
Nothing here signals, traces or writes to what is watched; the one process that is started is the command that a person names.
"""
