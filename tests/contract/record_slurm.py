"""Records what a real squeue prints for the contract tests: ``python3 tests/contract/record_slurm.py`` (root, Slurm)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "src")]

from tests.testbed.cluster import Cluster  # noqa: E402
from tests.testbed.processes import wait_until  # noqa: E402

from handwash.schedulers import slurm  # noqa: E402

# How a job is asked for, by the name of the recording. Each runs, or waits, alone in the queue.
JOBS = {
    "gres": ["--gres=gpu:1"],
    "gpus": ["--gpus=2"],
    "gpus-per-node": ["--gpus-per-node=1", "-N2"],
    "gpus-per-task": ["--gpus-per-task=1", "-n2"],
    "no-gpu": ["--time=1-02:03"],
    "exclusive": ["--exclusive", "--gres=gpu:1"],
    "array": ["--array=1-5%2", "--gres=gpu:1"],
    "held-array": ["--array=0-99:3", "--hold"],
    "het": ["-N1", "--gres=gpu:1", ":", "-N1"],
    "name-with-separators": ["-J", "a|b^^^c\x1fd"],
    "name-with-escapes": ["-J", "\x1b[31mred\x07"],
    "name-with-quotes": ["-J", 'it\'s "so" $HOME'],
    "name-with-newline": ["-J", "one\ntwo"],
    "name-in-chinese": ["-J", "训练 三号"],
    "name-of-record-separator": ["-J", "x\x1ey"],
    "name-very-long": ["-J", "n" * 600],
}


@contextmanager
def batch(cluster: Cluster, words: list[str]) -> Iterator[None]:
    """A batch job in the queue, running unless it is held; the queue is empty afterwards."""
    submitted = cluster.run(["sbatch", "--parsable", *words, "--wrap", "exec sleep 100"], user="alice", check=True)
    states = ["squeue", "-h", "-a", "-o", "%T"]
    wanted = "PENDING" if "--hold" in words else "RUNNING"
    assert wait_until(lambda: wanted in cluster.run(states).stdout, 20), submitted
    yield
    cluster.run(["scancel", "-u", cluster.users[0]], check=True)
    assert wait_until(lambda: not cluster.run(states).stdout, 20)


def main() -> None:
    """Writes one file for each recording."""
    # Heterogeneous jobs are started by the backfill scheduler alone, every 30 s by default.
    with Cluster("linuxproc", settings=["SchedulerParameters=bf_interval=1", "FirstJobId=1"]) as cluster:
        uid = cluster.uids[cluster.users[0]]
        argv = slurm.squeue_argv(uid)

        def record(name: str) -> None:
            done = cluster.run(argv, user="alice")
            assert (done.returncode, done.stderr) == (0, ""), done
            (HERE / "slurm" / f"{name}.txt").write_bytes(done.stdout.encode())

        record("empty")
        for name, words in JOBS.items():
            with batch(cluster, words):
                record(name)
        interactive = cluster.popen(["srun", "--gres=gpu:1", "-J", "by-hand", "sleep", "100"], user="alice")
        assert wait_until(lambda: "RUNNING" in cluster.run(["squeue", "-h", "-o", "%T"]).stdout, 20)
        record("interactive")
        cluster.run(["scontrol", "suspend", cluster.run(["squeue", "-h", "-o", "%i"]).stdout.strip()], check=True)
        record("suspended")
        cluster.run(["scontrol", "resume", cluster.run(["squeue", "-h", "-o", "%i"]).stdout.strip()], check=True)
        cluster.run(["scancel", "-u", cluster.users[0]], check=True)
        interactive.wait(60)
        cluster.clear()
        # A step whose process does not die at once is in state CG for a while.
        with cluster.popen(["srun", "bash", "-c", "trap '' TERM; sleep 20 & sleep 20; sleep 20"], user="alice"):
            assert wait_until(lambda: "RUNNING" in cluster.run(["squeue", "-h", "-o", "%T"]).stdout, 20)
            cluster.run(["scancel", "-u", cluster.users[0]], check=True)
            assert wait_until(lambda: "COMPLETING" in cluster.run(["squeue", "-h", "-o", "%T"]).stdout, 20)
            record("completing")
            cluster.clear()
        config = cluster.run(["scontrol", "show", "config"], user="alice", check=True).stdout
        lines = [line for line in config.splitlines() if line.startswith(("Proc", "Prolog", "Sched", "Configuration"))]
        (HERE / "slurm" / "config.txt").write_text("\n".join(lines) + "\n")
        cluster.stop_controller()
        down = cluster.run(argv, user="alice")
        (HERE / "slurm" / "down.err").write_text(f"{down.returncode}\n{down.stderr}")
        wrong = [word if not word.startswith("--user=") else "--user=nobody-of-this-name" for word in argv]
        cluster.start_controller()
        refused = cluster.run(wrong, user="alice")
        (HERE / "slurm" / "invalid-user.err").write_text(f"{refused.returncode}\n{refused.stderr}")


if __name__ == "__main__":
    main()
