"""Ready callbacks and parts for training libraries, one module per library, which that module alone imports.

A training script imports the module of its library. Each of them reports steps through `stoker.attach()`, follows requests,
seals what the library saves, and applies the remedies that the library lets it; without Stoker it does nothing. None of them
changes what the library computes, beyond the remedies that were ordered.
"""
