"""What every test may use. The real parts (a Slurm cluster, a driver library, shells) live in tests/testbed."""

from __future__ import annotations

pytest_plugins = [
    "tests.testbed.fixtures",
    "tests.testbed.driver.fixtures",
    "tests.testbed.pbs",
    "tests.testbed.pbs_world",
    "tests.testbed.no_skips",
]
