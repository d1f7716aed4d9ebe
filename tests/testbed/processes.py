"""Looking at /proc and ending processes by identity: the part of the test bed that must never have a wrong victim."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable, NamedTuple

POLL = 0.02


class Identity(NamedTuple):
    """A process, told apart from a later one with the same pid by its start time in clock ticks."""

    pid: int
    started: int


class Stat(NamedTuple):
    """The few fields of /proc/PID/stat that the test bed needs."""

    state: str
    parent: int
    started: int


def stat(pid: int) -> Stat | None:
    """The process's state, or None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold blanks and parentheses itself: what follows the last one is regular.
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(fields[0], int(fields[1]), int(fields[19]))


def identity(pid: int) -> Identity | None:
    """The identity of a process that runs now; None for one that is gone or a zombie."""
    found = stat(pid)
    if found is None or found.state in "ZX":
        return None
    return Identity(pid, found.started)


def running(who: Identity) -> bool:
    """Whether this very process still runs; a zombie does not."""
    return identity(who.pid) == who


def pids() -> list[int]:
    """Every pid there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def uid(pid: int) -> int | None:
    """The real uid of a process."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def arguments(pid: int) -> list[str]:
    """The command line of a process, empty where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with, empty where it cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def program(pid: int) -> str:
    """The base name of the file that a process executes; empty for a kernel thread."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", "")).name
    except OSError:
        return ""


def open_files(pid: int) -> list[str]:
    """What the descriptors and the working directory of a process point at."""
    found = []
    with contextlib.suppress(OSError):
        found.append(os.readlink(f"/proc/{pid}/cwd"))
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def ancestors() -> set[int]:
    """This process and everything above it."""
    chain: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        found = stat(pid)
        pid = found.parent if found else 0
    return chain


def describe(pid: int) -> str:
    """One line about a process for a message."""
    return f"{pid} uid={uid(pid)} {' '.join(arguments(pid)) or program(pid)!r}"


def send(who: Identity, number: int) -> None:
    """Sends a signal to exactly this process, or to nobody."""
    try:
        descriptor = os.pidfd_open(who.pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        descriptor = None
    try:
        if not running(who):
            return
        with contextlib.suppress(ProcessLookupError):
            if descriptor is not None and hasattr(signal, "pidfd_send_signal"):
                signal.pidfd_send_signal(descriptor, number)
            else:
                os.kill(who.pid, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def end_all(find: Callable[[], Iterable[int]], limit: float = 10.0) -> list[int]:
    """Kills what *find* names, again and again until it names nobody; returns who was left after *limit* seconds."""
    until = time.monotonic() + limit
    while True:
        found = [who for who in (identity(pid) for pid in find()) if who]
        if not found or time.monotonic() > until:
            return [who.pid for who in found]
        for who in found:
            send(who, signal.SIGKILL)
        time.sleep(POLL)


def terminate(who: Identity, limit: float) -> bool:
    """Asks a process with TERM to end; whether it did within *limit* seconds."""
    send(who, signal.SIGTERM)
    return wait_until(lambda: not running(who), limit)


def wait_until(condition: Callable[[], object], limit: float, poll: float = POLL) -> bool:
    """Polls until the condition is true; False when it was not within *limit* seconds."""
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(poll)
    return True
