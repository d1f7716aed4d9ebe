"""The fake driver, for the tests of this folder."""

from __future__ import annotations

from tests.testbed.driver.fixtures import fake_driver

__all__ = ["fake_driver"]
