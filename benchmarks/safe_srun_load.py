"""What safe-srun's helpers weigh on a node, beside plain srun in one run.

    python3 tests/testbed/cluster.py run -- /usr/bin/python3 benchmarks/safe_srun_load.py [--only tasks]

Limits, each with exit code 1 if it is passed: a supervisor or guardian at most 12 MB resident and 2 MB of it private; a
guardian with 100 idle children under 0.1 % of a core; for each of many tasks at most 1.5 bare interpreter starts of CPU time
more than plain srun; output at no less than 0.95 of plain srun's rate.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRAPPER = str(Path(__file__).resolve().parents[1] / "wrappers" / "safe-srun")
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
TICK = os.sysconf("SC_CLK_TCK")


def environment(state: str) -> dict[str, str]:
    """The wrapper of a checkout takes the first python3 on the path."""
    return {**os.environ, "XDG_STATE_HOME": state, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def stat(pid: int | str) -> list[str]:
    """The fields behind the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def reaped() -> float:
    """CPU seconds of what has ended below us, or below init, to which slurmstepd falls with all that it has waited for."""
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    fields = stat(1)
    return ours.ru_utime + ours.ru_stime + (int(fields[13]) + int(fields[14])) / TICK


def settle() -> None:
    """Until init has collected what it has to (ten seconds at most)."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            states = [stat(name)[:2] for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            continue
        if ["Z", "1"] not in states:
            return
        time.sleep(0.05)


def cpu(argv: list[str], env: dict[str, str]) -> float:
    """CPU seconds of a command and all that it starts on the node."""
    settle()
    before = reaped()
    # One that fails at once would cost nothing.
    subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    settle()
    return reaped() - before


def helpers() -> list[int]:
    """Our helpers on the node that run now."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0") if name.isdigit() else []
        except OSError:
            continue
        if len(words) > 4 and words[3].endswith(b"/node/task.py"):
            found.append(int(name))
    return found


def memory(pid: int) -> tuple[float, float]:
    """Megabytes resident, and private."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    size = {name: int(value.split()[0]) / 1024 for name, value in rows.items()}
    return size["Rss"], size["Private_Clean"] + size["Private_Dirty"]


def run_time(pid: int) -> float:
    """CPU seconds so far, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def idle(env: dict[str, str], seconds: float) -> bool:
    """Memory and CPU time of the helpers of a command with a hundred children that do nothing."""
    script = "for i in {1..100}; do sleep 300 & done; echo up; wait"
    with subprocess.Popen(
        [WRAPPER, "bash", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"up\n"
            pids = helpers()
            # Its looks become rarer; what counts is how it stays.
            time.sleep(10)
            before = {pid: run_time(pid) for pid in pids}
            time.sleep(seconds)
            spent = {pid: run_time(pid) - before[pid] for pid in pids}
            sizes = {pid: memory(pid) for pid in pids}
        finally:
            child.terminate()
    share = sum(spent.values()) / seconds
    for pid, (resident, private) in sizes.items():
        print(f"helper {pid}: {resident:.1f} MB resident, {private:.1f} MB private (limits 12, 2)")
    print(f"100 idle children: {share:.3%} of a core for all {len(pids)} helpers (limit 0.1 %)")
    return (
        len(pids) == 3
        and share < 0.001
        and all(resident <= 12 and private <= 2 for resident, private in sizes.values())
    )


def many(env: dict[str, str], tasks: int, rounds: int) -> bool:
    """CPU time per task: the median of some rounds, each with bare starts of its own, one after the other."""
    words = [f"-n{tasks}", "--overcommit"]
    ways = {
        "bare": lambda: sum(cpu(BARE, env) for _ in range(10)) / 10,
        "srun": lambda: cpu(["srun", *words, "true"], env),
        "safe-srun": lambda: cpu([WRAPPER, *words, "true"], env),
        # What a bare start costs as a task, with as many others at once.
        "python": lambda: cpu(["srun", *words, *BARE], env),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            spent[name].append(measure())

    def per_task(name: str) -> float:
        rows = zip(spent[name], spent["srun"], spent["bare"])
        return statistics.median((more - plain) / tasks / bare for more, plain, bare in rows)

    ratio = per_task("safe-srun")
    plain, safe, bare = (statistics.median(spent[name]) for name in ("srun", "safe-srun", "bare"))
    print(
        f"{tasks} tasks: {plain:.2f} s CPU under srun, {safe:.2f} s under safe-srun; per task {ratio:.2f} bare starts "
        f"of {bare * 1000:.1f} ms (limit 1.5); a bare start as a task costs {per_task('python'):.2f}"
    )
    return ratio <= 1.5


def stdout(env: dict[str, str], megabytes: int) -> bool:
    """The rate through stdout."""
    times: dict[str, list[float]] = {"srun": [], WRAPPER: []}
    for _ in range(5):
        for tool, spent in times.items():
            before = time.perf_counter()
            line = f"{tool} head -c {megabytes}000000 /dev/zero | cat >/dev/null"
            subprocess.run(
                ["bash", "-c", line], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
            )
            spent.append(time.perf_counter() - before)
    plain, safe = (statistics.median(spent) for spent in times.values())
    print(f"{megabytes} MB through stdout: {plain:.2f} s, {safe:.2f} s; rate {plain / safe:.3f} of srun's (limit 0.95)")
    return plain / safe >= 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--only", choices=["idle", "tasks", "stdout"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        env = environment(state)
        looks = {
            "idle": lambda: idle(env, options.seconds),
            "tasks": lambda: many(env, options.tasks, options.rounds),
            "stdout": lambda: stdout(env, options.megabytes),
        }
        held = [look() for name, look in looks.items() if options.only in (None, name)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
