"""What a report must not carry: secrets, values of environment variables, addresses with passwords, and, unless asked for, paths.

It is applied to every text that comes from outside: lines of ranks, reasons, evidence. Names of nodes and serial numbers of
hardware stay: the report is to say what is sent back.
"""

import re
from collections.abc import Mapping

REMOVED, PATH = "[removed]", "[path]"
# A shorter value of a variable ("1", "true", "cuda") is no secret, and would blank half of a text. Chosen.
MIN_VALUE_CHARACTERS = 6
# scheme://user:password@host and any address of a store or service; what follows the host goes, too.
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)
# A name that says what its value is: API_KEY=..., "token": "...", Authorization: Bearer ...
_NAMED = re.compile(
    r"""(?P<name>[\w.-]*(?:token|secret|passw(?:or)?d|passwd|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization)
        [\w.-]*['"]?\s*[=:]\s*)(?:bearer\s+|basic\s+)?(?P<value>"[^"]*"|'[^']*'|[^\s,;'"]+)""",
    re.IGNORECASE | re.VERBOSE,
)
# Forms of keys by themselves, and any long word of letters and digits: hashes among them, which no reader needs.
_KEYS = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|AIza|eyJ)[\w./+=-]{8,}"
    r"|\b(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{40,}"
)
# Absolute paths of at least two parts, and those of a home folder.
_PATH = re.compile(r"(?<![\w.\]])(?:~[\w.-]*)?(?:/[\w.@+%=~-]+){2,}/?|(?<!\w)~/[\w./@+-]*")


class Redaction:
    """Removes from texts what must not leave. `environment`: of the run."""

    def __init__(self, environment: Mapping[str, str], *, with_paths: bool) -> None:
        values = {value: name for name, value in environment.items()}
        long_ones = [value for value in values if len(value) >= MIN_VALUE_CHARACTERS]
        self._values = sorted(long_ones, key=len, reverse=True)
        self._names = values
        self._with_paths = with_paths

    def text(self, text: str) -> str:
        """Return a text without them."""
        for value in self._values:
            text = text.replace(value, f"[value of {self._names[value]}]")
        text = _ADDRESS.sub("[address]", text)
        text = _NAMED.sub(lambda match: f"{match['name']}{REMOVED}", text)
        text = _KEYS.sub(REMOVED, text)
        return text if self._with_paths else _PATH.sub(PATH, text)
