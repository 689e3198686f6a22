"""`stoker report`: all that is known of a run in one file, for the people who write the post-mortem.

`content` gathers it from journal, step history and status, `document` says it in sections, and `markdown` and `html` write those.
Every figure is that of its owner (ledger, forecast, lineage, logbook, the cluster's state); nothing is computed twice. What leaves
this folder went through `redaction`: a report is sent to others.
"""
