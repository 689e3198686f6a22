"""The command line: what people type. It reads the View and the journal, writes requests, and prints.

The law of this package. Looking works without a supervisor and never disturbs one; changing anything goes through a request
that the supervisor answers. The only processes it starts are supervisors, and the only ones it kills are those of its own
cluster, known by more than a pid. Every answer exists as a table for people and as `--json` for programs; every error names
the thing, the value and the way out, and ends in an exit code that `stoker --help` lists.
"""
