"""What `handwash check` costs beside the tools that people use for the same question, each pair in one run.

    python benchmarks/beside_others.py [--rounds 15] [--others 3000]

1. On a node with thousands of processes of others, beside `ps -ef`: the look at the processes is to take at most 0.3 of its
   time (without the interpreter's start), the whole command at most 1.5 times. Needs root, to be other people and to have a
   /proc that hides nobody.
2. On the same fake driver with four GPUs, beside `nvitop -1` and `gpustat`: ours is to be the fastest and the smallest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MAIN = ROOT / "src" / "handwash" / "__main__.py"
ASKER, OTHERS = 61104, 61105  # numbers without an account
LOOK_LIMIT, WHOLE_LIMIT = 0.3, 1.5
CROWD = """
import os, signal, sys
signal.alarm(300)
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.alarm(300)
        signal.pause()
print("ready", flush=True)
signal.pause()
"""
# The look as handwash takes it, in a child; the time is that of the look alone.
LOOK = """
import sys, time
sys.path.insert(0, sys.argv[1])
from handwash.survey import processes
times = []
for _round in range(7):
    begin = time.perf_counter()
    processes.look()
    times.append(time.perf_counter() - begin)
print(sorted(times)[3])
"""


def ended(argv: list[str], **options: object) -> tuple[float, float]:
    """Seconds that a program took, and the memory of its largest process in MiB."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )  # type: ignore[call-overload]
    _pid, _status, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def peak_of_all(argv: list[str], **options: object) -> float:
    """The highest sum of what a program and all that it starts hold (proportional set size, sampled), in MiB."""
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        **options,
    )  # type: ignore[call-overload]  # fmt: skip
    peak = 0
    while child.poll() is None:
        total = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(pid) < child.pid or os.getsid(int(pid)) != child.pid:
                    continue
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        peak = max(peak, total)
    return peak / 1024


@contextmanager
def crowd(count: int) -> Iterator[None]:
    """So many processes of another person, until the end."""
    argv = [sys.executable, "-I", "-S", "-c", CROWD, str(count)]
    with subprocess.Popen(
        argv, user=OTHERS, group=OTHERS, extra_groups=[], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout is not None and parent.stdout.readline()
            yield
        finally:
            os.killpg(parent.pid, 9)


def on_a_full_node(rounds: int, others: int, state: str) -> bool:
    """Prints the two ratios beside `ps -ef`; True where one is over its limit."""
    os.chmod(state, 0o777)
    asker: dict[str, object] = {"user": ASKER, "group": ASKER, "extra_groups": [], "cwd": "/"}
    env = {"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": state, "LC_ALL": "C.UTF-8"}
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    if subprocess.run(bare, env=env, **asker).returncode:  # type: ignore[call-overload]
        print("skipped: an ordinary user cannot run this interpreter")
        return False
    ps, look, whole = [], [], []
    with crowd(others):
        count = sum(name.isdigit() for name in os.listdir("/proc"))
        for _round in range(rounds):
            ps.append(ended(["ps", "-ef"], env=env, **asker)[0])
            argv = [sys.executable, "-I", "-S", "-c", LOOK, str(MAIN.parents[1])]
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, **asker)  # type: ignore[call-overload]
            look.append(float(done.stdout))
            whole.append(ended([sys.executable, "-I", "-S", str(MAIN), "check"], env=env, **asker)[0])
    worst = False
    for name, times, limit in (("the look at processes", look, LOOK_LIMIT), ("handwash check", whole, WHOLE_LIMIT)):
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times, ps))
        worst |= ratio > limit
        print(
            f"{name:22} {statistics.median(times) * 1000:6.1f} ms = {ratio:.2f} of `ps -ef`"
            f" ({statistics.median(ps) * 1000:.1f} ms, {count} processes; limit {limit})"
        )
    return worst


def in_own_proc(rounds: int, others: int) -> int:
    """Runs the first part where /proc hides nobody; its exit code."""
    if os.geteuid() or shutil.which("unshare") is None:
        print("skipped: the comparison with `ps -ef` needs root and unshare")
        return 0
    mount = 'mount -t proc -o hidepid=0 proc /proc && exec "$@"'
    words = [sys.executable, __file__, "--full-node", "--rounds", str(rounds), "--others", str(others)]
    return subprocess.run(["unshare", "--mount", "sh", "-c", mount, "sh", *words]).returncode


def monitors(folder: Path) -> dict[str, list[str]]:
    """The command lines of the two monitors: beside this interpreter, else installed into an environment of their own."""
    commands = {"nvitop -1": ["nvitop", "-1"], "gpustat": ["gpustat"]}
    place = Path(sys.executable).parent
    if not all((place / words[0]).exists() for words in commands.values()):
        place = folder / "venv" / "bin"
        for argv in (
            [sys.executable, "-m", "venv", str(folder / "venv")],
            [str(place / "pip"), "install", "-q", "nvitop", "gpustat"],
        ):
            if subprocess.run(argv).returncode:
                print("skipped: nvitop and gpustat could not be installed")
                return {}
    return {name: [str(place / words[0]), *words[1:]] for name, words in commands.items()}


def beside_monitors(rounds: int, folder: Path) -> bool:
    """Prints time and memory of ours and theirs on one driver; True where ours is not the least in each."""
    from tests.testbed.driver.build import compiler
    from tests.testbed.driver.fake import GIB, FakeDriver

    if compiler() is None:
        print("skipped: no C compiler to build the fake driver with")
        return False
    others = monitors(folder)
    if not others:
        return False
    driver = FakeDriver(folder / "driver", 4)
    driver.gpus(4, utilisation=50, samples=",".join(["50"] * 120))
    for number in range(4):
        driver.process(number, os.getpid(), GIB)
    env = {**os.environ, **driver.env(), "XDG_STATE_HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "120"}
    ours = [sys.executable, "-I", "-S", str(MAIN)]
    commands = {"handwash check": [*ours, "check"], "handwash status": [*ours, "status"], **others}
    times: dict[str, list[float]] = {name: [] for name in commands}
    largest: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            took, size = ended(argv, env=env)
            if number:
                times[name].append(took)
                largest[name].append(size)
    together = {name: max(peak_of_all(argv, env=env) for _round in range(3)) for name, argv in commands.items()}
    for name in commands:
        ratio = statistics.median(theirs / mine for theirs, mine in zip(times[name], times["handwash check"]))
        print(
            f"{name:22} {statistics.median(times[name]) * 1000:6.1f} ms = {ratio:4.1f} times `handwash check`;"
            f" largest process {statistics.median(largest[name]):5.1f} MiB, all its processes {together[name]:5.1f} MiB"
        )
    measures = (
        {name: statistics.median(values) for name, values in times.items()},
        {name: statistics.median(values) for name, values in largest.items()},
        together,
    )
    return any(measure["handwash check"] > min(measure[name] for name in others) for measure in measures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--others", type=int, default=3000, help="processes of others (default: %(default)s)")
    parser.add_argument("--full-node", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.full_node:
            return int(on_a_full_node(options.rounds, options.others, folder))
        slow = in_own_proc(options.rounds, options.others)
        return int(bool(slow) | beside_monitors(options.rounds, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
