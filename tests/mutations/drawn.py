"""Small changes of meaning, at places that a seed draws from what can be changed in some files."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

TESTS: dict[str, tuple[str, ...]] = {
    "src/spen/energies/*.py": ("tests/energies", "tests/objectives", "tests/inference"),
    "src/spen/inference/*.py": ("tests/inference", "tests/objectives", "tests/kernels/test_cpu.py"),
    "src/spen/inference/discrete/*.py": (
        "tests/inference/discrete",
        "tests/inference/test_solvers.py",
    ),
    "src/spen/objectives/*.py": (
        "tests/objectives",
        "tests/inference/test_backward.py",
        "tests/inference/discrete",
    ),
    "src/spen/estimators/decoding.py": ("tests/test_decoding.py", "tests/test_metric_setting.py"),
    "src/spen/estimators/calibration.py": ("tests/test_calibration.py",),
}
"""The files that are changed, and the tests that are to notice, the nearest first."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
CALLS = {
    "min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax",
    "argmax": "argmin", "clamp_min": "clamp_max", "any": "all", "all": "any",
    "minimum": "maximum", "maximum": "minimum", "zeros_like": "ones_like", "sum": "mean",
}  # fmt: skip
IN_WORDS = ("__repr__", "extra_repr", "describe", "__post_init__")
"""Functions that make words, or check what they are given: other tests read them."""


class Change(NamedTuple):
    """One place of a file, and what takes its place."""

    path: str
    start: int
    end: int
    line: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} → {self.new}"


def changes_of(path: Path) -> list[Change]:
    """Return every change that can be made in a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, changed in _places(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        name = path.relative_to(ROOT).as_posix()
        old, new = (" ".join(ast.unparse(each).split()) for each in (node, changed))
        found.append(Change(name, start, end, node.lineno, old, f"({new})"))
    return found


def draw(count: int, seed: int) -> list[Change]:
    """Return changes that a seed draws from all, every place as likely as any other."""
    every = [
        change
        for pattern in TESTS
        for path in sorted(ROOT.glob(pattern))
        for change in changes_of(path)
    ]
    return random.Random(seed).sample(every, count)


def judges_of(change: Change) -> tuple[str, ...]:
    """Return the tests that are to notice a change, beside the examples of its file."""
    return next(tests for pattern, tests in TESTS.items() if Path(change.path).match(pattern))


def _places(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield expressions and what they may become, in functions alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            if node.name not in IN_WORDS:
                for statement in node.body:
                    yield from _in_function(statement)
        elif isinstance(node, ast.ClassDef):
            yield from _places(node)


def _in_function(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    # What is raised, documented or annotated is words.
    words = ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert
    if isinstance(node, words):
        return
    if isinstance(node, ast.expr):
        yield from ((node, changed) for changed in _changed(node))
    for name, part in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, ast.AST):
                yield from _in_function(each)


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if (other := SWAPS.get(type(node.ops[0]))) is not None:
            operator: list[ast.cmpop] = [other()]  # pyright: ignore[reportAssignmentType]
            yield ast.Compare(node.left, operator, node.comparators)
    elif isinstance(node, ast.BinOp) and (other := SWAPS.get(type(node.op))) is not None:
        yield ast.BinOp(node.left, other(), node.right)  # pyright: ignore[reportArgumentType]
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPS[type(node.op)](), node.values)  # pyright: ignore[reportArgumentType]
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (name := CALLS.get(node.func.attr)) is not None
    ):
        function = ast.Attribute(node.func.value, name, ast.Load())
        yield ast.Call(function, node.args, node.keywords)
