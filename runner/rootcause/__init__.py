"""Root cause: matched log lines and rank stacks in; one fault, its culprit and its evidence out.

Pure. Offline diagnosis and the controller call the same functions; nothing here reads a file or changes state.
"""
