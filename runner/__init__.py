"""Stoker's control plane: everything that watches, decides and acts. It never imports torch or the trainer.

Imports point down only (see ARCHITECTURE.md); `lint-imports` holds us to it.
"""
