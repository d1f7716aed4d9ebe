"""What safe-srun costs over srun, in bare interpreter starts (`python3 -I -S -c pass`) of the same interpreter, in one run.

    python3 tests/testbed/cluster.py run -- /usr/bin/python3 benchmarks/safe_srun_cost.py [--rounds 30]

The three are run in turn, so that a machine that slows down slows all. `safe-srun true`, the confirmation by squeue included,
is to take at most 6 bare starts longer than `srun true`; exit code 1 if it takes more.
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

WRAPPER = Path(__file__).resolve().parents[1] / "wrappers" / "safe-srun"
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
LIMIT = 6.0


def seconds(argv: list[str], env: dict[str, str]) -> float:
    before = time.perf_counter()
    subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    kinds = {
        "bare start": BARE,
        "srun true": ["srun", "true"],
        "safe-srun true": [str(WRAPPER), "true"],
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as state:
        # The wrapper of a checkout takes the first python3 on the path.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "XDG_STATE_HOME": state, "PATH": path}
        for number in range(options.rounds + 2):
            for name, argv in kinds.items():
                spent = seconds(argv, env)
                if number >= 2:  # two rounds to warm the caches
                    times[name].append(spent)
    for name, spent in times.items():
        print(f"{name:15} {statistics.median(spent) * 1000:7.1f} ms")
    bare = statistics.median(times["bare start"])
    over = [safe - plain for safe, plain in zip(times["safe-srun true"], times["srun true"])]
    ratio = statistics.median(over) / bare
    print(f"safe-srun takes {ratio:.2f} bare starts longer than srun (limit {LIMIT:g})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
