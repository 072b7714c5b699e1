"""Time and chance are handed in: only four modules may read a clock, sleep or draw."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "karpenter"
PROVIDERS = {"base/clock.py", "base/virtualtime.py", "base/draws.py", "base/randomness.py"}
BANNED_MODULES = {"time", "random"}  # `secrets` makes tokens: those must not follow from a seed
BANNED_NAMES = {
    "asyncio.sleep",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "numpy.random",
    "np.random",
}


def offences(source: str) -> list[str]:
    """Return what in `source` reads time or chance directly, with line numbers."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in BANNED_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in BANNED_MODULES:
                names = [node.module]
            else:
                full = (f"{node.module}.{alias.name}" for alias in node.names)
                names = [name for name in full if name in BANNED_NAMES]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in BANNED_NAMES:
            names = [ast.unparse(node)]
        found += [f"line {getattr(node, 'lineno', 0)}: {name}" for name in names]
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from random import choice",
        "import asyncio\nasync def f(): await asyncio.sleep(1)",
        "from asyncio import sleep",
        "from uuid import uuid4",
        "import os\nos.urandom(4)",
        "from datetime import UTC, datetime\ndatetime.now(UTC)",
        "import datetime\ndatetime.datetime.utcnow()",
        "import numpy as np\nnp.random.rand()",
    ],
)
def test_direct_use_is_seen(source: str) -> None:
    """The check itself notices every form of direct use."""
    assert offences(source)


def test_harmless_names_are_let_through() -> None:
    """Words that merely look alike (a module `clock.time`, `asyncio.timeout`) are no offence."""
    assert not offences("import asyncio\nfrom karpenter.base.randomness import Random\nasyncio.timeout(1)")


def test_no_module_reads_time_or_chance_itself() -> None:
    """Everything but the four providers takes a Clock and a Random."""
    found = {
        name: problems
        for path in sorted(SOURCE.rglob("*.py"))
        if (name := path.relative_to(SOURCE).as_posix()) not in PROVIDERS
        and (problems := offences(path.read_text("utf-8")))
    }
    assert found == {}
