"""What srun starts under a task becomes the command, whatever is wrong with handwash."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import handwash
from handwash.node import command as program
from handwash.node.wire import Orders

PACKAGE = Path(handwash.__file__).parent


def run(package: Path, orders: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", package / "node" / "task.py", orders, *command], capture_output=True, text=True
    )


@pytest.mark.parametrize("orders", ["", "x", "0\tid-1\t2.5\t\t1"])
def test_orders_that_cannot_be_read(orders: str) -> None:
    """safe-srun may have waited in the queue while another version was put in its place."""
    done = run(PACKAGE, orders, "sh", "-c", "echo here; exit 5")
    assert done.stderr == (
        "handwash: ValueError: handwash was replaced after safe-srun had started; running without supervision\n"
    )
    assert (done.returncode, done.stdout) == (5, "here\n")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_nowhere_to_say_it(redirection: str) -> None:
    words = [sys.executable, "-I", "-S", str(PACKAGE / "node" / "task.py"), "x", "sh", "-c", "echo here; exit 5"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", *words], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "here\n")
    missing = [*words[:5], "no-such-program"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", *missing], capture_output=True, text=True)
    assert done.returncode == 2


def test_no_signal_is_ignored_that_was_not() -> None:
    done = run(PACKAGE, "x", "grep", "SigIgn", "/proc/self/status")
    # By its path: then subprocess spawns both in the same way (3.13), in which the C library's own signals are ignored.
    plain = subprocess.run([shutil.which("grep") or "", "SigIgn", "/proc/self/status"], capture_output=True, text=True)
    assert done.stdout == plain.stdout


@pytest.mark.parametrize("status", [signal.SIGTERM, signal.SIGKILL, 32, 7 << 8])
@pytest.mark.parametrize("missing", [True, False])
def test_an_end_is_shown_as_it_was(status: int, missing: bool) -> None:
    """`missing`: Python was replaced while the session ran, and a module of its own cannot be loaded any more."""
    script = "import sys; from handwash.node import kernel; kernel.exit_like(int(sys.argv[1]))"
    if missing:
        script = f"import sys; sys.modules['resource'] = None; {script}"
    done = subprocess.run([sys.executable, "-c", script, str(int(status))], capture_output=True, text=True)
    assert done.returncode == {signal.SIGTERM: -15, signal.SIGKILL: -9, 32: 128 + 32, 7 << 8: 7}[status]
    assert done.stderr == ""


@pytest.mark.parametrize("name", [path.name for path in (PACKAGE / "node").glob("*.py") if path.name != "task.py"])
def test_a_file_that_is_broken(tmp_path: Path, name: str) -> None:
    package = tmp_path / "handwash"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "node" / name).write_text("raise RuntimeError('broken on purpose')\n")
    done = run(package, Orders("id-1", 2.5, "", {}).pack(), "sh", "-c", "echo here; exit 5")
    assert (done.returncode, done.stdout) == (5, "here\n")
    assert done.stderr in ("", "handwash: RuntimeError: broken on purpose; running without supervision\n")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("/bin/sh", "/bin/sh"),
        ("sh", "/bin/sh"),
        ("./x", "HERE/./x"),
        ("../x", "HERE/../x"),
        ("nosuch", "nosuch"),
        ("a/b", "a/b"),
        ("", ""),
        ("\0", "\0"),
    ],
)
def test_where_a_command_is_looked_for(
    command: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program.look_up(command, "::/nonexistent:/bin/") == found.replace("HERE", str(tmp_path))
