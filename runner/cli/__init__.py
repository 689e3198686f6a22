"""The command line: it reads the published status and the journal, writes requests, and prints.

The law of this package. Reading works without a supervisor and never disturbs one; every change is a request that the supervisor
answers. It starts no processes but supervisors and what serves beside one, and kills none but those of its own cluster, by more
than a pid. Every answer exists as a table for people and as `--json` for programs; every error names the thing, the value and the
way out, and ends in an exit code that `stoker --help` lists.
"""
