#!/usr/bin/env python3
"""What the hook costs an interactive bash at its start, over an empty start-up file.

Both kinds of start happen under the same pseudo-terminal, one after the other, many times, with the banner's mark set as
in any shell but the first of a login. Each shell ends itself with SIGKILL on the last line of its start-up file, so that
neither a prompt nor the way out is measured. Printed is the median of the differences of neighbours, and the ratio to
the plain start. Exit code 1 if the difference is over the limit.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

HOOK = Path(__file__).resolve().parents[1] / "shellhooks" / "handwash.bash"


def start(bash: str, rcfile: Path, terminal: str, master: int, env: dict[str, str]) -> float:
    """Milliseconds from the start of a shell to its end."""
    files = [(os.POSIX_SPAWN_OPEN, fd, terminal, os.O_RDWR, 0) for fd in range(3)]
    begin = time.perf_counter()
    # The first terminal that a session's leader opens becomes the session's.
    pid = os.posix_spawn(bash, [bash, "--rcfile", str(rcfile), "-i"], env, file_actions=files, setsid=True)
    _pid, status = os.waitpid(pid, 0)
    end = time.perf_counter()
    try:
        # What bash said must not fill the terminal: the next one would wait for room.
        os.read(master, 65536)
    except BlockingIOError:
        pass
    assert os.WIFSIGNALED(status), f"{rcfile} was not read to its end"
    return (end - begin) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--limit", type=float, default=1.0, help="milliseconds (default: 1)")
    parser.add_argument("--bash", default=shutil.which("bash"))
    parser.add_argument("--before", default="", help="a line of the start-up file before the hook, in both kinds")
    options = parser.parse_args()
    master, slave = os.openpty()
    os.set_blocking(master, False)
    with tempfile.TemporaryDirectory() as folder:
        plain, hooked = Path(folder, "plain"), Path(folder, "hooked")
        # `loaded` proves that no guard turned the hook away.
        plain.write_text(f"{options.before}\nbuiltin kill -KILL $$\n")
        load = f"__handwash_python='{sys.executable}'; . '{HOOK}'"
        hooked.write_text(f'{options.before}\n{load}\n[[ -n ${{__handwash_loaded-}} ]] && builtin kill -KILL "$$"\n')
        env = {"HOME": folder, "TERM": "xterm", "PATH": "/usr/bin:/bin", "STY": "1", "LC_ALL": "C.UTF-8"}
        env["HANDWASH_SHOWN"] = f"{platform.node()}::1"
        terminal = os.ttyname(slave)
        times: dict[Path, list[float]] = {plain: [], hooked: []}
        for run in range(options.runs + 5):
            for rcfile in (plain, hooked) if run % 2 else (hooked, plain):
                took = start(options.bash, rcfile, terminal, master, env)
                if run >= 5:
                    times[rcfile].append(took)
    os.close(slave)
    os.close(master)
    cost = statistics.median(b - a for a, b in zip(times[plain], times[hooked]))
    base = statistics.median(times[plain])
    print(f"bash -i, empty start-up file  {base:6.2f} ms   1.00")
    print(f"bash -i, with the hook        {statistics.median(times[hooked]):6.2f} ms   {(base + cost) / base:4.2f}")
    print(f"the hook                      {cost:6.2f} ms   (limit {options.limit:g} ms)")
    return 0 if cost <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
