"""The demo: what plain srun leaves behind, and what safe-srun leaves behind, side by side (``python tests/testbed/demo.py``).

It starts a throw-away Slurm cluster, or, where none can be started or with ``--local``, does without a scheduler. Exit code
0 means that everything that it says was seen to be so.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Callable

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.testbed import processes
from tests.testbed.cluster import Cluster, ClusterError
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.driver.build import compiler
from tests.testbed.driver.fake import FakeDriver
from tests.testbed.machine import Unavailable
from tests.testbed.processes import Identity, wait_until

ROOT = Path(__file__).resolve().parents[2]
LEAKY = ROOT / "tests" / "testbed" / "programs" / "leaky.sh"
SLEEPERS = 5
# How many of them plain srun leaves behind, by the site's process tracking (Slurm 22.05).
LEFT_BY_SRUN = {"linuxproc": 5, "pgid": 3, "cgroup": 0}
PROMPT = "demo$ "
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
Start = Callable[..., "subprocess.Popen[Any]"]


class Claim(Exception):
    """Something that the demo says was not so."""


def paint(text: str, code: str) -> str:
    """Colour, on a terminal only."""
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def heading(text: str) -> None:
    print("\n" + paint(f"== {text}", "1"), flush=True)


def command(text: str) -> None:
    print(paint(f"$ {text}", "36"), flush=True)


def say(text: str, colour: str = "") -> None:
    print("\n".join("  " + (paint(line, colour) if colour else line) for line in text.splitlines()), flush=True)


def claim(held: bool, text: str) -> None:
    """Says whether something held; the demo fails where it did not."""
    say(("yes: " if held else "NO:  ") + text, "32" if held else "31")
    if not held:
        raise Claim(text)


def on_a_terminal(start: Start, argv: Sequence[str], typed: str, limit: float = 20) -> str:
    """What a program shows on a terminal of its own, with these words typed to it."""
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        child = start(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    finally:
        os.close(slave)
    shown = b""
    until = time.monotonic() + limit
    os.write(master, typed.encode())
    while time.monotonic() < until:
        if select.select([master], [], [], 0.1)[0]:
            try:
                part = os.read(master, 65536)
            except OSError:
                break  # the last process on it has gone
            if not part:
                break
            shown += part
    os.close(master)
    with contextlib.suppress(ProcessLookupError):
        if child.poll() is None and not wait_until(lambda: child.poll() is not None, 5):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return shown.decode("utf-8", "replace").replace("\r", "")


def read_sleepers(output: IO[str]) -> dict[str, int]:
    """Label and pid of each sleeper that leaky.sh has started; it prints them when all are running."""
    found: dict[str, int] = {}
    for _line in range(SLEEPERS):
        line = output.readline()
        label, _blank, pid = line.strip().partition(" ")
        if not pid.isdigit():
            raise Claim(f"the leaky script starts five sleepers (after {len(found)} it said {line!r})")
        found[label] = int(pid)
    return found


def alive(sleepers: Mapping[str, int]) -> dict[str, Identity]:
    """Which of them run; a pid that something else has by now does not count."""
    found = {}
    for label, pid in sleepers.items():
        who = processes.identity(pid)
        if who is not None and any(word.startswith("110.") for word in processes.arguments(pid)):
            found[label] = who
    return found


def show(sleepers: Mapping[str, Identity]) -> None:
    for label, who in sleepers.items():
        say(f"{who.pid:>8}  {' '.join(processes.arguments(who.pid)):<18}({label})")


def end(sleepers: Mapping[str, int]) -> None:
    """Ends the sleepers that run, each by its own pid."""
    for who in alive(sleepers).values():
        processes.send(who, signal.SIGKILL)
    if not wait_until(lambda: not alive(sleepers), 10):
        raise Claim("the sleepers that were left could be ended")


def plain_run(
    start: Start, argv: Sequence[str], state: Callable[[], str | None] | None, held: bool
) -> dict[str, Identity]:
    """The leaky script without handwash; what is alive after its end. `held`: whether its job is to be there still."""
    child = start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    sleepers: dict[str, int] = {}
    try:
        assert child.stdout is not None
        sleepers = read_sleepers(child.stdout)
        script = [pid for pid in processes.pids() if str(LEAKY) in processes.arguments(pid)[1:2]]
        if not wait_until(lambda: not any(processes.identity(pid) for pid in script), 10):
            raise Claim("the leaky script has ended")
        if held and state is not None:
            wait_until(lambda: child.poll() is not None, 3)
            claim(
                state() == "RUNNING",
                "3 s after the script's end its job is still RUNNING, its GPU still billed",
            )
        else:
            child.wait(20)
        return alive(sleepers)
    except BaseException:
        end(sleepers)
        raise
    finally:
        if child.stdout is not None:
            child.stdout.close()


def safe_run(start: Start, argv: Sequence[str]) -> tuple[dict[str, int], str, float]:
    """The leaky script with handwash: its sleepers, what was said, and seconds from its last word to the end."""
    child = start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sleepers: dict[str, int] = {}
    try:
        assert child.stdout is not None and child.stderr is not None
        sleepers = read_sleepers(child.stdout)
        began = time.monotonic()
        _out, said = child.communicate(timeout=40)
        took = time.monotonic() - began
        if child.returncode != 0:
            raise Claim(f"safe-srun gives the script's exit code, 0 (it gave {child.returncode}: {said})")
        return sleepers, said, took
    except BaseException:
        end(sleepers)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        raise


def banner_of(shown: str) -> str:
    """What the hook has shown: all before the shell's first prompt, and without what switches bracketed paste on."""
    lines: list[str] = []
    for line in re.sub(r"\x1b\[\?\d+[hl]", "", shown).splitlines():
        if line.startswith(PROMPT):
            break
        # The words typed to it may be echoed before the shell has read them.
        if line.strip() and line.strip() != "exit":
            lines.append(line)
    return "\n".join(lines)


def compare(
    start: Start, plain: Sequence[str], safe: Sequence[str], state: Callable[[], str | None] | None, leaves: int
) -> None:
    """The same script twice: without and with handwash. `state`: that of the job; `leaves`: how many are left without."""
    heading(f"2. A script that leaks, under plain {Path(plain[0]).name}")
    command(" ".join([*plain[:-1], "leaky.sh"]))
    left = plain_run(start, plain, state, held=leaves == SLEEPERS)
    claim(len(left) == leaves, f"{len(left)} of {SLEEPERS} processes live on after the script")
    if left:
        show(left)
        command("kill -9 " + " ".join(str(who.pid) for who in left.values()))
        end({label: who.pid for label, who in left.items()})
    if state is not None and state():
        command("scancel --me")
        start(["scancel", "--me"]).wait(10)
        if not wait_until(lambda: not state(), 20, 0.1):
            raise Claim("the job could be cancelled")

    heading("3. The same script under safe-srun")
    command(" ".join([*safe[:-1], "leaky.sh"]))
    sleepers, said, took = safe_run(start, safe)
    say(said.strip())
    rest = alive(sleepers)
    try:
        claim(not rest, f"0 of {SLEEPERS} processes live on, {took:.1f} s after the script's last word")
    finally:
        end(sleepers)
    if state is not None:
        command("squeue --me")
        claim(not state(), "the queue is empty")


def on_cluster(proctrack: str) -> None:
    """The demo as an ordinary user of a throw-away cluster."""
    began = time.monotonic()
    with Cluster(proctrack) as cluster:
        cluster.install_handwash(ROOT)
        say(
            f"a throw-away Slurm with two nodes and proctrack/{proctrack} (started in {time.monotonic() - began:.0f} s)"
        )
        # Somewhere the user can read it, wherever the checkout lies.
        script = shutil.copy(LEAKY, cluster.directory / LEAKY.name)
        Path(script).chmod(0o755)
        environment = {"TERM": os.environ.get("TERM", "xterm")}
        if os.environ.get("HANDWASH_LANG"):
            environment["HANDWASH_LANG"] = os.environ["HANDWASH_LANG"]
        if not COLOUR:
            environment["NO_COLOR"] = "1"
        if compiler() is not None:
            # Else the four device files are all that there is to see of the pretended GPUs.
            environment.update(FakeDriver(cluster.directory / "driver", gpus=4).env())

        def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
            return cluster.popen(argv, user="alice", env=environment, **options)

        def state() -> str | None:
            rows = cluster.run(["squeue", "--noheader", "--format=%T"], user="alice", check=True).stdout.split()
            return rows[0] if rows else None

        heading("1. The banner, in the first shell of a job")
        start_up = cluster.home("alice") / ".bashrc"
        start_up.write_text(f"PS1='{PROMPT}'\n")
        shutil.chown(start_up, cluster.account("alice").pw_uid)
        cluster.run(["handwash", "install", "--shell", "bash"], user="alice", check=True)
        interactive = ["srun", "--gres=gpu:1", "--pty", "bash", "-i"]
        command(" ".join(interactive))
        banner = banner_of(on_a_terminal(start, interactive, "exit\n"))
        say(banner)
        if not banner.startswith(("handwash: ", "handwash：")):
            raise Claim("the banner is shown")
        compare(
            start,
            ["srun", "--gres=gpu:1", script],
            ["safe-srun", "--gres=gpu:1", script],
            state,
            LEFT_BY_SRUN[proctrack],
        )
    claim(True, "the cluster is gone, and with it everything that it had started")


def without_cluster() -> None:
    """The demo on this machine alone, with the installation that runs it, and a home of its own for the records."""
    home = tempfile.mkdtemp(prefix="handwash-demo-")
    folder = os.path.dirname(sys.executable)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "XDG_"))},
        "HOME": home,
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }

    def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(argv, env=environment, start_new_session=True, **options)

    try:
        heading("1. The banner")
        command("handwash banner")
        told = start(["handwash", "banner"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        say(told.communicate(timeout=20)[1].rstrip())
        if told.returncode != 0:
            raise Claim("the banner is shown")
        compare(start, ["bash", str(LEAKY)], ["safe-srun", "--local", "bash", str(LEAKY)], None, SLEEPERS)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="demo.py", description="What srun leaves behind, and what safe-srun does not."
    )
    parser.add_argument("--local", action="store_true", help="without a scheduler")
    parser.add_argument("--proctrack", choices=PROCTRACKS, default="linuxproc", help="the cluster's process tracking")
    options = parser.parse_args(words)
    try:
        if not options.local:
            try:
                on_cluster(options.proctrack)
                return 0
            except Unavailable as missing:
                say(f"No Slurm cluster can be started here ({missing}); showing it without a scheduler.", "33")
        without_cluster()
        return 0
    except Claim as broken:
        print(paint(f"demo: this did not hold: {broken}", "31"), file=sys.stderr)
    except (ClusterError, AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(paint(f"demo: {error}", "31"), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
