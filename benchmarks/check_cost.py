"""What `handwash check` costs, in bare interpreter starts (`python3 -I -S -c pass`) of the same interpreter, in one run.

    python benchmarks/check_cost.py [--rounds 40]

The two are run in turn, so that a machine that slows down slows both. In a clean session the ratio is to stay under 6.
Run it inside a cluster's environment (`python3 tests/testbed/cluster.py run -- …`) for the cost with a real squeue.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAIN = Path(__file__).resolve().parents[1] / "src" / "handwash" / "__main__.py"
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
LIMIT = 6.0


def seconds(argv: list[str], env: dict[str, str]) -> tuple[float, int]:
    before = time.perf_counter()
    code = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode
    return time.perf_counter() - before, code


def measure(argv: list[str], rounds: int, env: dict[str, str]) -> tuple[float, float, float, set[int]]:
    """Medians of the bare start and of `argv`, the median of their ratio pair by pair, and the exit codes seen."""
    bare, mine, ratios, codes = [], [], [], set()
    for number in range(rounds + 2):
        first, _code = seconds(BARE, env)
        second, code = seconds(argv, env)
        if number >= 2:  # two rounds to warm the caches
            bare.append(first)
            mine.append(second)
            ratios.append(second / first)
            codes.add(code)
    return statistics.median(bare), statistics.median(mine), statistics.median(ratios), codes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "XDG_STATE_HOME": state}
        for name, argv in (
            ("handwash check", [sys.executable, "-I", "-S", str(MAIN), "check"]),
            ("handwash leave exit", [sys.executable, "-I", "-S", str(MAIN), "leave", "exit"]),
        ):
            bare, mine, ratio, codes = measure(argv, options.rounds, env)
            slow |= ratio > LIMIT
            print(
                f"{name:20} {mine * 1000:6.1f} ms = {ratio:.1f} bare starts of {bare * 1000:.1f} ms"
                f" (limit {LIMIT:g}, exit codes {sorted(codes)})"
            )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
