#!/usr/bin/env python3
"""Starts, in every way there is, processes that outlive the program that started them; one file and one word for each.

    zoo.py TOKEN PLACE NAME…     starts these, writes PLACE/up when all are there, and ends as PLACE/order says
    zoo.py TOKEN:NAME PLACE      what most of them run, started by the above

Every process of an escapee has a word TOKEN:NAME in its command line, the last part of a path in some, so that whoever looks
from outside finds it with neither a parent nor the environment. Each ends by itself within two minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

LIFE = 100
# What forks itself anew cannot be ended from outside if it gets away.
SHORT_LIFE = 5
PYTHON = "/usr/bin/python3"
GPU = "/dev/nvidia0"
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
CLONE_VM, CLONE_VFORK = 0x100, 0x4000


class Keeper:
    """What every program here needs: the word by which it is found, and the folder."""

    def __init__(self, token: str, place: str) -> None:
        self.token = token
        self.place = place

    def word(self, name: str) -> str:
        return f"{self.token}:{name}"

    def ready(self, name: str) -> None:
        os.close(os.open(f"{self.place}/ready-{name}", os.O_WRONLY | os.O_CREAT, 0o644))

    def is_ready(self, name: str) -> bool:
        return os.path.exists(f"{self.place}/ready-{name}")


def sleep_as(word: str, environment: dict[str, str] | None = None) -> NoReturn:
    """Becomes a sleeper whose name is the word."""
    os.execve("/bin/sleep", [word, str(LIFE)], dict(os.environ) if environment is None else environment)


def quiet(*, output: bool = False) -> None:
    """Lets go of standard input and, unless the output is to be held open, of output and error."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0,) if output else (0, 1, 2):
        os.dup2(null, fd)


def prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# How they are started: called in a child of the zoo, which it leaves by exec or _exit.


def background(keeper: Keeper, name: str) -> None:
    quiet(output=True)
    keeper.ready(name)
    sleep_as(keeper.word(name))


def nohup(keeper: Keeper, name: str) -> None:
    quiet()
    keeper.ready(name)
    os.execvp("nohup", ["nohup", "bash", "-c", f"exec -a {keeper.word(name)} sleep {LIFE}"])


def new_session(keeper: Keeper, name: str) -> None:
    quiet()
    os.setsid()
    keeper.ready(name)
    sleep_as(keeper.word(name))


def double_fork(keeper: Keeper, name: str) -> None:
    quiet()
    os.setsid()
    if os.fork() == 0:
        keeper.ready(name)
        sleep_as(keeper.word(name))


def double_fork_cleared(keeper: Keeper, name: str) -> None:
    quiet()
    os.setsid()
    if os.fork() == 0:
        keeper.ready(name)
        sleep_as(keeper.word(name), {})


def holds_output(keeper: Keeper, name: str) -> None:
    quiet(output=True)
    os.setsid()
    if os.fork() == 0:
        keeper.ready(name)
        sleep_as(keeper.word(name), {})


def tmux(keeper: Keeper, name: str) -> None:
    quiet()
    keeper.ready(name)
    socket = f"{keeper.place}/{keeper.word(name)}"
    command = ["bash", "-c", f"exec -a {keeper.word(name)} sleep {LIFE}"]
    os.execvp("tmux", ["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", *command])


def ssh_agent(keeper: Keeper, name: str) -> None:
    """Not dumpable: nobody but root can look into it. It ends some seconds after its command."""
    quiet()
    keeper.ready(name)
    socket = f"{keeper.place}/{keeper.word(name)}"
    os.execvp("ssh-agent", ["ssh-agent", "-a", socket, "bash", "-c", f"exec -a {keeper.word(name)} sleep {LIFE}"])


def program(keeper: Keeper, name: str) -> None:
    """Those that need code of their own: in a session of their own, below a parent that has gone."""
    quiet()
    os.setsid()
    if os.fork() == 0:
        os.execv(PYTHON, [PYTHON, "-I", "-S", os.path.abspath(__file__), keeper.word(name), keeper.place])


# What those with code of their own do.


def ignores_term(ready: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    time.sleep(LIFE)


def stopped(ready: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    ready()
    time.sleep(LIFE)
    # Nothing but KILL ends a stopped process, not even an alarm.
    os.kill(child, signal.SIGKILL)


def two_hundred(ready: Callable[[], None]) -> None:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(LIFE)
            os._exit(0)
    ready()
    time.sleep(LIFE)


def forks_anew(ready: Callable[[], None]) -> None:
    ready()
    end = time.monotonic() + SHORT_LIFE
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.01)


def restarts_workers(ready: Callable[[], None]) -> None:
    def worker() -> None:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(LIFE)
            os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(4):
        worker()
    ready()
    end = time.monotonic() + LIFE / 2
    while time.monotonic() < end:
        os.wait()
        worker()


def wicked_name(ready: Callable[[], None]) -> None:
    with open("/proc/self/comm", "w") as name:
        name.write("a) b (c\n) R 1 2")
    ready()
    time.sleep(LIFE)


def subreaper(ready: Callable[[], None]) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(LIFE)
        os._exit(0)
    os.wait()
    ready()
    time.sleep(LIFE)


def zombies(ready: Callable[[], None]) -> None:
    for _ in range(5):
        if os.fork() == 0:
            os._exit(0)
    ready()
    time.sleep(LIFE)


def not_dumpable(ready: Callable[[], None]) -> None:
    prctl(PR_SET_DUMPABLE, 0)
    ready()
    time.sleep(LIFE)


def uninterruptible(ready: Callable[[], None]) -> None:
    """In state D, with TERM ignored: as long as its vfork child has neither ended nor executed something. KILL ends it."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    stack = ctypes.create_string_buffer(1 << 18)
    top = (ctypes.addressof(stack) + (1 << 18)) & ~15
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, CLONE_VM | CLONE_VFORK | signal.SIGCHLD, LIFE)


def opens_gpu(ready: Callable[[], None]) -> None:
    os.open(GPU, os.O_RDWR)
    ready()
    time.sleep(LIFE)


def sleeps(ready: Callable[[], None]) -> None:
    ready()
    time.sleep(LIFE)


def other_user(ready: Callable[[], None]) -> None:
    """Started as a set-uid copy of the interpreter: becomes whom that belongs to, wholly."""
    os.setresuid(os.geteuid(), os.geteuid(), os.geteuid())
    ready()
    time.sleep(LIFE)


PROGRAMS: dict[str, Callable[[Callable[[], None]], None]] = {
    "ignores-term": ignores_term,
    "stopped": stopped,
    "two-hundred": two_hundred,
    "restarts-workers": restarts_workers,
    "wicked-name": wicked_name,
    "subreaper": subreaper,
    "zombies": zombies,
    "not-dumpable": not_dumpable,
    "uninterruptible": uninterruptible,
    "opens-gpu": opens_gpu,
    "forks-anew": forks_anew,
}
ESCAPEES: dict[str, Callable[[Keeper, str], None]] = {
    "background": background,
    "nohup": nohup,
    "setsid": new_session,
    "double-fork": double_fork,
    "double-fork-cleared": double_fork_cleared,
    "holds-output": holds_output,
    "tmux": tmux,
    "ssh-agent": ssh_agent,
    **dict.fromkeys(PROGRAMS, program),
}


def start_as_other_user(keeper: Keeper, name: str) -> None:
    quiet()
    copy = f"{keeper.place}/python-of-another"
    os.execv(copy, [copy, "-I", "-S", os.path.abspath(__file__), keeper.word(name), keeper.place])


# Not in the zoo of every run. "moved" and "frozen" are moved to another cgroup from outside by root, as a scope of systemd
# does, and the latter is frozen there (cgroup v1): no signal reaches it. "other-user" may not be signalled.
SPECIAL: dict[str, Callable[[Keeper, str], None]] = {
    "moved": program,
    "frozen": program,
    "other-user": start_as_other_user,
}
CODE = {**PROGRAMS, "moved": sleeps, "frozen": sleeps, "other-user": other_user}


def start_lenders(keeper: Keeper) -> list[int]:
    """Processes that end when told to, so that somebody else can have their pids; several, as others are quicker at times."""
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            sleep_as(keeper.word("lender"))
        pids.append(pid)
    with open(f"{keeper.place}/lenders", "w") as file:
        file.write(" ".join(map(str, pids)))
    return pids


def lend(keeper: Keeper, pids: Sequence[int]) -> bool:
    """Ends them if they are to end now; whether that has been done."""
    if not os.path.exists(f"{keeper.place}/lend"):
        return False
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    keeper.ready("to-lend")
    return True


def run_all(token: str, place: str, names: Sequence[str]) -> None:
    """Starts them, says so, waits for the order (bounded) and ends so."""
    keeper = Keeper(token, place)
    lenders = start_lenders(keeper)
    for name in names:
        child = os.fork()
        if child == 0:
            try:
                {**ESCAPEES, **SPECIAL}[name](keeper, name)
            finally:
                os._exit(0)
    end = time.monotonic() + LIFE
    while not all(keeper.is_ready(name) for name in names) and time.monotonic() < end:
        time.sleep(0.01)
    keeper.ready("all")
    order = ""
    lent = False
    while not order and time.monotonic() < end:
        lent = lent or lend(keeper, lenders)
        time.sleep(0.01)
        try:
            with open(f"{place}/order") as file:
                order = file.read()
        except FileNotFoundError:
            pass
    if order.startswith("kill "):
        os.kill(os.getpid(), int(order[5:]))
    os._exit(int(order.partition("exit ")[2] or 0))


def run_one(word: str, place: str) -> None:
    token, _, name = word.partition(":")
    signal.alarm(LIFE + 10)
    CODE[name](lambda: Keeper(token, place).ready(name))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if ":" in sys.argv[1]:
        run_one(sys.argv[1], sys.argv[2])
    else:
        run_all(sys.argv[1], sys.argv[2], sys.argv[3:])
