"""The core stays pure: time and messages are its arguments, and it decides the same in every process."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ("runner/facts", "runner/detect", "runner/rootcause", "runner/decide", "runner/history")
FORBIDDEN = {
    "asyncio",
    "datetime",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "psutil",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "torch",
    "uuid",
}
# the last two differ between processes
CALLS = {"open", "input", "__import__", "id", "hash"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}


def core_files() -> list[Path]:
    """List the files of the core."""
    files = [path for folder in CORE for path in (ROOT / folder).rglob("*.py")]
    return sorted([ROOT / "runner/kernel_lines.py", *files])


def forbidden_imports(tree: ast.Module) -> Iterator[str]:
    """Yield imports of modules that read the outside world, and calls of built-ins that do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            suspects = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            suspects = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            suspects = [node.func.id] if node.func.id in CALLS else []
        else:
            continue
        for name in suspects:
            if isinstance(node, ast.Call) or name.split(".")[0] in FORBIDDEN:
                yield f"line {node.lineno}: {name}"


def is_set(node: ast.expr) -> bool:
    """Whether an expression is a set by its form: a literal, a comprehension, set(...), or arithmetic on these."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor) and (
            is_set(node.left) or is_set(node.right)
        )
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("set", "frozenset")
        return isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS
    return False


def set_iterations(tree: ast.Module) -> Iterator[str]:
    """Yield places that depend on the order of a set, which changes with PYTHONHASHSEED.

    Membership, len, min, max, any, all, sorted and sums of whole numbers do not; loops, comprehensions that keep an order,
    list, tuple, next(iter()), join, enumerate and unpacking do. A name that only ever holds sets counts as a set.
    """
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Module | ast.FunctionDef | ast.Lambda):
            continue
        held = sets_held(scope)
        for node in ast.walk(scope):
            for ordered in ordered_uses(node):
                if is_set(ordered) or (isinstance(ordered, ast.Name) and ordered.id in held):
                    yield f"line {ordered.lineno}: {ast.unparse(ordered)}"


def sets_held(scope: ast.AST) -> frozenset[str]:
    """Return names that are assigned sets, and nothing else, in this scope."""
    held: dict[str, bool] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            held[target.id] = held.get(target.id, True) and is_set(value)
    return frozenset(name for name, always in held.items() if always)


def ordered_uses(node: ast.AST) -> list[ast.expr]:
    """Return the expressions whose order matters to this node."""
    if isinstance(node, ast.For):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.DictComp):
        return [generator.iter for generator in node.generators]
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.Call) and node.args:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("list", "tuple", "iter", "enumerate", "zip", "map", "reversed") or method in (
            "join",
            "extend",
        ):
            return list(node.args)
    return []


def test_the_core_is_found() -> None:
    """The folders of the core exist, so that the checks below check something."""
    assert len(core_files()) > 10
    for folder in CORE:
        assert (ROOT / folder / "__init__.py").is_file(), folder


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_does_not_touch_the_outside_world(path: Path) -> None:
    """No module of the core imports a clock, files, processes, randomness or torch, anywhere in it."""
    assert list(forbidden_imports(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_iterates_over_no_set(path: Path) -> None:
    """No result of the core depends on the order of a set, so another process decides the same."""
    assert list(set_iterations(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "for x in {1, 2}: pass",
        "for x in set(names): pass",
        "[x for x in {*a} | b]",
        "tuple(frozenset(a))",
        "', '.join({str(x) for x in y})",
        "def f(a):\n    lost = set(a)\n    for x in lost: pass",
        "next(iter(set(a)))",
        "[*set(a)]",
    ],
)
def test_an_iteration_over_a_set_is_found(code: str) -> None:
    """Each form in which a set's order could leak is recognised."""
    assert list(set_iterations(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "x in {1, 2}",
        "sorted(set(a))",
        "len({x for x in a})",
        "for x in sorted({1, 2}): pass",
        "def f(a):\n    lost = set(a)\n    lost = sorted(lost)\n    for x in lost: pass",
        "any(x for x in set(a))",
        "for x in {1: 2}: pass",
    ],
)
def test_harmless_uses_of_a_set_pass(code: str) -> None:
    """Membership, sorting and counting do not depend on a set's order."""
    assert not list(set_iterations(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["import time", "import os.path", "from datetime import datetime", "open('x')"]
)
def test_an_access_to_the_outside_world_is_found(code: str) -> None:
    """Imports in any form, and opening a file, are recognised."""
    assert list(forbidden_imports(ast.parse(code)))
