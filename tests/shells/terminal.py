"""A person at a terminal: a real shell under a pseudo-terminal, in a home of its own, with the hook in its start-up file.

`Tree` is an installation whose commands are a stand-in: it writes down how it was called and answers as the test wants,
so that the hook is tested by itself. `Terminal` is the person.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pexpect

REPO = Path(__file__).resolve().parents[2]
HOOK = REPO / "shellhooks" / "handwash.bash"
BASH = shutil.which("bash") or "/bin/bash"
LIMIT = 20.0

# The stand-in for handwash/__main__.py. Behaviour by command word: {"code": N}, {"ask": true} (the line typed is the exit
# code), {"hang": true} (thirty seconds at most), {"signal": N}, {"say": "text"}.
STAND_IN = r"""
import json, os, signal, sys, time
tree = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(tree, "behaviour.json")) as file:
    behaviour = json.load(file).get(sys.argv[1] if len(sys.argv) > 1 else "", {})
call = {"argv": sys.argv[1:], "flags": [sys.flags.isolated, sys.flags.no_site], "cwd": os.getcwd(),
        "ttys": [os.isatty(n) for n in range(3)], "env": dict(os.environ), "foreground": None}
try:
    call["foreground"] = os.tcgetpgrp(2) == os.getpgrp()
except OSError:
    pass
with open(os.path.join(tree, "calls"), "a") as log:
    log.write(json.dumps(call) + "\n")
if "say" in behaviour:
    print(behaviour["say"], flush=True)
if "signal" in behaviour:
    signal.signal(behaviour["signal"], signal.SIG_DFL)
    os.kill(os.getpid(), behaviour["signal"])
if behaviour.get("hang"):
    print("hanging", flush=True)
    time.sleep(30)
if behaviour.get("ask"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print("stay or go?", flush=True)
    sys.exit(int(sys.stdin.readline() or 0))
sys.exit(behaviour.get("code", 0))
"""


def until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """Waits for a condition, and fails with `what` when it does not come true."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"waited {limit} s: {what}"
        time.sleep(0.02)


class Tree:
    """An installation in a folder: the hook file, and the stand-in where it looks for the package."""

    def __init__(self, folder: Path, wheel: bool = False) -> None:
        self.folder = folder
        self.package = folder if wheel else folder / "src" / "handwash"
        self.hook = folder / "shellhooks" / "handwash.bash"
        self.package.mkdir(parents=True)
        self.hook.parent.mkdir()
        shutil.copy(HOOK, self.hook)
        (self.package / "__main__.py").write_text(STAND_IN)
        self.behave()

    def behave(self, **commands: dict[str, object]) -> None:
        (self.package / "behaviour.json").write_text(json.dumps(commands))

    def calls(self) -> list[dict[str, object]]:
        log = self.package / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def said(self) -> list[str]:
        """The words of each call so far, without the banner's."""
        words = [" ".join(call["argv"]) for call in self.calls()]  # type: ignore[arg-type]
        return [word for word in words if word != "banner"]

    def line(self, python: str = sys.executable) -> str:
        """What a start-up file has."""
        return f"__handwash_python='{python}'; . '{self.hook}'\n"


class Terminal:
    """A shell under a pseudo-terminal whose prompt shows the last status."""

    PROMPT = re.compile(r"\[(\d+)\]> $")

    def __init__(self, argv: list[str], env: Mapping[str, str], cwd: str | None = None, expect_prompt: bool = True):
        self.child = pexpect.spawn(
            argv[0], argv[1:], env=dict(env), cwd=cwd, encoding="utf-8", timeout=LIMIT, dimensions=(40, 250)
        )
        self.child.delaybeforesend = None
        self.child.delayafterclose = 0
        self.child.ptyproc.delayafterclose = 0  # type: ignore[union-attr]
        self.child.ptyproc.delayafterterminate = 0.01  # type: ignore[union-attr]
        self.greeting = ""
        self.status: int | None = None
        if expect_prompt:
            self.greeting = self.prompt()

    @property
    def pid(self) -> int:
        return int(self.child.pid)

    def prompt(self) -> str:
        """Waits for the prompt; the output before it."""
        self.child.expect(self.PROMPT)
        self.status = int(self.child.match.group(1))
        return str(self.child.before)

    def run(self, line: str) -> str:
        """Types a line; its output, without the line itself."""
        self.child.sendline(line)
        return self.prompt().partition("\r\n")[2]

    def leave(self, how: str, status: int) -> None:
        """Goes, with that status: `exit` by the command, `eof` by Ctrl-D at the next prompt."""
        if how == "exit":
            self.child.sendline(f"exit {status}")
            return
        # Typed ahead, the Ctrl-D would be the running command's.
        self.run(f"(exit {status})")
        self.child.sendeof()

    def ends(self) -> int:
        """Waits until the shell has ended; its status, a signal as 128+n."""
        self.rest = str(self.child.read())
        self.child.wait()
        if self.child.signalstatus is not None:
            return 128 + int(self.child.signalstatus)
        return int(self.child.exitstatus)

    def hang_up(self) -> None:
        """Closes the terminal, as a lost connection does, and waits until the shell has noticed."""
        os.close(self.child.child_fd)
        until(self._ended, "the shell did not end with its terminal")

    def _ended(self) -> bool:
        pid, _status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.child.ptyproc.terminated = True  # type: ignore[union-attr]
            self.child.ptyproc.closed = True  # type: ignore[union-attr]
            self.child.closed = True
        return bool(pid)

    def close(self) -> None:
        if self.child.closed:
            return
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.close(force=True)


class Person:
    """Somebody with a home folder, whose shells are started clean: nothing of the test's own environment gets in."""

    def __init__(self, home: Path, tree: Tree) -> None:
        self.home = home
        self.tree = tree
        home.mkdir(exist_ok=True)
        (home / ".inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\nset enable-meta-key off\n")
        self.env: dict[str, str] = {
            "HOME": str(home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
            "SHELL": BASH,
            "INPUTRC": str(home / ".inputrc"),
        }
        self.terminals: list[Terminal] = []
        self.startup()

    def startup(self, before: str = "", after: str = "", hook: str | None = None) -> None:
        """Writes .bashrc: a prompt that shows the status, `before`, the hook, `after`."""
        line = self.tree.line() if hook is None else hook
        (self.home / ".bashrc").write_text(f"PS1='[$?]> '\nunset HISTFILE\n{before}\n{line}{after}\n")
        (self.home / ".bash_profile").write_text(". ~/.bashrc\n")

    def shell(self, *options: str, expect_prompt: bool = True, cwd: str | None = None, **env: str) -> Terminal:
        """Opens a terminal with an interactive bash in it."""
        argv = [BASH, *options] if options else [BASH, "-i"]
        return self.opens(argv, expect_prompt=expect_prompt, cwd=cwd, **env)

    def opens(self, argv: list[str], expect_prompt: bool = True, cwd: str | None = None, **env: str) -> Terminal:
        terminal = Terminal(argv, {**self.env, **env}, cwd=cwd or str(self.home), expect_prompt=expect_prompt)
        self.terminals.append(terminal)
        return terminal

    def leaves(self) -> None:
        for terminal in self.terminals:
            terminal.close()


@contextmanager
def person(folder: Path) -> Iterator[Person]:
    somebody = Person(folder / "home", Tree(folder / "tree"))
    try:
        yield somebody
    finally:
        somebody.leaves()
