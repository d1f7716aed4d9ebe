#!/usr/bin/env python3
"""Programs that are hard to be rid of: `crowd.py KIND…`. Prints one line when all of it runs; ends by itself in two minutes.

workers N DEVICE…   a main process that ends, and N children that it has forked, which hold the device files open
agent               starts a worker, and another one whenever that ends; ignores TERM for the first second
zombies N           a parent with N children that have ended and are not collected
"""

from __future__ import annotations

import os
import signal
import sys
import time

LIMIT = 110


def detach() -> None:
    """Lets go of the step's output, so that the job ends while this lives on."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def work() -> None:
    signal.alarm(LIMIT)
    detach()
    while True:
        signal.pause()


def workers(count: int, devices: list[str]) -> None:
    for path in devices:
        os.open(path, os.O_RDWR)
    children = []
    for _number in range(count):
        child = os.fork()
        if child == 0:
            os.setsid()
            work()
        children.append(child)
    print(os.getpid(), *children, flush=True)


def agent() -> None:
    signal.alarm(LIMIT)
    started = time.monotonic()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    print(os.getpid(), flush=True)
    os.setsid() if os.getpid() != os.getsid(0) else None
    detach()
    while not (asked and time.monotonic() - started > 1):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work()
        os.waitpid(child, 0)


def zombies(count: int) -> None:
    signal.alarm(LIMIT)
    children = []
    for _number in range(count):
        child = os.fork()
        if child == 0:
            os._exit(0)
        children.append(child)
    print(os.getpid(), *children, flush=True)
    os.setsid() if os.getpid() != os.getsid(0) else None
    detach()
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "workers":
        workers(int(sys.argv[2]), sys.argv[3:])
    elif sys.argv[1] == "agent":
        agent()
    else:
        zombies(int(sys.argv[2]))
