"""`python -m stoker.script_saves SAVED [options] -- SCRIPT [ARGUMENTS]`: starts a script whose saves are sealed.

docs/contract.md says what is done for it. The script sees nothing of Stoker's own packages.
"""

from stoker import packages

with packages.importable():
    from runner.checkpoints.script_saves.__main__ import main

if __name__ == "__main__":
    main()
