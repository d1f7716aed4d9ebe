"""handwash is upgraded or removed while a session runs: what the session needs for its end has been loaded by then."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until

from handwash.teardown import tree as descent

ROOT = Path(__file__).resolve().parents[2]
# Seconds that no other run of these tests sleeps.
LEFT, MAIN, BYSTANDER = (f"109.{os.getpid()}{number}" for number in range(6, 9))


def sleepers(seconds: str) -> list[int]:
    return [pid for pid in processes.pids() if seconds in processes.arguments(pid)[1:2] and identity(pid)]


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("killed", ["nobody", "inner"])
def test_all_is_ended_without_a_file_of_ours(tmp_path: Path, killed: str, loads: bool) -> None:
    """`loads`: what ends the rest can be loaded, by both supervisors; else that is left to the guardian."""
    tree = tmp_path / "tree"
    for name in ("src/handwash", "wrappers"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    loaded = tmp_path / "loaded"
    with (tree / "src/handwash/node/sweep.py").open("a") as file:
        file.write(f"\nwith open({str(loaded)!r}, 'a') as file:\n    file.write('x')\n")
        if not loads:
            file.write("raise RuntimeError('broken on purpose')\n")
    bystander = subprocess.Popen(["sleep", BYSTANDER])
    script = f"env -i setsid -f sleep {LEFT}; exec sleep {MAIN}"
    session = subprocess.Popen(
        [tree / "wrappers/safe-srun", "--local", "bash", "-c", script], cwd="/", stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "HANDWASH_GRACE": "0.5"},
    )  # fmt: skip
    try:
        assert wait_until(lambda: loaded.exists() and loaded.read_text() == "xx", 20)
        shutil.rmtree(tree)
        (main,) = sleepers(MAIN)
        if killed == "inner":
            os.kill(descent.ancestors(main)[0], signal.SIGKILL)
        else:
            os.kill(main, signal.SIGTERM)
        _out, errors = session.communicate(timeout=20)
        assert session.returncode == (-signal.SIGKILL if killed == "inner" else -signal.SIGTERM)
        assert sleepers(LEFT) == sleepers(MAIN) == []
        assert "Traceback" not in errors
        other = identity(bystander.pid)
        assert other is not None and running(other)
    finally:
        bystander.kill()
        bystander.wait()
        session.kill()
        session.wait()
        assert not processes.end_all(lambda: sleepers(LEFT) + sleepers(MAIN))
