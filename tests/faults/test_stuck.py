"""A process that hangs in the kernel: safe-srun's receipt and `handwash sessions` name it, and say what to send to whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.testbed import outside
from tests.testbed.processes import wait_until

MAIN = Path(__file__).resolve().parents[2] / "src" / "handwash" / "__main__.py"
HANDWASH = [sys.executable, "-I", "-S", str(MAIN)]


@pytest.mark.skipif(not outside.can_move(), reason="no freezer of cgroup v1")
def test_it_is_named(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": str(tmp_path), "LANG": "C.UTF-8", "HANDWASH_GRACE": "0.2"}
    sleeper = "/bin/sleep 300 </dev/null >/dev/null 2>&1"
    script = f'trap "" TERM; {sleeper} & echo $! >"$HOME/new"; /bin/mv "$HOME/new" "$HOME/pid"; read line; exit 5'
    with outside.Cgroup(f"handwash-stuck-{os.getpid()}") as cgroup:
        child = subprocess.Popen(
            [*HANDWASH, "safe-srun", "--local", "/bin/sh", "-c", script],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert wait_until((tmp_path / "pid").exists, 20)
            pid = int((tmp_path / "pid").read_text())
            assert wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", 10)
            cgroup.move(pid)
            cgroup.freeze()
            _out, said = child.communicate("\n", timeout=60)
        finally:
            cgroup.thaw()
            child.kill()
            child.wait()
    assert child.returncode == 5
    receipt, heading, row = said.splitlines()
    assert f"could not be ended: {pid} (it hangs in the kernel and cannot be killed; tell the administrator" in receipt
    assert "administrator" in heading and f"process {pid} (sleep) of" in row and "in state D, uninterruptible" in row
    done = subprocess.run([*HANDWASH, "sessions"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"{pid} (it hangs in the kernel" in done.stdout and f"process {pid} (sleep) of" in done.stdout
