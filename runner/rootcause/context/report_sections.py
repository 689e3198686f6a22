"""Report sections: a row of a tool's report means something below the title of its section only."""

import re

from runner.facts.matches import Match

# From the title of a section of a report to its last row; chosen.
SECTION_LINES = 14
_PORT = re.compile(r"Port (\d+)")
# Names of columns of nvidia-smi: a cap of power is none of them, which is normal.
_SLOWDOWN = re.compile(r"_reasons\.(?:hw_\w*slowdown|sw_thermal_slowdown)")


class ReportSections:
    """The titles of one file, followed from its first match to its last."""

    def __init__(self) -> None:
        self._title: Match | None = None
        self._has_down = False
        self._is_first_port_up = False

    def belongs(self, match: Match) -> bool:
        """Whether a match counts, as far as sections go; takes note of titles.

        A row counts below the title of one of the sections that it names by its groups. The second port of an adapter whose first
        one is up has no cable, as a rule.
        """
        if match.role == "section":
            self._begin(match)
        if match.role == "in-section" and not self._is_in_section(match):
            return False
        if "port" in match.named and self._is_near(match):
            if self._is_first_port_up:
                return False
            self._has_down = True
        return True

    def _begin(self, title: Match) -> None:
        before = self._title
        is_after_port = before is not None and _number_of(before) == 1 and self._is_near(title)
        self._is_first_port_up = is_after_port and _number_of(title) == 2 and not self._has_down
        self._title, self._has_down = title, False

    def _is_near(self, match: Match) -> bool:
        return self._title is not None and match.line - self._title.line <= SECTION_LINES

    def _is_in_section(self, match: Match) -> bool:
        if self._title is None or not self._is_near(match):
            return False
        if "columns" in match.named:
            return _has_slowdown(self._title.text, match.text)
        first = _name_of(self._title).casefold().replace("_", " ").split(" ")[0]
        return any(first == group.split("_")[0] for group in match.named)


def _has_slowdown(title: str, row: str) -> bool:
    """Whether a row of columns has `Active` in one about a slowdown by the hardware, or for heat, by the names in the title."""
    columns = zip(title.split(","), row.split(","), strict=False)
    return any(value.strip() == "Active" for name, value in columns if _SLOWDOWN.search(name))


def _name_of(title: Match) -> str:
    return title.named.get("section") or title.named.get("query", "")


def _number_of(title: Match) -> int:
    """Return the number of an adapter's port whose title this is; 0 for other titles."""
    port = _PORT.fullmatch(_name_of(title))
    return int(port[1]) if port is not None else 0
