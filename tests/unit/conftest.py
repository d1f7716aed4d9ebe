"""What every unit test starts from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handwash import messages


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """English, whatever language a test before has asked for in its own environment."""
    messages.choose("en")
    yield
    messages.choose("en")
