"""Log folders: what a person names (files, folders, standard input) becomes logs with their origin, curves and flight records.

`stoker diagnose` calls it. It reads regular files, unpacks what gzip, bzip2, xz or Zstandard packed, and names everything that it
leaves out with the reason. It never follows a loop of links, and never opens a socket, a pipe or a device that it merely found.
"""
