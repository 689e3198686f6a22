"""What single messages of the kernel mean where their folder does not say it, with the reason. The first that applies counts."""
from dataclasses import KW_ONLY, dataclass

from runner.facts.matches import Scope
from tools.catalogues.rows import Level


@dataclass(frozen=True, slots=True)
class Override:
    """Formats that match `says` in files below `paths`, at these levels."""

    paths: tuple[str, ...]
    says: str
    fault: str
    why: str
    _: KW_ONLY
    levels: tuple[Level, ...] = ("error", "warning")
    scope: Scope | None = "node"
    lasting: bool = False


OVERRIDES: tuple[Override, ...] = ()
