"""A broken world: whatever is gone, wrong or hangs, the person gets out, and nothing strange is said on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from tests.shells.terminal import BASH, Person


def leaves(somebody: Person, before: Callable[[], object] | None = None, **env: str) -> tuple[str, str]:
    """Opens a shell, lets something happen, exits; what was said at the start and on the way out."""
    terminal = somebody.shell(HANDWASH_BANNER="full", **env)
    if before is not None:
        before()
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    return terminal.greeting, terminal.rest


WAY_OUT = "exit 4\r\nexit\r\n"


def test_uninstalled_under_an_open_shell(somebody: Person) -> None:
    assert leaves(somebody, lambda: shutil.rmtree(somebody.tree.package))[1] == WAY_OUT
    shutil.rmtree(somebody.tree.folder)
    somebody.startup(hook=f"[ -r '{somebody.tree.hook}' ] && . '{somebody.tree.hook}' || :\n")
    assert leaves(somebody) == ("", WAY_OUT)


def test_the_interpreter_is_gone(somebody: Person, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    somebody.startup(hook=somebody.tree.line(str(python)))
    assert leaves(somebody, python.unlink)[1] == WAY_OUT
    somebody.tree.behave(leave={"code": 75})
    assert leaves(somebody) == ("", WAY_OUT), "not loaded at all without its interpreter"


@pytest.mark.parametrize("code", [1, 2, 3, 70, 124, 125, 126, 127, 137, 139, 143, 255])
def test_only_one_code_denies_the_exit(somebody: Person, code: int) -> None:
    somebody.tree.behave(leave={"code": code})
    said = leaves(somebody)[1].replace("handwash: the check did not finish in time; leaving without it\r\n", "")
    assert said == WAY_OUT


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGTERM", "SIGABRT", "SIGQUIT", "SIGPIPE", "SIGALRM"])
@pytest.mark.parametrize("way", ["exit", "eof"])
def test_a_check_that_crashes_lets_go(somebody: Person, name: str, way: str) -> None:
    somebody.tree.behave(leave={"signal": int(getattr(signal, name))})
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.leave(way, 4)
    assert terminal.ends() == 4


def test_a_check_that_is_no_python_at_all(somebody: Person) -> None:
    (somebody.tree.package / "__main__.py").write_text("this is: not python\n")
    greeting, rest = leaves(somebody)
    assert "SyntaxError" in greeting
    assert "SyntaxError" in rest


def test_an_interpreter_that_is_something_else(somebody: Person, tmp_path: Path) -> None:
    for text in ("#!/nowhere/python\n", "\x7fELF junk", "#!/bin/sh\necho garbage; printf '\\033[2J'; exit 1\n"):
        python = tmp_path / "python"
        python.write_text(text)
        python.chmod(0o755)
        somebody.startup(hook=somebody.tree.line(str(python)))
        leaves(somebody)


def test_ctrl_c_gets_out_of_a_check_that_hangs(somebody: Person) -> None:
    somebody.tree.behave(leave={"hang": True})
    terminal = somebody.shell(HANDWASH_BANNER="off", HANDWASH_DEADLINE="60")
    terminal.child.sendline("exit")
    terminal.child.expect_exact("hanging")
    terminal.child.sendintr()
    terminal.prompt()
    assert terminal.status == 130


def test_thinking_longer_than_the_deadline_is_not_cut_off(somebody: Person) -> None:
    somebody.tree.behave(leave={"ask": True})
    terminal = somebody.shell(HANDWASH_BANNER="off", HANDWASH_DEADLINE="0")
    terminal.child.sendline("exit")
    terminal.child.expect_exact("stay or go?")
    start = time.monotonic()
    # TERM comes after two seconds here; the answer after it still counts.
    assert terminal.child.expect([terminal.PROMPT, "\\$ $", pexpect.TIMEOUT], timeout=3) == 2
    assert time.monotonic() - start > 2
    terminal.child.sendline("75")
    terminal.prompt()
    assert terminal.run("echo still here") == "still here\r\n"


@pytest.mark.parametrize("value", ["", "x", "2.5", "08", "1e3", "-1", "99999999999999999999", "$(touch evil)", "a[0]"])
def test_an_odd_deadline_is_no_trouble(somebody: Person, value: str) -> None:
    assert leaves(somebody, HANDWASH_DEADLINE=value)[1] == WAY_OUT
    assert somebody.tree.said() == ["leave exit"]
    assert not (somebody.home / "evil").exists()


def test_pythons_own_variables_and_files_of_the_working_directory(somebody: Person) -> None:
    for name in ("json.py", "psutil.py", "os.py", "signal.py", "sitecustomize.py", "usercustomize.py"):
        (somebody.home / name).write_text("raise SystemExit(75)\n")
    env = {"PYTHONHOME": "/nowhere", "PYTHONPATH": str(somebody.home), "PYTHONSTARTUP": "json.py", "PYTHONINSPECT": "1"}
    somebody.tree.behave(banner={"say": "the rest"})
    greeting, rest = leaves(somebody, **env)
    assert greeting.endswith("the rest\r\n")
    assert rest == WAY_OUT
    assert somebody.tree.said() == ["leave exit"]


def test_libraries_of_modules_and_conda_are_kept_away(somebody: Person) -> None:
    junk = somebody.home / "lib"
    junk.mkdir()
    for name in ("libm.so.6", "libz.so.1", "libexpat.so.1", "libpthread.so.0", "libutil.so.1"):
        (junk / name).write_text("not a library")
    greeting, rest = leaves(somebody, LD_LIBRARY_PATH=str(junk))
    assert greeting.count("\r\n") == 1
    assert rest == WAY_OUT
    env = somebody.tree.calls()[-1]["env"]
    assert isinstance(env, dict)
    assert env["LD_LIBRARY_PATH"] == ""
    assert env["HANDWASH_LD_LIBRARY_PATH"] == str(junk), "doctor still needs it"
    terminal = somebody.shell(LD_LIBRARY_PATH=str(junk), HANDWASH_BANNER="off")
    terminal.run("exit 1 2")
    assert terminal.run("echo $LD_LIBRARY_PATH ${HANDWASH_LD_LIBRARY_PATH-none}") == f"{junk} none\r\n"


@pytest.mark.parametrize("path", ["", "/nowhere", ".:bin"])
def test_an_empty_path(somebody: Person, path: str) -> None:
    somebody.startup(before=f"PATH='{path}'")
    assert leaves(somebody)[1] == WAY_OUT
    assert somebody.tree.said() == ["leave exit"]
    somebody.startup(before=f"PATH='{path}'", hook=f". '{somebody.tree.hook}'\n")
    assert leaves(somebody)[1] == WAY_OUT


def test_the_working_directory_is_gone(somebody: Person) -> None:
    gone = somebody.home / "gone"
    gone.mkdir()
    terminal = somebody.shell(HANDWASH_BANNER="off", cwd=str(gone))
    gone.rmdir()
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert terminal.rest.endswith("exit\r\n")


def test_no_descriptor_left_for_the_shell(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("ulimit -n 3")
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4


def test_no_process_left_to_fork(somebody: Person) -> None:
    """As an ordinary user at the limit of processes: bash says so, and the second attempt goes."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to become a user at that limit")
    for path in (somebody.home, somebody.tree.folder, *somebody.home.parents):
        if path.owner() == "root" and str(path).startswith("/tmp"):
            path.chmod(path.stat().st_mode | 0o755)
    become = ["setpriv", "--reuid=64999", "--regid=64999", "--clear-groups", BASH, "-i"]
    terminal = somebody.opens(become, HANDWASH_BANNER="off")
    terminal.run("ulimit -u 1")
    terminal.child.sendline("exit")
    # bash tries four times, fifteen seconds in all.
    terminal.child.expect_exact("fork: retry")
    terminal.child.sendintr()
    terminal.prompt()
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4


def test_a_home_that_cannot_be_written_and_one_that_is_full(somebody: Person) -> None:
    somebody.startup(before="cd /proc; HOME=/proc")
    assert leaves(somebody)[1] == WAY_OUT
    somebody.startup(before="HOME=/dev/full")
    assert leaves(somebody)[1] == WAY_OUT


def test_a_hook_that_cannot_be_read(somebody: Person) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root reads everything")
    hook = somebody.tree.hook
    somebody.startup(hook=f"[ -r '{hook}' ] && . '{hook}' || :\n")
    hook.unlink()
    hook.mkdir()
    terminal = somebody.shell(expect_prompt=False)
    terminal.child.expect(terminal.PROMPT)
    shutil.rmtree(hook)
    assert leaves(somebody) == ("", WAY_OUT)


def test_a_hook_cut_short(somebody: Person) -> None:
    """Half a file, as a full disk leaves it, may complain; it does not hold anybody."""
    text = somebody.tree.hook.read_text()
    for part in (3, 5, 8):
        somebody.tree.hook.write_text(text[: len(text) * part // 10])
        leaves(somebody)


def test_stderr_closed_in_the_shell(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.sendline("exec 2>&-")
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4


def test_the_file_ends_in_a_newline_and_has_no_carriage_return(somebody: Person) -> None:
    text = somebody.tree.hook.read_bytes()
    assert text.endswith(b"\n")
    assert b"\r" not in text


def test_shellcheck_is_clean(somebody: Person) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", str(somebody.tree.hook)], capture_output=True, text=True)
    assert done.stdout == ""
