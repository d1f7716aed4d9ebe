"""Runs all tests in two halves side by side: what needs a cluster, and the rest. They wait far more than they work."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_CLUSTER = ["tests/shells", "tests/unit", "tests/gpu"]


def main(options: list[str]) -> int:
    """The options are pytest's. The second half's words follow those of the first one."""
    pytest = [sys.executable, "-m", "pytest", *options]
    with tempfile.TemporaryFile() as words:
        second = subprocess.Popen(
            [*pytest, "-p", "no:cacheprovider", *WITHOUT_CLUSTER], cwd=ROOT, stdout=words, stderr=subprocess.STDOUT
        )
        try:
            first = subprocess.call([*pytest, *(f"--ignore={folder}" for folder in WITHOUT_CLUSTER)], cwd=ROOT)
        finally:
            # After ^C too: the terminal has told both.
            code = second.wait()
            words.seek(0)
            sys.stdout.buffer.write(words.read())
            sys.stdout.flush()
    return first or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
