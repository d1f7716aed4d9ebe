"""Runs all tests in two halves side by side: most of what needs a cluster, and the rest. They wait far more than they work.

The contract comes first, alone: the other processes of this user are part of the commands' answers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Some of those that need a cluster, so that both take as long.
WITH_CLUSTER = [f"tests/slurm/test_{name}.py" for name in ("cost", "usage", "ids", "how_often", "idle_session")]
SECOND = [*WITH_CLUSTER, "tests/shells", "tests/pbs", "tests/unit", "tests/gpu"]
CONTRACT = "tests/contract"


def main(options: list[str]) -> int:
    """The options are pytest's. The second half's words follow those of the first one."""
    pytest = [sys.executable, "-m", "pytest", *options]
    contract = subprocess.call([*pytest, CONTRACT], cwd=ROOT)
    with tempfile.TemporaryFile() as words:
        second = subprocess.Popen(
            [*pytest, "-p", "no:cacheprovider", *SECOND], cwd=ROOT, stdout=words, stderr=subprocess.STDOUT
        )
        try:
            others = [f"--ignore={folder}" for folder in (*SECOND, CONTRACT)]
            first = subprocess.call([*pytest, *others], cwd=ROOT)
        finally:
            # After ^C too: the terminal has told both.
            code = second.wait()
            words.seek(0)
            sys.stdout.buffer.write(words.read())
            sys.stdout.flush()
    return contract or first or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
