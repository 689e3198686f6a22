"""Families of emitters: what a line at error level means by who writes it, where no signature and no catalogue has its words.

The first family that matches decides, so the more specific ones come first. Each has a line that it knows and a similar one that it
does not; `confidence` is how often such lines name the class of action rightly, chosen from the emitters' own catalogues.
"""

from runner.rootcause.families.collectives import COLLECTIVES
from runner.rootcause.families.endings import ENDINGS
from runner.rootcause.families.family import Family
from runner.rootcause.families.gpus import GPUS
from runner.rootcause.families.jobs import JOBS
from runner.rootcause.families.kernel import KERNEL
from runner.rootcause.families.programs import PROGRAMS
from runner.rootcause.families.services import SERVICES

FAMILIES: tuple[Family, ...] = (
    *(*GPUS, *PROGRAMS, *JOBS, *COLLECTIVES, *KERNEL, *SERVICES, *ENDINGS),
)


def family_of(text: str) -> Family | None:
    """Return the family of a line at error level; None where nothing shows who wrote it, or about what."""
    return next((family for family in FAMILIES if family.regex.search(text)), None)


__all__ = ["FAMILIES", "Family", "family_of"]
