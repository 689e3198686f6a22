"""`python -m tests.measures [N]`: measures of the code, one a line, and the first N places that break a rule of words or of form.

Only names that the code defines are looked at, not the library's. What is allowed, or not clean yet, stands in
tests/words_allowed.txt.
"""

import ast
import gc
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ALLOWED = ROOT / "tests" / "words_allowed.txt"
PACKAGES = ("stoker", "runner", "trainer", "healthchecks", "runbooks", "bench", "tests", "tools")
MAX_COLUMNS = 100
# The heading in ALLOWED below which rows wait for their word to go: tests let them pass, the report counts them.
PENDING = "# Not yet clean"
STRICT = False

# Private and personified words, each with the standard one. Inflections are listed, for a name is split at its joints only.
FORBIDDEN = {
    "anew bereft dossier courier voice seat stranger strangers junk": "plain words",
    "told tell tells telling teller said say says saying speak speaks spoke": "emit, log, report",
    "hear hears heard hearing beat beats": "on_message, last_heartbeat, heartbeat",
    "whoever whom nobody somebody everybody": "the actor's name",
    "strike strikes struck": "report_failure, failed",
    "doorbell ringer bell": "wakeup, notify",
    "undying mute deafen crowd lonely": "unkillable, agent_hung, correlated_silence",
    "waits": "blocking_calls",
    "stand stands": "rank_stack, harness",
    "holdings": "rank_resources",
    "forgotten forgot forgets forgetting": "store_rollback",
    "epoch epochs": "generation",
    "life lives": "instance_id",
    "offend offends offence offences": "hardware_fault",
    "noted": "recorded, info",
    "warmth odd cold berth wish": "preloaded, not_forkable, fork_slot, request",
    "gate door": "start_barrier, rendezvous_latch",
    "blame blamed": "attribution",
    "archivist picture outlook showing": "compactor, image, derived state",
    "uncleared": "ranks_may_run",
    "performances": "action_handlers",
    "nearness": "topology",
    "strays astray": "orphans, mismatched",
    "welcome": "handshake",
    "desk rig": "controller_harness, check_harness",
    "surroundings": "environment",
    "mend mended bury": "restart, reap",
    "draft": "decision",
    "weigh": "estimate",
}
WORDS = {word: better for words, better in FORBIDDEN.items() for word in words.split()}
PROSE = re.compile(
    r"\b(whoever|whomever|nobody|somebody|anew|in vain|but for|whom|therein|wherein|thereof)\b",
    re.I,
)
# A comment that a tool reads may stand behind its line.
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type: ignore|fmt: skip|fmt: off|fmt: on|pragma)\b")
# What may be a comment behind code; tokens decide, which take longer.
_BEHIND = re.compile(r"\S.*  #(?! *(?:noqa|type: ignore))")
# A comment, or the line on which a docstring begins or ends.
_TEXT = re.compile(r'\s*(?:#|""")')
_JOINTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Nouns that end like a gerund.
_NOUNS = frozenset({"accounting", "setting", "string", "training", "wording"})


class Place(NamedTuple):
    """Where something stands: `path` is relative to the root."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file of the tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """Its dotted name; a package's is that of its folder."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()


@cache
def sources() -> tuple[Source, ...]:
    """Read every Python file of the project's packages."""
    found = []
    # Trees of millions of nodes that all stay: the collector would look at them again and again, for two thirds of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                text = path.read_text(encoding="utf-8")
                found.append(Source(str(path.relative_to(ROOT)), text, ast.parse(text)))
    finally:
        if was_enabled:
            gc.enable()
    return tuple(found)


def of(package: str) -> Iterator[Source]:
    """Yield the files of one package."""
    return (source for source in sources() if source.path.startswith(f"{package}/"))


def files_and_functions(package: str) -> tuple[list[int], list[int]]:
    """Return the lengths of files and of functions in lines, each sorted; a docstring counts."""
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in of(package)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(len(source.lines) for source in of(package)), sorted(functions)


def percentile(values: list[int], percent: int) -> int:
    """Return the smallest of sorted values that so many percent do not exceed."""
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def files_per_folder(packages: Iterable[str] = PACKAGES) -> Counter[str]:
    """Count the modules of each folder; `__init__` is not one of them."""
    return Counter(
        str(Path(source.path).parent)
        for package in packages
        for source in of(package)
        if not source.path.endswith("__init__.py")
    )


def imports_between_rooms(package: str = "runner") -> dict[tuple[str, str], list[str]]:
    """Return (room, room it imports) -> the modules that do. A room is a folder or module right below the package."""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source in of(package):
        for node in ast.walk(source.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                parts, own = name.split("."), source.module.split(".")
                if parts[0] == package and len(parts) > 1 and len(own) > 1 and parts[1] != own[1]:
                    edges[own[1], parts[1]].append(source.module)
    return dict(edges)


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of rooms that reach one another by imports (strongly connected components)."""
    reach: dict[str, set[str]] = defaultdict(set)
    for start, end in edges:
        reach[start].add(end)
    changed = True
    while changed:
        changed = False
        for start in list(reach):
            more = {far for near in reach[start] for far in reach.get(near, ())}
            if not more <= reach[start]:
                reach[start] |= more
                changed = True
    groups = {
        tuple(sorted({a} | {b for b in reach[a] if a in reach.get(b, ())}))
        for a in reach
        if a in reach[a]
    }
    return [list(group) for group in sorted(groups)]


def classes_defined_twice(package: str = "runner") -> dict[str, list[str]]:
    """Return public class names with more than one definition -> their modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for source in of(package):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(source.module)
    return {
        name: found
        for name, found in sorted(modules.items())
        if len(found) > 1 and not is_allowed("class-twice", name)
    }


def identifiers(source: Source) -> Iterator[Place]:
    """Yield every name that a file defines: functions, classes, parameters, variables, attributes, aliases."""
    for node in ast.walk(source.tree):
        line = getattr(node, "lineno", 1)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Place(source.path, line, name)
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield Place(source.path, line, name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield Place(source.path, line, name)
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield Place(source.path, line, name)
            case _:
                pass


def joints(name: str) -> list[str]:
    """Split a name into its words, lower case: `numLostBytes` and `num_lost_bytes` alike."""
    return [word.lower() for word in _JOINTS.findall(name)]


def forbidden_identifiers() -> dict[str, list[Place]]:
    """Return each forbidden word -> the names, of modules too, that contain it and are not allowed."""
    found: dict[str, list[Place]] = defaultdict(list)
    for source in sources():
        module = Place(source.path, 1, Path(source.path).stem)
        for place in (module, *identifiers(source)):
            # A test is named by a sentence.
            for word in [] if place.text.startswith("test_") else joints(place.text):
                if word in WORDS and not is_allowed(word, place.path):
                    found[word].append(place)
    return dict(found)


def forbidden_prose() -> dict[str, list[Place]]:
    """Return each forbidden word of prose -> the lines of code and pages in which it stands."""
    found: dict[str, list[Place]] = defaultdict(list)
    pages = [
        path
        for pattern in ("*.md", "docs/**/*.md", "runbooks/*.md")
        for path in sorted(ROOT.glob(pattern))
    ]
    texts = [(source.path, source.text) for source in sources()]
    texts += [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages]
    for path, text in texts:
        for number, line in enumerate(text.splitlines(), 1):
            for match in PROSE.finditer(line):
                word = match[0].lower().replace(" ", "-")
                if path != "tests/measures.py" and not is_allowed(word, path):
                    found[word].append(Place(path, number, line.strip()))
    return dict(found)


@cache
def _allowed() -> tuple[tuple[str, str], ...]:
    rows = []
    for line in ALLOWED.read_text(encoding="utf-8").splitlines():
        row = line.partition("#")[0].split()
        if STRICT and line.startswith(PENDING):
            break
        if row:
            rows.append((row[0], row[1] if len(row) > 1 else "*"))
    return tuple(rows)


def is_allowed(word: str, path: str) -> bool:
    """Whether tests/words_allowed.txt has a row for a word, or for the name of a rule, in this file."""
    return any(word == allowed and fnmatch(path, pattern) for allowed, pattern in _allowed())


def gerund_modules() -> list[Place]:
    """Return modules named by a gerund (`keeping`); tests are named after what they test."""
    return [
        Place(source.path, 1, stem)
        for source in sources()
        if not (stem := Path(source.module.replace(".", "/")).name).startswith("test_")
        # The last word is what it is: blocking_calls are calls.
        and (word := joints(stem)[-1]).endswith("ing")
        and word not in _NOUNS
        and not is_allowed("gerund", source.path)
    ]


def glossary_twice() -> list[str]:
    """Return words with more than one row in ARCHITECTURE.md's list of words."""
    words: Counter[str] = Counter()
    is_glossary = False
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            is_glossary = False
        elif re.match(r"\| *word *\|", line):
            is_glossary = True
        elif is_glossary:
            words.update(re.findall(r"\*([^*]+)\*", line.split("|")[1]))
    return sorted(word for word, count in words.items() if count > 1)


def trailing_comments() -> list[Place]:
    """Return comments behind code, but for directives of tools and in tables of numbers (`fmt: off`, `fmt: skip`)."""
    found = []
    for source in sources():
        lines, is_table = source.lines, False
        if not any(_BEHIND.search(line) for line in lines):
            continue
        for token in _tokens(source):
            if token.type != tokenize.COMMENT:
                continue
            number, column = token.start
            is_table = is_table != (token.string in ("# fmt: off", "# fmt: on"))
            is_behind = lines[number - 1][:column].strip() != ""
            if is_behind and not is_table and not _DIRECTIVE.match(token.string):
                found.append(Place(source.path, number, token.string))
    return [place for place in found if not is_allowed("trailing-comment", place.path)]


def wide_lines() -> list[Place]:
    """Return lines of code beyond MAX_COLUMNS. Comments and texts may be wider: a formatter does not break them."""
    found = []
    for source in sources():
        if not any(len(line) > MAX_COLUMNS and not _TEXT.match(line) for line in source.lines):
            continue
        texts: set[int] = set()
        ends: Counter[int] = Counter()
        for token in _tokens(source):
            # A sentence or a sample, not a key; no line of it is code.
            if token.type == tokenize.STRING and len(token.string) > MAX_COLUMNS // 3:
                texts.update(range(token.start[0], token.end[0] + 1))
            elif token.type not in (tokenize.COMMENT, tokenize.NEWLINE, tokenize.NL):
                ends[token.end[0]] = max(ends[token.end[0]], token.end[1])
        found += [
            Place(source.path, number, source.lines[number - 1].strip())
            for number, end in sorted(ends.items())
            if end > MAX_COLUMNS and number not in texts
        ]
    return [place for place in found if not is_allowed("wide-line", place.path)]


def _tokens(source: Source) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source.text).readline)


def _listed(places: list[Place], most: int) -> Iterator[str]:
    for place in places[:most]:
        yield f"    {place.path}:{place.line}: {place.text[:100]}"
    if len(places) > most > 0:
        yield f"    and {len(places) - most} more"


def report(most: int) -> Iterator[str]:
    """Yield the measures as lines; of each broken rule the first places."""
    for package in ("runner", "trainer", "healthchecks", "tests"):
        files, functions = files_and_functions(package)
        yield (
            f"{package}: {sum(files)} lines in {len(files)} files; lines of a file (50 %, 90 %, most) "
            f"{percentile(files, 50)}, {percentile(files, 90)}, {files[-1]}; of a function "
            f"{percentile(functions, 50)}, {percentile(functions, 90)}, {functions[-1]}"
        )
    fullest = files_per_folder().most_common(5)
    yield f"files per folder, most: {', '.join(f'{folder} {count}' for folder, count in fullest)}"
    edges = imports_between_rooms()
    groups = circles(edges)
    yield f"circles of imports between rooms: {len(groups)}"
    for group in groups:
        yield f"    {' <-> '.join(group)}"
    twice = classes_defined_twice()
    yield f"public classes defined twice in runner: {len(twice)}"
    for name, modules in twice.items():
        yield f"    {name}: {', '.join(modules)}"
    words = glossary_twice()
    yield f"glossary entries given twice: {len(words)} {', '.join(words)}".rstrip()
    for title, places in (
        ("modules named by a gerund", gerund_modules()),
        ("trailing comments", trailing_comments()),
        (f"lines of code beyond {MAX_COLUMNS} columns", wide_lines()),
    ):
        yield f"{title}: {len(places)}"
        yield from _listed(places, most)
    for title, found in (
        ("forbidden words in identifiers", forbidden_identifiers()),
        ("forbidden words in prose", forbidden_prose()),
    ):
        yield f"{title}: {sum(map(len, found.values()))}"
        if most == 0:
            continue
        for word, places in sorted(found.items()):
            better = f" (better: {WORDS[word]})" if word in WORDS else ""
            yield f"  {word}: {len(places)}{better}"
            yield from _listed(places, most)


if __name__ == "__main__":
    STRICT = True
    for output in report(most=int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        print(output)
