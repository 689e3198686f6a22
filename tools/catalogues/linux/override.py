"""What a single message of the kernel means where its folder does not say it."""

from dataclasses import KW_ONLY, dataclass

from runner.facts.matches import Scope
from tools.catalogues.rows import Level


@dataclass(frozen=True, slots=True)
class Override:
    """Formats that match `pattern` in files below `paths`, at these levels."""

    paths: tuple[str, ...]
    pattern: str
    fault: str
    why: str
    _: KW_ONLY
    levels: tuple[Level, ...] = ("error", "warning")
    scope: Scope | None = "node"
    lasting: bool = False


# A message of this class is one at any level.
ANY_LEVEL: tuple[Level, ...] = ("error", "warning", "info")
