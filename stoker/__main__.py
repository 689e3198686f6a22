"""`python -m stoker`: the command `stoker`."""

from stoker.command import main

if __name__ == "__main__":
    main()
