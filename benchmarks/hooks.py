#!/usr/bin/env python3
"""What a hook costs, beside those of direnv, zoxide and fzf (Debian's packages), in one run.

At the start of a shell: each start-up file ends its shell with SIGKILL on its last line, so that neither a prompt nor
the way out is measured; the starts of all kinds alternate, and printed is the median of the differences to the plain
start beside them. At a prompt: an empty line is typed, again alternating, and the time to the next prompt is taken; how
many processes a prompt starts is counted by strace. The banner is not due, as in every shell but the first of a login.

Exit code 1 if ours is not the cheapest to read, or starts anything at a prompt.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HOOKS = Path(__file__).resolve().parents[1] / "shellhooks"
FZF = "/usr/share/doc/fzf/examples"
PROMPT = b"[ready]> "


class Shell(NamedTuple):
    """How a shell is started, and what a start-up file for it says."""

    name: str
    rc: str
    prompt: str
    die: str
    lines: dict[str, str]


def ours(name: str) -> str:
    """The installed line, and a proof that no guard turned the hook away."""
    hook = f"{HOOKS}/handwash.{name}"
    if name == "fish":
        load = f"set -g __handwash_python '{sys.executable}'; set -g __handwash_hook '{hook}'; source '{hook}'"
        return f"{load}\nset -q __handwash_loaded; or exit 9"
    return f"__handwash_python='{sys.executable}'; . '{hook}'\n[[ -n ${{__handwash_loaded-}} ]] || exit 9"


SHELLS = (
    Shell(
        "bash",
        ".bashrc",
        "PS1='[ready]> '\nunset HISTFILE",
        "builtin kill -KILL $$",
        {
            "direnv": 'eval "$(direnv hook bash)"',
            "zoxide": 'eval "$(zoxide init bash)"',
            "fzf": f"source {FZF}/key-bindings.bash",
        },
    ),
    Shell(
        "zsh",
        ".zshrc",
        "PROMPT='[ready]> '\nunsetopt prompt_sp prompt_cr",
        "builtin kill -KILL $$",
        {
            "direnv": 'eval "$(direnv hook zsh)"',
            "zoxide": 'eval "$(zoxide init zsh)"',
            "fzf": f"source {FZF}/key-bindings.zsh",
        },
    ),
    Shell(
        "fish",
        ".config/fish/config.fish",
        "function fish_greeting; end; function fish_title; end; function fish_prompt; echo -n '[ready]> '; end",
        "kill -KILL $fish_pid",
        {
            "direnv": "direnv hook fish | source",
            "zoxide": "zoxide init fish | source",
            "fzf": "fzf_key_bindings",
        },
    ),
)


class Bench:
    """One shell, under one pseudo-terminal, in a home for each kind of start-up file."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell = shell
        self.program = str(shutil.which(shell.name))
        self.homes = {}
        for kind, line in {"none": "", "handwash": ours(shell.name), **shell.lines}.items():
            if kind in shell.lines and not shutil.which(kind):
                continue
            for last, end in (("start", shell.die), ("prompt", "")):
                home = folder / f"{shell.name}-{kind}-{last}"
                (home / shell.rc).parent.mkdir(parents=True)
                # Without its folder of generated completions fish starts to fill it, in the background.
                (home / ".local/share/fish/generated_completions").mkdir(parents=True)
                (home / shell.rc).write_text(f"{shell.prompt}\n{line}\n{end}\n")
                self.homes[kind, last] = home
        self.kinds = [kind for kind, last in self.homes if last == "start"]

    def env(self, kind: str, last: str) -> dict[str, str]:
        return {
            "HOME": str(self.homes[kind, last]),
            "TERM": "xterm",
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "STY": "1",
            "HANDWASH_SHOWN": f"{platform.node()}::1",
        }

    def starts(self, runs: int) -> dict[str, float]:
        """Milliseconds that each kind adds to a start; for "none" those of the start itself."""
        master, slave = os.openpty()
        os.set_blocking(master, False)
        terminal = os.ttyname(slave)
        times: dict[str, list[float]] = {kind: [] for kind in self.kinds}
        for run in range(runs + 3):
            turn = run % len(self.kinds)
            for kind in self.kinds[turn:] + self.kinds[:turn]:
                files = [(os.POSIX_SPAWN_OPEN, fd, terminal, os.O_RDWR, 0) for fd in range(3)]
                begin = time.perf_counter()
                # The first terminal that a session's leader opens becomes the session's.
                pid = os.posix_spawn(
                    self.program, [self.program, "-i"], self.env(kind, "start"), file_actions=files, setsid=True
                )
                _pid, status = os.waitpid(pid, 0)
                took = (time.perf_counter() - begin) * 1000
                try:
                    os.read(master, 65536)
                except BlockingIOError:
                    pass
                assert os.WIFSIGNALED(status), f"{self.shell.name}, {kind}: the start-up file was not read to its end"
                if run >= 3:
                    times[kind].append(took)
        os.close(slave)
        os.close(master)
        return self.beside_none(times)

    def beside_none(self, times: dict[str, list[float]]) -> dict[str, float]:
        costs = {kind: statistics.median(b - a for a, b in zip(times["none"], times[kind])) for kind in self.kinds}
        return {**costs, "none": statistics.median(times["none"])}

    def prompts(self, runs: int) -> dict[str, float]:
        """Milliseconds that each kind adds to a prompt; for "none" those of the prompt itself."""
        opened = {kind: Typist([self.program, "-i"], self.env(kind, "prompt")) for kind in self.kinds}
        times: dict[str, list[float]] = {kind: [] for kind in self.kinds}
        try:
            for run in range(runs + 3):
                for kind in self.kinds:
                    took = opened[kind].empty_line()
                    if run >= 3:
                        times[kind].append(took)
        finally:
            for typist in opened.values():
                typist.close()
        return self.beside_none(times)

    def forks(self, kind: str, lines: int = 5) -> float:
        """Processes started for each prompt."""
        trace = self.homes[kind, "prompt"] / "trace"
        argv = ["strace", "-f", "-qq", "-e", "trace=fork,vfork,clone,clone3", "-o", str(trace), self.program, "-i"]
        typist = Typist(argv, self.env(kind, "prompt"))
        try:
            typist.empty_line()
            before = _started(trace)
            for _line in range(lines):
                typist.empty_line()
            return (_started(trace) - before) / lines
        finally:
            typist.close()


def _started(trace: Path) -> int:
    # fish keeps threads, which are no processes.
    return sum(
        " = " in line and "CLONE_THREAD" not in line and "resumed" not in line
        for line in trace.read_text().splitlines()
    )


class Typist:
    """A shell with a prompt, and somebody who presses Enter."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.master, slave = os.openpty()
        terminal = os.ttyname(slave)
        files = [(os.POSIX_SPAWN_OPEN, fd, terminal, os.O_RDWR, 0) for fd in range(3)]
        self.pid = os.posix_spawn(str(shutil.which(argv[0])), argv, env, file_actions=files, setsid=True)
        os.close(slave)
        self.wait()

    def wait(self) -> None:
        seen = b""
        # The sequences of a line editor may stand after the prompt.
        while not re.search(re.escape(PROMPT) + rb"(?:\x1b[^a-zA-Z=>]*[a-zA-Z=>]|\r)*$", seen):
            seen += os.read(self.master, 65536)

    def empty_line(self) -> float:
        begin = time.perf_counter()
        os.write(self.master, b"\r")
        self.wait()
        return (time.perf_counter() - begin) * 1000

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("shells", nargs="*", default=[shell.name for shell in SHELLS])
    options = parser.parse_args()
    strace = shutil.which("strace") is not None and not subprocess.run(["strace", "-V"], capture_output=True).returncode
    worse = []
    for shell in SHELLS:
        if shell.name not in options.shells or shutil.which(shell.name) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(shell, Path(folder))
            starts, prompts = bench.starts(options.runs), bench.prompts(options.runs)
            forks = {kind: bench.forks(kind) if strace else None for kind in bench.kinds}
        print(f"{shell.name:10} {'start':>10} {'ratio':>6} {'prompt':>10} {'started at a prompt':>20}")
        for kind in bench.kinds:
            base = 0 if kind == "none" else starts["none"]
            count = "not counted" if forks[kind] is None else f"{forks[kind]:g}"
            print(
                f"  {kind:8} {starts[kind]:+7.2f} ms {(base + starts[kind]) / starts['none']:6.2f}"
                f" {prompts[kind]:+7.2f} ms {count:>20}"
            )
        others = [starts[kind] for kind in bench.kinds if kind not in ("none", "handwash")]
        if others and starts["handwash"] > min(others):
            worse.append(f"{shell.name}: another hook is cheaper to read")
        if forks["handwash"]:
            worse.append(f"{shell.name}: handwash starts something at a prompt")
    for line in worse:
        print(line)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
