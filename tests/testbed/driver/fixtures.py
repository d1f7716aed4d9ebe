"""The fixture `fake_driver`, to be imported by a conftest.py."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed.driver.build import compiler
from tests.testbed.driver.fake import FakeDriver


@pytest.fixture
def fake_driver() -> Iterator[FakeDriver]:
    """A fake driver with no GPU yet, in a folder that every user can read (pytest's own is the test's user's alone)."""
    if compiler() is None:
        pytest.skip("no C compiler to build the fake driver with")
    with tempfile.TemporaryDirectory(prefix="handwash-driver-") as folder:
        Path(folder).chmod(0o755)
        yield FakeDriver(folder)
