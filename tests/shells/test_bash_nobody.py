"""Where no person sits: the same bytes come out with the hook in .bashrc and without it."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest
from tests.shells.terminal import BASH, Person


def same(somebody: Person, run: Callable[[], object], *, silent: bool = True) -> object:
    """Runs without the hook, with it, and compares; handwash must not have been called either."""
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append(run())
    assert outcomes[0] == outcomes[1]
    if silent:
        assert somebody.tree.calls() == []
    return outcomes[1]


def piped(somebody: Person, argv: list[str], given: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
    """Runs a program without a terminal."""
    done = subprocess.run(
        argv, input=given, capture_output=True, env={**somebody.env, **env}, cwd=somebody.home, start_new_session=True
    )
    return done.returncode, done.stdout, done.stderr


def on_terminal(somebody: Person, argv: list[str], **env: str) -> tuple[int, str]:
    """Runs a program to its end on a terminal; its status and what was shown."""
    terminal = somebody.opens(argv, expect_prompt=False, **env)
    return terminal.ends(), terminal.rest


@pytest.mark.parametrize("options", ["-c", "-lc", "-ic", "-lic", "-ilc"])
@pytest.mark.parametrize("command", ["env -u _", "exit 7", "false; exit", "printf 'a\\0b'", "trap -p; declare -F"])
def test_bash_c_on_a_terminal_and_without(somebody: Person, options: str, command: str) -> None:
    same(somebody, lambda: on_terminal(somebody, [BASH, options, command]))
    # Without a terminal bash names the process group that it cannot have.
    same(somebody, lambda: re.sub(rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, options, command])))


def test_vs_code_resolves_the_environment(somebody: Person) -> None:
    env = {"VSCODE_RESOLVING_ENVIRONMENT": "1", "ELECTRON_RUN_AS_NODE": "1"}
    before = time.monotonic()
    same(
        somebody,
        lambda: re.sub(
            rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, "-ilc", "echo mark; env -u _; echo mark"], **env)
        ),
    )
    assert time.monotonic() - before < 10
    same(somebody, lambda: on_terminal(somebody, [BASH, "-ilc", "env -u _"], **env))
    # Older releases type into an interactive shell instead.
    terminal = somebody.shell("-il", **env)
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


def test_a_shell_fed_through_a_pipe(somebody: Person) -> None:
    words = b"echo on; trap -p; declare -F; false; exit\n"
    for options in ([], ["-l"], ["-s"], ["-s", "a", "b"]):
        assert same(somebody, lambda options=options: piped(somebody, [BASH, *options], words))[0] == 1  # type: ignore[index, misc]
    same(somebody, lambda: re.sub(rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, "-i"], words)))


def test_stderr_or_stdin_is_no_terminal(somebody: Person) -> None:
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"echo 'trap -p; exit 3' | {BASH} -i 2>/dev/null"]))
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"{BASH} -i 2>/dev/null <<<'' 3<&0 || :"]))
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"echo 'declare -F' | {BASH} -i 2>&1 | cat"]))


def test_a_dumb_terminal(somebody: Person) -> None:
    terminal = somebody.shell(TERM="dumb")
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


def test_cron_like_and_bash_env(somebody: Person) -> None:
    (somebody.home / "script").write_text("#!/bin/bash\necho on; trap -p\nfalse\nexit\n")
    rc = str(somebody.home / ".bashrc")
    same(somebody, lambda: piped(somebody, ["/bin/sh", "-c", f"{BASH} ./script"], TERM=""))
    same(somebody, lambda: piped(somebody, [BASH, "./script"], BASH_ENV=rc))
    same(somebody, lambda: on_terminal(somebody, [BASH, "./script"], BASH_ENV=rc))
    same(somebody, lambda: on_terminal(somebody, [BASH, "-i", "./script"]))
    (somebody.home / "script").chmod(0o755)
    (somebody.home / "script").write_text(f"#!{BASH} -i\necho on; trap -p; declare -F\nfalse\nexit\n")
    same(somebody, lambda: on_terminal(somebody, ["./script", "a", "b"]))


@pytest.mark.parametrize("options", ["-i -o vi", "-iO extglob", "--rcfile .bashrc -i", "-is word", "--noprofile -i --"])
def test_options_and_their_words_are_no_script(somebody: Person, options: str) -> None:
    terminal = somebody.shell(*options.split(), HANDWASH_BANNER="off")
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


def test_script_for_a_person_is_a_person(somebody: Person) -> None:
    if shutil.which("script") is None:
        pytest.skip("script is not installed")
    terminal = somebody.opens(["script", "-q", "/dev/null"])
    assert "handwash: " in terminal.greeting
    terminal.child.sendline("exit 5")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]
