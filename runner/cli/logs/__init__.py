"""`stoker logs`: what ranks wrote, from the files of their attempts, and what was kept with an incident.

It reads files and the journal, and asks no node: the output of a rank stays where its node wrote it. Memory is bounded by a chunk
of one file, whatever the ranks write.
"""
