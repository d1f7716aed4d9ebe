"""install and uninstall, by handwash's own commands: each shell's next start is greeted, and afterwards every byte is back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, REPO, Person, Terminal

EVERY = pytest.mark.parametrize("somebody", list(KINDS), indirect=True)
MAIN = [sys.executable, "-I", "-S", str(REPO / "src" / "handwash" / "__main__.py")]
PYTHON = "/usr/bin/python3"


def handwash(somebody: Person, *words: str, main: list[str] = MAIN) -> str:
    env = {**somebody.env, "HANDWASH_LANG": "en"}
    done = subprocess.run([*main, *words], env=env, cwd=somebody.home, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def files(home: Path) -> dict[str, bytes]:
    """What install may have touched: not the backups, and not what the shells keep for themselves."""
    found = (path for path in home.rglob("*") if path.is_file() and not path.name.endswith(".handwash-backup"))
    kept = ((str(path.relative_to(home)), path.read_bytes()) for path in found)
    return {
        name: content
        for name, content in kept
        if not name.startswith((".local", ".config/fish/fish_variables", ".sh_history"))
    }


def goes(terminal: Terminal) -> None:
    terminal.child.sendline("exit")
    terminal.ends()


@EVERY
def test_the_next_shell_is_greeted_and_after_uninstall_it_is_not(somebody: Person) -> None:
    somebody.startup(hook="")
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    before = files(somebody.home)
    name = somebody.kind.name
    handwash(somebody, "install", "--shell", name)
    for argv in (somebody.kind.argv(), somebody.kind.login):
        terminal = somebody.opens(argv)
        assert terminal.greeting.count("handwash: ") == 1, argv
        goes(terminal)
    handwash(somebody, "uninstall", "--shell", name)
    assert files(somebody.home) == before
    terminal = somebody.opens(somebody.kind.login)
    assert "handwash" not in terminal.greeting
    goes(terminal)


@EVERY
def test_this_shell_has_the_hook_by_what_install_says(somebody: Person) -> None:
    """The line that `install` names, typed, and what `init` prints, evaluated."""
    somebody.startup(hook="")
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    terminal = somebody.shell()
    said = handwash(somebody, "install", "--shell", somebody.kind.name)
    command = said.partition("type: ")[2].splitlines()[0]
    assert terminal.run(command).count("handwash: ") == 1
    goes(terminal)
    handwash(somebody, "uninstall")
    words = " ".join([*MAIN, "init", somebody.kind.name])
    # In `| source` fish's input would be the pipe, and no person's.
    form = {"fish": f"eval ({words})", "tcsh": f"eval `{words}`"}.get(somebody.kind.name, f'eval "$({words})"')
    terminal = somebody.shell()
    assert terminal.run(form).count("handwash: ") == 1
    goes(terminal)


@pytest.mark.parametrize("somebody", ["zsh", "fish", "tcsh", "ksh", "mksh", "dash"], indirect=True)
def test_install_finds_the_shell_it_is_typed_in(somebody: Person) -> None:
    somebody.startup(hook="")
    terminal = somebody.shell(SHELL="/bin/nosuchshell")
    said = terminal.run(" ".join(MAIN) + " install --dry-run")
    assert terminal.status == 0
    assert somebody.kind.hook in said
    goes(terminal)


class Everywhere:
    """A machine whose /etc is a copy, seen from inside only, with an installation that everybody can read."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="handwash-site-"))
        self.folder.chmod(0o755)
        shutil.copytree(REPO / "shellhooks", self.folder / "shellhooks")
        shutil.copytree(REPO / "src" / "handwash", self.folder / "src" / "handwash")
        subprocess.run(["cp", "-a", "/etc", str(self.folder / "etc")], check=True)
        inside = f"mount --bind {self.folder}/etc /etc && echo ready && exec cat"
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def within(self, *argv: str) -> list[str]:
        return ["nsenter", "-t", str(self.process.pid), "-m", *argv]

    def etc(self) -> dict[str, tuple[int, bytes]]:
        found = (path for path in (self.folder / "etc").rglob("*") if path.is_file() and not path.is_symlink())
        return {
            str(path.relative_to(self.folder)): (path.stat().st_mode, path.read_bytes())
            for path in found
            if not path.name.endswith(".handwash-backup")
        }

    def close(self) -> None:
        self.process.communicate()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def everywhere() -> Iterator[Everywhere]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("needs root and mount namespaces, for an /etc of its own")
    one = Everywhere()
    try:
        yield one
    finally:
        one.close()


# Debian's dash and busybox ash read nothing of /etc but /etc/profile; mksh has its own file read by that of new accounts.
LOGIN_ONLY = ("mksh", "dash", "ash")


@EVERY
def test_for_everybody(somebody: Person, everywhere: Everywhere) -> None:
    """A person whose start-up file says nothing of handwash."""
    somebody.startup(hook="")
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    before = everywhere.etc()
    main = everywhere.within(PYTHON, "-I", "-S", f"{everywhere.folder}/src/handwash/__main__.py")
    said = handwash(somebody, "install", "--system", main=main)
    changed = {name for name, content in everywhere.etc().items() if before.get(name) != content}
    assert changed
    for name in changed:
        assert f"/{name} is " in said
    starts = [somebody.kind.login] if somebody.kind.name in LOGIN_ONLY else [somebody.kind.argv(), somebody.kind.login]
    try:
        for argv in starts:
            # /etc/zsh/zshrc and /etc/csh.cshrc come before the person's own file, and with it before the prompt.
            terminal = somebody.opens(everywhere.within(*argv))
            assert terminal.greeting.count("handwash: ") == 1, argv
            goes(terminal)
    finally:
        handwash(somebody, "uninstall", "--system", main=main)
    assert everywhere.etc() == before
