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
# What drivers write while they start, on machines that then run.
SET_UP = (
    r"(?:fail\w*|unable|could ?n.?t|cannot|can't|can not|error\b.*) (?:to |in )?(?:un)?"
    r"(?:register|allocat|creat|init|request|map|get |parse|set ?up|add |find|load|enable|reserve|"
    r"ioremap|remap|claim|install|obtain|attach|start)"
    r"|(?:regist\w+|init\w*|alloc\w*|creat\w+|setup|request\w*|ioremap|probe) (?:has )?fail"
    r"|not support|unsupported|deprecated|invalid argument|unknown (?:option|parameter|module)"
    r"|out of memory|sysfs|debugfs|\bkobj|module_param|command line|\boption|hotmod|retry get|message count"
)
