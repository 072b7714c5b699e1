"""Are the tests awake? Breaks the deciding code in places that a seed picks, and looks whether a test fails.

    PYTHONPATH=src:. .venv/bin/python tools/mutations.py --seed 1 --count 20 --room disruption

One place at a time is broken, each in a copy of the tree; prints a table and exits 1 if a mutant lived. A
mutation is one of: a comparison negated or its bound moved, `and` for `or`, a `not` lost, an integer off by
one, `+` for `-`, `min` for `max`, `any` for `all`, a condition forgotten, a statement or loop exit dropped,
a truth value turned round. Texts, annotations and what SPARED names are left alone.
"""

import argparse
import ast
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Room:
    """Code that decides, and the tests that have to notice when it is broken."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    plain: str = ""
    """Tests that are run once more on first plans as they are."""


ROOMS = {
    "scheduling": Room(
        sources=("src/karpenter/model", "src/karpenter/scheduling"),
        tests=(
            "tests/model",
            "tests/scheduling",
            "tests/property",
            "tests/corpus",
            "tests/controllers/provisioning",
        ),
        plain="tests/scheduling",
    ),
    "disruption": Room(
        sources=(
            "src/karpenter/disruption",
            "src/karpenter/controllers/disruption",
            "src/karpenter/controllers/node",
            "src/karpenter/controllers/nodeclaim",
            "src/karpenter/controllers/nodepool",
        ),
        tests=(
            "tests/disruption",
            "tests/controllers/disruption",
            "tests/controllers/node",
            "tests/controllers/nodeclaim",
            "tests/controllers/nodepool",
            "tests/controllers/static",
            "tests/corpus/test_consolidation.py",
            "tests/scenario/test_disruption.py",
            "tests/scenario/test_surge.py",
            "tests/scenario/test_drift.py",
            "tests/scenario/test_auditor.py",
        ),
    ),
}
PATIENCE = 2.0
"""A mutant that takes so many times as much CPU as no mutant hangs."""
_NOT_RUN, _NOTHING_RUN = 4, 5  # pytest's exit codes
_TRUSTED_SECONDS = 300.0
"""What no mutant is taken to need when that is not tried."""

SPARED: dict[str, str] = {
    "scheduling/check*.py": "the independent judge of plans: it decides nothing",
    "scheduling/search/*": "proposes cheaper plans; benchmarks and the exhaustive solver measure how cheap",
    "scheduling/improve.py": "asks the search, and takes what it proposes if it is cheaper",
    "scheduling/menu.py": "what the search may choose from",
    "scheduling/looser.py": "other plans, for when nodes cannot be nominated",
    "scheduling/bound.py": "says how cheap a plan could be",
    "scheduling/relaxation.py": "says how cheap a plan could be",
    "scheduling/packing.py:choose": "which type is the best bargain",
    "scheduling/packing.py:_joinable": "which type is the best bargain",
    "scheduling/packing.py:_fill_in_order": "which type is the best bargain",
    "scheduling/packing.py:_fill_by_worth": "which type is the best bargain",
    "scheduling/packing.py:_runs": "which type is the best bargain",
    "scheduling/packing.py:_candidates": "which types are compared at all, of very many",
    "scheduling/assign.py:_Deal._evenly": "deals many pods at once as one by one would have, only faster",
    "disruption/sets.py:_Sweep._vacated": "which sets of nodes are tried, of very many",
    "disruption/sets.py:_Sweep._prefixes": "which sets of nodes are tried, of very many",
    "disruption/sets.py:_Sweep._guesses": "which sets of nodes are tried, of very many",
    "disruption/sets.py:_Sweep._windows": "which sets of nodes are tried, of very many",
    "disruption/sets.py:_Sweep._may_pay": "which sets of nodes are tried, of very many",
    "scheduling/detours.py:_off_nodes": "which other plans for a small batch are tried, the best is taken",
    "scheduling/detours.py:_out_of_domains": "which other plans for a small batch are tried",
    "scheduling/detours.py:_in_turn": "which other plans for a small batch are tried",
    "scheduling/detours.py:_with_and_without": "which other plans for a small batch are tried",
    "scheduling/detours.py:_fewer": "which other plans for a small batch are tried",
    "model/requirements.py:_value_order": "its zero stands where all values are equal",
}
"""What is not mutated (a pattern of path, or path:function), and why."""
UNNOTICED = ("_EPSILON", "_CENT", "_KEPT_", "_AS_GOOD", "_FEW", "_MOST_")
"""Bounds that only decide about rounding, the size of caches, or how much is tried, are not moved."""

NEGATED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
MOVED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.BitAnd: "|", ast.BitOr: "&"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutation:
    """One place broken in one way: `text[start:end]` of the file at `path` becomes `after`."""

    path: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str


class Places(ast.NodeVisitor):
    """Finds every mutation of one file."""

    def __init__(self, path: str, text: bytes) -> None:
        self.path, self.text = path, text
        self.found: list[Mutation] = []
        self._function: list[str] = []
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self.text[start:end].decode()

    def _add(self, node: ast.expr | ast.stmt, after: str) -> None:
        if self._function:
            start, end = self._span(node)
            before = " ".join(self._source(node).split())
            where = ".".join(self._function)
            self.found.append(Mutation(self.path, where, node.lineno, start, end, before, after))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._function.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._function.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.visit(statement)
        self._function.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self._source(node.left), self._source(node.comparators[0])
            for table in (NEGATED, MOVED):
                if table is MOVED and any(word in left + right for word in UNNOTICED):
                    continue
                if type(node.ops[0]) in table:
                    self._add(node, f"({left} {table[type(node.ops[0])]} {right})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = " or " if isinstance(node.op, ast.And) else " and "
        self._add(node, "(" + other.join(f"({self._source(v)})" for v in node.values) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._source(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = isinstance(node.left, ast.Constant | ast.JoinedStr) and not _number(node.left)
        left, right = self._source(node.left), self._source(node.right)
        rounding = right in UNNOTICED
        if type(node.op) in ARITHMETIC and not text and not rounding:
            self._add(node, f"(({left}) {ARITHMETIC[type(node.op)]} ({right}))")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._source(node).endswith('.get("cpu", 0)'):
            return  # every machine has cores
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._add(node.func, CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, repr(not node.value))
        elif isinstance(node.value, int):
            self._add(node, f"({node.value} + 1)")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node, f"({self._source(node.orelse)})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "pass")


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def mutations(room: Room) -> Iterator[Mutation]:
    """Every mutation there is, in the order of files and places."""
    for source in room.sources:
        for file in sorted((ROOT / source).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            text = file.read_bytes()
            places = Places(path, text)
            places.visit(ast.parse(text))
            for mutation in places.found:
                if not _spared(mutation):
                    yield mutation


def _spared(mutation: Mutation) -> bool:
    path = Path(mutation.path.removeprefix("src/karpenter/"))
    for pattern in SPARED:
        file, _, function = pattern.partition(":")
        if path.match(file) and function in ("", mutation.function):
            return True
    return False


def fails(tree: Path, tests: list[str], most: float = math.inf, *, plain: bool = False) -> str | None:
    """The first test that fails in `tree` ("it hangs" if they take `most` seconds of CPU), or None.

    With `plain`, plans are not looked at twice (see tests/conftest.py): that may hide a mutant.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", "--ignore=tests/scheduling/search"]

    def limited() -> None:
        if most < math.inf:
            resource.setrlimit(resource.RLIMIT_CPU, (int(most), int(most)))

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": f"{tree / 'src'}:{tree}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "KARPENTER_PLAIN": "1" if plain else "",
        },
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    if run.returncode == 0:
        return None
    for line in run.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    if run.returncode in (_NOT_RUN, _NOTHING_RUN):
        raise RuntimeError(f"pytest ran no test: {run.stdout[-500:]}{run.stderr[-500:]}")
    return "it hangs" if run.returncode < 0 else f"exit {run.returncode}"


def _cpu() -> float:
    """Seconds of CPU that the runs so far have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def relevant(tree: Path, mutation: Mutation, room: Room) -> list[str]:
    """All tests, those first that are named, or lie, most like the mutated module."""
    path = Path(mutation.path)
    named = sorted(p for p in (tree / "tests").rglob(f"test_{path.stem}.py") if "e2e" not in p.parts)
    folder = "/".join(path.parent.parts[2:])
    near = sorted(
        (p for p in (tree / "tests" / folder).glob("test_*.py") if p not in named),
        key=lambda p: (-SequenceMatcher(None, path.stem, p.stem).ratio(), p.name),
    )
    return [*(str(p.relative_to(tree)) for p in (*named, *near)), *room.tests]


def main() -> int:
    """Run as a script: see the module."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=20)
    arguments.add_argument("--only", default="", help="mutate only files whose path contains this")
    arguments.add_argument("--room", choices=sorted(ROOMS), default="scheduling")
    arguments.add_argument("--trust", action="store_true", help="do not run the tests unmutated first")
    options = arguments.parse_args()
    room = ROOMS[options.room]
    places = [m for m in mutations(room) if options.only in m.path]
    picked = random.Random(options.seed).sample(places, min(options.count, len(places)))
    print(f"{len(picked)} of {len(places)} mutations of {options.room}, seed {options.seed}", flush=True)
    lived = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Path(folder)
        for part in ("src", "tests", "benchmarks", "docs", "examples", "tools", "pyproject.toml"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, tree / part)
        if not options.trust and (whole := fails(tree, list(room.tests)) or _plainly(tree, room)):
            print(f"the tests fail without any mutation: {whole}")
            return 2
        most = 10.0 + PATIENCE * (_cpu() or _TRUSTED_SECONDS)
        for number, mutation in enumerate(picked, 1):
            lived += _try(tree, mutation, room, number, most)
    print(f"{len(picked) - lived} caught, {lived} lived")
    return 1 if lived else 0


def _plainly(tree: Path, room: Room, most: float = math.inf) -> str | None:
    """As `fails`, for the tests that are run once more on first plans as they are."""
    return fails(tree, [room.plain], most, plain=True) if room.plain else None


def _try(tree: Path, mutation: Mutation, room: Room, number: int, most: float) -> bool:
    """Whether the mutant lives; prints its row."""
    file = tree / mutation.path
    text = file.read_bytes()
    file.write_bytes(text[: mutation.start] + mutation.after.encode() + text[mutation.end :])
    began = _cpu()
    try:
        caught = fails(tree, relevant(tree, mutation, room), most) or _plainly(tree, room, most)
    finally:
        file.write_bytes(text)
    seconds = _cpu() - began
    verdict = "caught" if caught else "LIVED "
    print(f"{number:3} {verdict} {mutation.path}:{mutation.line} {mutation.function} ({seconds:.0f} s)")
    line = text.splitlines()[mutation.line - 1].decode().strip()
    if line != mutation.before:
        print(f"      in  {line[:100]}")
    print(f"      {mutation.before[:90]}  ->  {' '.join(mutation.after.split())[:90]}")
    print(f"      {caught or 'no test failed'}", flush=True)
    return caught is None


if __name__ == "__main__":
    sys.exit(main())
