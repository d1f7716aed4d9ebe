#!/usr/bin/env python3
"""Holds device files open as a CUDA process does: prints a ready line, then waits until it is ended or its time is over."""

from __future__ import annotations

import argparse
import os
import signal
import sys

DEFAULT = ["/dev/nvidia0", "/dev/nvidia-uvm"]


def main() -> int:
    """Opens, says so, waits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", default=DEFAULT, help="device files (default: %(default)s)")
    parser.add_argument("--ignore-term", action="store_true", help="ignore TERM, HUP and INT")
    parser.add_argument("--seconds", type=int, default=110, help="how long at most (default: %(default)s)")
    options = parser.parse_args()
    if options.ignore_term:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    for path in options.devices:
        os.open(path, os.O_RDWR)
    print(f"ready {os.getpid()}", flush=True)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(min(options.seconds, 120))
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
