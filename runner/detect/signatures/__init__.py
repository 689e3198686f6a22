"""Signatures: the lines that logs are searched for. Tables only; `runner/collect/scan.py` searches, `runner/decide` judges."""

from __future__ import annotations

from runner.detect.signatures.device import DEVICE
from runner.detect.signatures.ending import ENDING
from runner.detect.signatures.machine import MACHINE
from runner.detect.signatures.marks import MARKS
from runner.detect.signatures.network import COLLECTIVE, NETWORK
from runner.detect.signatures.program import PROGRAM
from runner.detect.signatures.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *DEVICE,
    *MACHINE,
    *PROGRAM,
    *NETWORK,
    *COLLECTIVE,
    *ENDING,
    *MARKS,
)

__all__ = ["SIGNATURES", "Signature"]
