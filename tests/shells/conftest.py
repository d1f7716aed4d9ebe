"""A person with a home, an installation of the hook, and terminals that are closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, Person, person


@pytest.fixture
def somebody(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Person]:
    """Whose shell is bash, or the one that `parametrize("somebody", ["zsh", ...], indirect=True)` names."""
    kind = KINDS[getattr(request, "param", "bash")]
    if not kind.present:
        pytest.skip(f"{kind.name} is not installed")
    with person(tmp_path, kind) as one:
        yield one
