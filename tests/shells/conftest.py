"""A person with a home, an installation of the hook, and terminals that are closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shells.terminal import BASH, Person, person


@pytest.fixture
def somebody(tmp_path: Path) -> Iterator[Person]:
    if not Path(BASH).exists():
        pytest.skip("bash is not installed")
    with person(tmp_path) as one:
        yield one
