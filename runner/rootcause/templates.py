"""Templates: which unknown faults are the same, although some of their words differ.

Masks take out numbers, addresses and paths; names of shards, hosts and keys they cannot know. Lines of as many words are one
group when they begin alike and enough of their words are equal, in their places: Drain (He et al., ICWS 2017) with a tree of
depth 4. The groups are made from what the incidents hold, each time.
"""

from collections.abc import Mapping

# Of a line's words that must be equal; Drain's own 0.4 would take two errors of five words for one when two are. Chosen.
LEAST_ALIKE = 0.7
# Lines, the newest, that a new one is compared with. Chosen.
MAX_KNOWN = 500
# What replaces differing words in a template.
_ANY = "<*>"

# Number of words, and the first of several -> the templates of lines that begin so.
_Templates = dict[tuple[int, str], list[list[str]]]


def last_alike(line: str, known: Mapping[str, str]) -> str:
    """Return the name of the newest known line that is the same as this one, or else only alike; "" for none. All are masked."""
    newest = dict(list(known.items())[-MAX_KNOWN:])
    same = [name for name, text in newest.items() if text == line]
    if same:
        return same[-1]
    templates: _Templates = {}
    groups = {name: _template(templates, text.split()) for name, text in newest.items()}
    own = _template(templates, line.split())
    return next((name for name in reversed(groups) if groups[name] is own), "")


def _template(templates: _Templates, words: list[str]) -> list[str]:
    """Return the template of a line's group, after the line's own words have changed it, or a new one."""
    first = words[0] if len(words) > 1 else ""
    exact, general = (len(words), first), (len(words), _ANY)
    similar = templates.get(exact, templates.get(general, []))
    best = max(similar, key=lambda template: _similarity(template, words), default=None)
    if best is None or _similarity(best, words)[0] < LEAST_ALIKE:
        is_general = any(character.isdigit() for character in first)
        templates.setdefault(general if is_general else exact, []).append(words)
        return words
    best[:] = [word if word == other else _ANY for word, other in zip(best, words, strict=True)]
    return best


def _similarity(template: list[str], words: list[str]) -> tuple[float, int]:
    """Return the share of words that are equal, and how many words the template leaves open."""
    num_equal = sum(a == b != _ANY for a, b in zip(template, words, strict=True))
    return num_equal / len(words) if words else 1.0, template.count(_ANY)
