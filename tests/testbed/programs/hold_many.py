#!/usr/bin/env python3
"""Data loaders that their parent has left: they hold device files open, and end by themselves.

Prints one line with the pids of the loaders, then the parent ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys


def main() -> int:
    """Opens, forks, says who, leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="+", help="device files, which every loader inherits open")
    parser.add_argument("--count", type=int, default=126, help="how many loaders (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="how long at most (default: %(default)s)")
    options = parser.parse_args()
    for path in options.devices:
        os.open(path, os.O_RDWR)
    pids = []
    for _number in range(options.count):
        pid = os.fork()
        if pid == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            signal.alarm(min(options.seconds, 120))
            while True:
                signal.pause()
        pids.append(pid)
    print(*pids, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
