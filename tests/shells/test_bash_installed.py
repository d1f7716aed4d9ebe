"""The real thing: handwash's own commands put the hook in, greet, ask and take it out again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.shells.terminal import REPO, Person

MAIN = [sys.executable, "-I", "-S", str(REPO / "src" / "handwash" / "__main__.py")]


def handwash(somebody: Person, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN, *words], env={**somebody.env, **env}, cwd=somebody.home, capture_output=True, text=True
    )


def test_install_greets_at_the_next_login_and_uninstall_does_not(somebody: Person) -> None:
    somebody.startup(hook="")
    before = {name: (somebody.home / name).read_bytes() for name in (".bashrc", ".bash_profile")}
    done = handwash(somebody, "install", "--shell", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    terminal = somebody.shell("-l")
    lines = terminal.greeting.split("\r\n")
    assert lines[0].startswith("handwash: ")
    assert len(lines) > 2, "the banner's own lines follow"
    assert "Traceback" not in terminal.greeting
    terminal.child.sendline("false")
    terminal.prompt()
    terminal.child.sendline("logout")
    # Were something of another test left over here, this would be the question.
    terminal.child.sendline("logout")
    assert terminal.ends() in (0, 1)
    assert "Traceback" not in terminal.rest
    assert handwash(somebody, "uninstall").returncode == 0
    assert somebody.shell("-l").greeting == ""
    assert {name: (somebody.home / name).read_bytes() for name in before} == before


def test_init_evaluated_in_the_start_up_file(somebody: Person) -> None:
    command = " ".join(MAIN)
    somebody.startup(hook=f'eval "$({command} init bash)"\n', after="after=here\n")
    terminal = somebody.shell()
    assert terminal.greeting.startswith("handwash: ")
    assert terminal.run("echo $after; type -t exit; declare -F __handwash_init").split() == ["here", "function"]
    terminal.run("builtin trap - EXIT")
    # Where a guard turns the hook away, the rest of the start-up file is still read.
    assert somebody.shell(HANDWASH_DISABLE="1").run("echo $after; type -t exit").split() == ["here", "builtin"]


def test_install_finds_the_shell_it_is_started_from(somebody: Person) -> None:
    if shutil.which("ps") is None:
        pytest.skip("shellingham needs ps or /proc")
    somebody.startup(hook="")
    terminal = somebody.shell(SHELL="/usr/bin/zsh")
    said = terminal.run(" ".join(MAIN) + " install --dry-run")
    assert terminal.status == 0
    assert "+# >>> handwash >>>" in said
    assert "handwash.bash" in said


def test_leave_in_a_quiet_place_does_not_ask(somebody: Person, tmp_path: Path) -> None:
    """In namespaces of its own, where nothing else of this user can be left over."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no PID namespaces here")
    somebody.startup(hook=f"__handwash_python='{sys.executable}'; . '{REPO}/shellhooks/handwash.bash'\n")
    for way, status in (("exit", 7), ("eof", 3)):
        terminal = somebody.opens(["unshare", "--pid", "--fork", "--mount-proc", shutil.which("bash") or "bash", "-i"])
        start = time.monotonic()
        terminal.leave(way, status)
        assert terminal.ends() == status
        assert time.monotonic() - start < 10
        assert "leave as it is" not in terminal.rest
        assert "Traceback" not in terminal.rest
