"""A person at a terminal: a real shell under a pseudo-terminal, in a home of its own, with the hook in its start-up file.

`Tree` is an installation whose commands are a stand-in: it writes down how it was called and answers as the test wants,
so that the hook is tested by itself. `ShellKind` is what differs between shells. `Terminal` is the person.
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
from typing import NamedTuple

import pexpect

from handwash.shell import startup_files

REPO = Path(__file__).resolve().parents[2]
HOOKS = REPO / "shellhooks"
HOOK = HOOKS / "handwash.bash"
LIMIT = 20.0


class ShellKind(NamedTuple):
    """A shell, and how a person's start-up file for it is written."""

    name: str
    program: tuple[str, ...]
    """With its first words where it needs some: `busybox ash`."""
    hook: str
    """The file in shellhooks/."""
    rc: str
    """The file below the home folder that every interactive shell reads."""
    prompt: str
    """Start-up lines for a prompt that shows the last status as `[N]> `, and for a terminal without decoration."""
    line: str
    """What sources the hook, with {python} and {hook}."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment the shell needs, with {home}."""
    folders: tuple[str, ...] = ()
    """Folders below the home folder that it expects."""
    status: str = "sh -c 'exit {n}'"
    """A command that ends with status n and does nothing else."""
    dot: str = "."
    """The word that reads a file into this shell."""

    @property
    def present(self) -> bool:
        return Path(self.program[0]).exists()

    def argv(self, *options: str) -> list[str]:
        return [*self.program, *(options or ("-i",))]

    @property
    def login(self) -> list[str]:
        """A login shell on a terminal. tcsh takes -l only alone."""
        return [*self.program, "-l"]


def _found(*names: str) -> str:
    """The program; HANDWASH_TEST_BASH=/path/to/4.2/bash (ZSH, FISH, TCSH, KSH93, MKSH, DASH, BUSYBOX) tests another one.

    Two tests want a bash that reads /etc/bash.bashrc, and .bashrc for `ssh host command`: Debian's does, a plain build not.
    """
    given = os.environ.get(f"HANDWASH_TEST_{names[0].upper()}")
    return given or next((path for path in map(shutil.which, names) if path), f"/usr/bin/{names[0]}")


BASH = _found("bash")

_POSIX_PROMPT = "PS1='[$?]> '\n"
_POSIX_LINE = "__handwash_python='{python}'; . '{hook}'\n"
# These shells do not tell a file its own name.
_SH_LINE = "__handwash_python='{python}'; __handwash_hook='{hook}'; . '{hook}'\n"
_ENV = (("ENV", "{home}/.shrc"),)
_FISH_PROMPT = """
set -g fish_greeting
set -g fish_autosuggestion_enabled 0
function fish_title; end
function fish_prompt; echo -n "[$status]> "; end
"""
KINDS: dict[str, ShellKind] = {
    kind.name: kind
    for kind in (
        ShellKind(
            *("bash", (BASH,), "handwash.bash", ".bashrc", "PS1='[$?]> '\nunset HISTFILE\n", _POSIX_LINE),
            status="(exit {n})",
        ),
        # prompt_sp and prompt_cr move the cursor about before each prompt.
        ShellKind(
            *("zsh", (_found("zsh"),), "handwash.zsh", ".zshrc"),
            "PROMPT='[%?]> '\nunsetopt prompt_sp prompt_cr\nunset zle_bracketed_paste\n",
            _POSIX_LINE,
        ),
        # Without its folder of generated completions fish starts to fill it, in the background.
        ShellKind(
            *("fish", (_found("fish"),), "handwash.fish", ".config/fish/config.fish", _FISH_PROMPT),
            "set -g __handwash_python '{python}'; set -g __handwash_hook '{hook}'; source '{hook}'\n",
            (("XDG_CONFIG_HOME", "{home}/.config"), ("XDG_DATA_HOME", "{home}/.local/share")),
            (".config/fish", ".local/share/fish/generated_completions"),
            dot="source",
        ),
        ShellKind(
            *("tcsh", (_found("tcsh", "csh"),), "handwash.csh", ".tcshrc", "set prompt='[%?]> '\n"),
            "set __handwash_python='{python}' __handwash_hook='{hook}'; source '{hook}'\n",
            dot="source",
        ),
        ShellKind("ksh", (_found("ksh93", "ksh"),), "handwash.sh", ".shrc", _POSIX_PROMPT, _SH_LINE, _ENV),
        ShellKind("mksh", (_found("mksh"),), "handwash.sh", ".shrc", _POSIX_PROMPT, _SH_LINE, _ENV),
        ShellKind("dash", (_found("dash"),), "handwash.sh", ".shrc", _POSIX_PROMPT, _SH_LINE, _ENV),
        ShellKind("ash", (_found("busybox"), "ash"), "handwash.sh", ".shrc", _POSIX_PROMPT, _SH_LINE, _ENV),
    )
}

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
    """An installation in a folder: the hook files, and the stand-in where they look for the package."""

    def __init__(self, folder: Path, wheel: bool = False) -> None:
        self.folder = folder
        self.package = folder if wheel else folder / "src" / "handwash"
        self.hook = folder / "shellhooks" / "handwash.bash"
        self.package.mkdir(parents=True)
        self.hook.parent.mkdir()
        for file in HOOKS.glob("handwash.*"):
            shutil.copy(file, self.hook.parent)
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

    def line(self, python: str = sys.executable, kind: ShellKind = KINDS["bash"]) -> str:
        """What a start-up file has."""
        return kind.line.format(python=python, hook=self.hook.parent / kind.hook)


class Terminal:
    """A shell under a pseudo-terminal whose prompt shows the last status."""

    # What else a line editor writes after the prompt is for the terminal.
    PROMPT = re.compile(r"\[(\d+)\]> (?:\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\(B|[\x0f\r]| +\x08{20,})*$")
    # Sequences, the sign for a missing line end (fish), a line drawn again (ksh), a line that is overwritten.
    DECORATION = re.compile(
        r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78M]|\x1b\(B|\x1b\][^\x07]*\x07|\x0f|⏎ *\r?|[^\n]*\x08{20,}|[^\n]*\r(?![\r\n])"
    )

    def __init__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        cwd: str | None = None,
        expect_prompt: bool = True,
        kind: ShellKind = KINDS["bash"],
    ):
        self.kind = kind
        self.child = pexpect.spawn(
            argv[0], argv[1:], env=dict(env), cwd=cwd, encoding="utf-8", timeout=LIMIT, dimensions=(40, 250)
        )
        self.child.delaybeforesend = None
        self.child.delayafterclose = 0
        self.child.ptyproc.delayafterclose = 0  # type: ignore[union-attr]
        self.child.ptyproc.delayafterterminate = 0.01  # type: ignore[union-attr]
        self.greeting = ""
        self.greeted = False
        self.status: int | None = None
        if expect_prompt:
            self.greeting = self.prompt()

    @property
    def pid(self) -> int:
        return int(self.child.pid)

    def prompt(self, limit: float = LIMIT) -> str:
        """Waits for the prompt; the output before it."""
        self.child.expect(self.PROMPT, timeout=limit)
        self.status = int(self.child.match.group(1))
        before = self.child.before
        if self.kind.name == "ksh" and not self.greeted:
            # ksh93 draws its first prompt twice, and a Ctrl-D that comes in between is an interrupt to it, with and
            # without the hook. On a busy machine it may not have come to the second one: not before it sleeps.
            until(lambda: state(self.pid) == "S", "ksh does not wait for a line")
            self.child.expect(["\x08{20,}$", pexpect.TIMEOUT], timeout=0.1)
        self.greeted = True
        return self.plain(str(before))

    def plain(self, text: str) -> str:
        """Without what a line editor writes to move the cursor and to colour."""
        if self.kind.name == "bash":
            return text
        return re.sub("\r+\n", "\r\n", self.DECORATION.sub("", text))

    def run(self, line: str) -> str:
        """Types a line; its output, without the line itself."""
        self.child.sendline(line)
        if self.kind.name == "ksh":
            # A first prompt that is drawn again late is not the one that follows the line.
            self.child.expect("\r+\n")
            return self.prompt()
        return self.prompt().partition("\r\n")[2]

    def leave(self, how: str, status: int) -> None:
        """Goes, with that status: `exit` by the command, `eof` by Ctrl-D at the next prompt."""
        if how == "exit":
            self.child.sendline(f"exit {status}")
            return
        # Typed ahead, the Ctrl-D would be the running command's.
        self.run(self.kind.status.format(n=status))
        self.child.sendeof()

    def ends(self) -> int:
        """Waits until the shell has ended; its status, a signal as 128+n."""
        self.rest = self.plain(str(self.child.read()))
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
        # pexpect itself waits for no longer than the delay above.
        until(lambda: not self.child.isalive(), "the shell did not die")
        self.child.close(force=True)


def state(pid: int) -> str:
    """R running, S asleep, Z ended and not looked at yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def foreground(pid: int) -> int:
    """The process group in front on that process's terminal."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[5])


@contextmanager
def stopped_job(terminal: Terminal, line: str = "sleep 100") -> Iterator[None]:
    """While a program of that shell is stopped, as by ^Z."""
    terminal.child.sendline(line)
    # Not before it is sleep: the shell's child between fork and exec misses the ^Z.
    until(lambda: Path(f"/proc/{foreground(terminal.pid)}/comm").read_text() == "sleep\n", "sleep did not start")
    sleeper = foreground(terminal.pid)
    terminal.child.send("\x1a")
    until(lambda: state(sleeper) == "T", "sleep did not stop")
    try:
        terminal.prompt(LIMIT / 4)
    except pexpect.TIMEOUT:
        # Once, on a busy machine, ksh93 (1.0.4) did not come back: it looks again when it is told of a child.
        os.kill(terminal.pid, signal.SIGCHLD)
        terminal.prompt()
    try:
        yield
    finally:
        try:
            os.kill(sleeper, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Person:
    """Somebody with a home folder, whose shells are started clean: nothing of the test's own environment gets in."""

    def __init__(self, home: Path, tree: Tree, kind: ShellKind = KINDS["bash"]) -> None:
        self.home = home
        self.tree = tree
        self.kind = kind
        home.mkdir(exist_ok=True)
        (home / ".inputrc").write_text("set enable-bracketed-paste off\nset bell-style none\nset enable-meta-key off\n")
        for folder in kind.folders:
            (home / folder).mkdir(parents=True)
        self.env: dict[str, str] = {
            "HOME": str(home),
            # First the shell itself, whichever it is: the tests start it by its name, too.
            "PATH": f"{os.path.dirname(kind.program[0])}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
            "SHELL": kind.program[0],
            "INPUTRC": str(home / ".inputrc"),
            **{name: value.format(home=home) for name, value in kind.env},
        }
        self.terminals: list[Terminal] = []
        self.startup()

    def startup(self, before: str = "", after: str = "", hook: str | None = None) -> None:
        """Writes the start-up file: a prompt that shows the status, `before`, the hook, `after`."""
        line = self.tree.line(kind=self.kind) if hook is None else hook
        (self.home / self.kind.rc).write_text(f"{self.kind.prompt}{before}\n{line}{after}\n")
        if self.kind.name == "bash":
            (self.home / ".bash_profile").write_text(". ~/.bashrc\n")
        farewell = startup_files.SHELLS[self.kind.name].farewell
        if farewell is not None:
            (self.home / farewell.file).write_text(farewell.line + "\n" if hook is None else "")

    def shell(self, *options: str, expect_prompt: bool = True, cwd: str | None = None, **env: str) -> Terminal:
        """Opens a terminal with an interactive shell in it."""
        return self.opens(self.kind.argv(*options), expect_prompt=expect_prompt, cwd=cwd, **env)

    def opens(self, argv: list[str], expect_prompt: bool = True, cwd: str | None = None, **env: str) -> Terminal:
        terminal = Terminal(argv, {**self.env, **env}, cwd or str(self.home), expect_prompt, self.kind)
        self.terminals.append(terminal)
        return terminal

    def leaves(self) -> None:
        for terminal in self.terminals:
            terminal.close()


@contextmanager
def person(folder: Path, kind: ShellKind = KINDS["bash"]) -> Iterator[Person]:
    somebody = Person(folder / "home", Tree(folder / "tree"), kind)
    try:
        yield somebody
    finally:
        somebody.leaves()
