"""What ranks of the built-in trainer import before they are forked; the default of `preload` in run.yaml for the trainer."""

from importlib import import_module

from stoker import packages

packages.add_to_path()
import_module("trainer.preload")
