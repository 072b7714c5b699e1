"""The pages of docs/reference that are made from the code are up to date."""

from pathlib import Path

import pytest
from tools.reference import FOLDER, pages

MADE = pages()


@pytest.mark.parametrize("name", sorted(MADE))
def test_reference_pages_say_what_the_code_says(name: str) -> None:
    """`python tools/reference.py` writes them."""
    assert (Path(FOLDER) / name).read_text() == MADE[name]
