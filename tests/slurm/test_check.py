"""`where` and `check` on a real cluster: every place where a person can stand, and what earlier jobs have left there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.slurm.bystanders import bystanders
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import Identity, identity, running, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

# Three sleepers that let go of the step's output, so that the job ends while they live on; their pids are printed.
LEAKY = """
sleep 108.1 </dev/null >/dev/null 2>&1 & one=$!
setsid sleep 108.2 </dev/null >/dev/null 2>&1 & two=$!
three=$( (setsid nohup sleep 108.3 </dev/null >/dev/null 2>&1 & echo $!) )
for pid in $one $two $three; do
  until read -r name <"/proc/$pid/comm" && [ "$name" = sleep ]; do sleep 0.02; done
done
echo $one $two $three
"""


def ask(cluster: Cluster, *words: str, user: str | None = "alice", **options: Any) -> tuple[int, dict[str, Any]]:
    """The exit code and the object of a command with --json, which may be run by way of others."""
    done = cluster.run([*words, "--json"], user=user, **options)
    assert done.stdout, done
    return done.returncode, json.loads(done.stdout)


def leftovers(answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {item["pid"]: item for item in answer["processes"]["items"] if item["leftover"]}


@contextmanager
def left_by_a_job(cluster: Cluster) -> Iterator[tuple[str, list[Identity]]]:
    """The number of a job that is over, and the sleepers that it has left."""
    done = cluster.run(["srun", "-J", "leaky", "bash", "-c", f"echo $SLURM_JOB_ID; {LEAKY}"], user="alice", check=True)
    job, *pids = done.stdout.split()
    sleepers = [who for who in (identity(int(pid)) for pid in pids) if who]
    try:
        assert len(sleepers) == 3, "nothing was left behind; this is no test of what finds it"
        assert wait_until(lambda: job not in [row.id for row in cluster.jobs()], 20)
        yield job, sleepers
    finally:
        for who in sleepers:
            processes.send(who, 9)


@contextmanager
def batch(cluster: Cluster, *words: str) -> Iterator[str]:
    """The number of a running batch job that sleeps."""
    argv = ["sbatch", "--parsable", "-J", "sleeper", *words, "--wrap", "exec sleep 107.7"]
    job = cluster.run(argv, user="alice", check=True).stdout.strip()
    try:
        # RUNNING comes before the script runs.
        assert wait_until(lambda: _sleeps(cluster, job), 20)
        yield job
    finally:
        cluster.run(["scancel", job], user="alice")
        assert wait_until(lambda: job not in [row.id for row in cluster.jobs()], 20)


def _sleeps(cluster: Cluster, job: str) -> bool:
    return any(
        processes.arguments(pid)[1:] == ["107.7"] and processes.environment(pid).get("SLURM_JOB_ID") == job
        for pid in cluster.processes("alice")
    )


# Where


def test_the_login_shell(any_cluster: Cluster) -> None:
    """A login node, by the cluster's own configuration."""
    code, answer = ask(any_cluster, "handwash", "where")
    assert (code, answer["kind"], answer["job"]) == (0, "login", None)


def test_inside_a_step(cluster: Cluster) -> None:
    """A compute node inside the job, whichever process tracking the site has."""
    code, answer = ask(cluster, "srun", "-w", "n2", "handwash", "where")
    assert (code, answer["kind"], answer["host"]) == (0, "compute", "n2") and answer["job"].isdigit()


def test_the_shell_of_an_allocation(any_cluster: Cluster) -> None:
    """salloc's shell sits on the login node; a step in it does not."""
    code, answer = ask(any_cluster, "salloc", "-Q", "--gres=gpu:1", "handwash", "where")
    assert (code, answer["kind"]) == (0, "allocation-shell") and answer["job"].isdigit()
    assert ask(any_cluster, "salloc", "-Q", "srun", "handwash", "where")[1]["kind"] == "compute"


def test_how_many_gpus_the_allocation_holds_is_said(any_cluster: Cluster) -> None:
    """However they were asked for; what salloc's shell itself knows (the hook's first line) is what was asked for."""
    for words, count, known in ((["--gpus=2"], 2, "2"), (["-N2", "--gres=gpu:1"], 2, ""), (["--gres=gpu:1"], 1, "")):
        script = "echo known=$SLURM_GPUS; handwash where"
        done = any_cluster.run(["salloc", "-Q", *words, "sh", "-c", script], user="alice", check=True)
        assert f"known={known}\n" in done.stdout
        assert re.search(rf": you hold {count} GPUs? in job \d+, but this shell is on the login node", done.stdout), (
            done
        )


def test_beside_a_batch_job(any_cluster: Cluster) -> None:
    """A step that overlaps a batch job is inside that job, and the batch script is not its leftover."""
    with batch(any_cluster, "-w", "n1") as job:
        step = ["srun", f"--jobid={job}", "--overlap"]
        code, answer = ask(any_cluster, *step, "handwash", "where")
        assert (code, answer["kind"], answer["job"]) == (0, "compute", job)
        code, answer = ask(any_cluster, *step, "handwash", "check")
        assert (code, answer["verdict"]) == (0, "clean"), leftovers(answer)
        script = [item for item in answer["processes"]["items"] if item["command"].endswith("107.7")]
        assert {(item["whose"], item["job"]) for item in script} == {("living-job", job)}


@pytest.mark.parametrize("node", [None, "n1"])
def test_a_stale_variable(any_cluster: Cluster, node: str | None) -> None:
    """A tmux that was started inside a job keeps its variables when the job is over."""
    env = {"SLURM_JOB_ID": "999999", **({"SLURMD_NODENAME": node} if node else {})}
    code, answer = ask(any_cluster, "handwash", "where", env=env)
    assert (code, answer["kind"], answer["job"]) == (0, "login", None)
    assert any("999999" in why for why in answer["why"])


# Check


def test_a_clean_login_shell(any_cluster: Cluster) -> None:
    """Nothing in the queue, nothing left over."""
    code, answer = ask(any_cluster, "handwash", "check")
    assert (code, answer["verdict"]) == (0, "clean")
    assert answer["jobs"] == {"known": True, "why": None, "items": []}


def test_a_clean_step(cluster: Cluster) -> None:
    """Asked again and again inside a job: handwash and what it has started are never the job's leftovers."""
    again = "for n in 1 2 3; do handwash check >/dev/null || exit $?; done; exec handwash check --json"
    done = cluster.run(["srun", "bash", "-c", again], user="alice")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["verdict"] == "clean"


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        (["--gres=gpu:1"], 1),
        (["--gpus=2"], 2),
        (["--gpus-per-node=1", "-N2"], 2),
        (["--gpus-per-task=1", "-n2"], 2),
        ([], 0),
    ],
)
def test_how_many_gpus_a_job_holds(any_cluster: Cluster, words: list[str], gpus: int) -> None:
    """However they were asked for."""
    with batch(any_cluster, *words) as number:
        code, answer = ask(any_cluster, "handwash", "check")
        (job,) = answer["jobs"]["items"]
        assert (code, job["id"], job["gpus"], job["interactive"]) == (0, number, gpus, False)


def test_odd_names(any_cluster: Cluster) -> None:
    """Separators, quotes and escapes in a job's name shift no column and reach no terminal."""
    name = "a|b^^^\x1fc \x1b[31m'\"$(id)"
    with batch(any_cluster, "-J", name, "--gres=gpu:1"):
        (job,) = ask(any_cluster, "handwash", "check")[1]["jobs"]["items"]
        assert (job["name"], job["gpus"], job["partition"]) == (name, 1, "main")
        done = any_cluster.run(["handwash", "check"], user="alice")
        assert done.returncode == 0 and "\x1b" not in done.stdout and "\\x1b[31m" in done.stdout


def test_filters_in_the_environment(any_cluster: Cluster) -> None:
    """A person's own squeue variables hide nothing from the check."""
    env = {"SQUEUE_STATES": "CD", "SQUEUE_FORMAT": "%i", "SQUEUE_PARTITION": "none", "SLURM_TIME_FORMAT": "relative"}
    with batch(any_cluster) as number:
        code, answer = ask(any_cluster, "handwash", "check", env=env)
        assert code == 0 and [job["id"] for job in answer["jobs"]["items"]] == [number]


def test_a_suspended_job_is_a_living_one(any_cluster: Cluster) -> None:
    """What it has on the node is no leftover while it waits."""
    with batch(any_cluster) as number:
        any_cluster.run(["scontrol", "suspend", number], check=True)
        try:
            code, answer = ask(any_cluster, "handwash", "check")
            assert code == 0 and [job["state"] for job in answer["jobs"]["items"]] == ["SUSPENDED"]
            assert "living-job" in {item["whose"] for item in answer["processes"]["items"]}
        finally:
            any_cluster.run(["scontrol", "resume", number], check=True)


def test_what_an_ended_job_has_left(cluster_linuxproc: Cluster) -> None:
    """Found on the node, with the job that it was, while nobody else's and no living job's processes are counted."""
    cluster = cluster_linuxproc
    with bystanders(cluster), left_by_a_job(cluster) as (job, sleepers):
        code, answer = ask(cluster, "handwash", "check")
        assert (code, answer["verdict"]) == (1, "leftover")
        found = leftovers(answer)
        assert set(found) == {who.pid for who in sleepers}
        assert {(item["job"], item["whose"], item["fate"]) for item in found.values()} == {
            (job, "ended-job", "survives")
        }
        others = {item["whose"] for item in answer["processes"]["items"] if item["pid"] not in found}
        assert "living-job" in others
        shown = cluster.run(["handwash", "check"], user="alice")
        assert shown.returncode == 1 and all(str(who.pid) in shown.stdout for who in sleepers)
        assert "handwash clean" in shown.stdout
        # The same from inside another job, on the same node; and nothing of it for another user or for root.
        code, answer = ask(cluster, "srun", "-w", "n1", "--overcommit", "handwash", "check")
        assert code == 1 and {who.pid for who in sleepers} <= set(leftovers(answer))
        assert ask(cluster, "handwash", "check", user="bob")[0] == 0


BURN = "import time; end = time.monotonic() + 90\nwhile time.monotonic() < end: pass"


def test_a_leftover_at_full_speed_shows_its_age_and_its_cpu_time(cluster_linuxproc: Cluster) -> None:
    """What an ended job has left computes on: how long it has been there, and how much it has used."""
    cluster = cluster_linuxproc
    script = f"setsid -f /usr/bin/python3 -c '{BURN}' </dev/null >/dev/null 2>&1; echo $SLURM_JOB_ID"
    job = cluster.run(["srun", "bash", "-c", script], user="alice", check=True).stdout.strip()
    (worker,) = [
        who for pid in cluster.processes("alice") if BURN in processes.arguments(pid) and (who := identity(pid))
    ]
    try:
        assert wait_until(lambda: job not in [row.id for row in cluster.jobs()], 20)

        def row() -> str:
            shown = cluster.run(["handwash", "check"], user="alice").stdout
            return next((line for line in shown.splitlines() if line.startswith(f"{worker.pid} ")), "")

        assert wait_until(lambda: re.search(rf" 0:\d\d +0:0[1-9] +{job} +an ended job", row()), 20)
    finally:
        processes.send(worker, 9)


def test_root_sees_no_leftovers_in_a_living_job(cluster: Cluster) -> None:
    """Root's own queue does not hold alice's job: neither that nor slurmstepd is a leftover of root's."""
    with batch(cluster, "--gres=gpu:1"):
        done = cluster.run(["handwash", "check", "--json"])
        mine = set(leftovers(json.loads(done.stdout)))
        steps = {pid for pid in processes.pids() if processes.program(pid).startswith("slurmstepd")}
        assert steps and not mine & (steps | set(cluster.processes("alice")))


def test_a_crowd_in_the_queue(any_cluster: Cluster) -> None:
    """A few hundred jobs are read as fast as one."""
    argv = ["sbatch", "--parsable", "--hold", "--array=0-299", "-J", "n" * 200, "--wrap", "true"]
    job = any_cluster.run(argv, user="alice", check=True).stdout.strip()
    try:
        # Each task that is treated by itself becomes a row of its own.
        any_cluster.run(["scontrol", "update", f"jobid={job}_[0-299]", "nice=5"], user="alice", check=True)
        code, answer = ask(any_cluster, "handwash", "check")
        assert code == 0 and answer["jobs"]["items"]
    finally:
        any_cluster.run(["scancel", job], user="alice", check=True)


def test_the_wheel_is_what_was_tested(any_cluster: Cluster, handwash_venv: Path) -> None:
    """The command that the users find is that of the installed wheel."""
    found = any_cluster.run(["bash", "-c", "type -P handwash"], user="alice").stdout.strip()
    assert found == str(handwash_venv / "bin" / "handwash")
    assert subprocess.run([found, "--version"], capture_output=True).returncode == 0


def test_nobody_is_running_afterwards(any_cluster: Cluster) -> None:
    """What the look at the queue had started is gone when handwash is."""
    child = any_cluster.popen(["handwash", "check"], user="alice", stdout=subprocess.DEVNULL)
    who = identity(child.pid)
    assert child.wait(20) == 0 and who and not running(who)
    assert wait_until(lambda: not any_cluster.processes("alice"), 5)


def test_at_a_terminal_inside_a_job(cluster_linuxproc: Cluster) -> None:
    """What a check is piped into is not the job's leftover; what runs in the background is."""
    cluster = cluster_linuxproc
    env = {**cluster.env("alice"), "TERM": "dumb", "PS1": "> "}
    words = ["-w", "n1", "--pty", "bash", "--norc", "-i"]
    shell = pexpect.spawn(
        "srun", words, env=env, preexec_fn=cluster.become("alice"), encoding="utf-8", timeout=20, echo=False
    )
    try:
        codes = []
        for line in (
            "handwash check | cat",
            "handwash check | tee /dev/null | cat",
            "sleep 104.9 & handwash check | cat",
            "kill %1; wait; handwash check | cat",
        ):
            shell.sendline(line + "; echo code=${PIPESTATUS[0]}")
            shell.expect(r"code=(\d+)\r")
            codes.append(shell.match.group(1))
        assert codes == ["0", "0", "1", "0"]
        shell.sendline("exit")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert cluster.wait_no_jobs(20)


@pytest.mark.parametrize("words", [["handwash"], ["srun", "handwash"]])
def test_where_proc_hides_other_peoples_processes(any_cluster: Cluster, words: list[str]) -> None:
    """hidepid=2: the ancestors that are root's cannot be seen, and the other evidence tells."""
    entry = any_cluster.account("alice")
    person = f"setpriv --reuid={entry.pw_uid} --regid={entry.pw_gid} --init-groups"
    # A mount of its own: a remount would change the one that the whole machine shares.
    hidden = f'mount -t proc -o hidepid=2 proc /proc && cd {entry.pw_dir} && exec {person} "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hidden, "sh", *words]
    code, answer = ask(any_cluster, *argv, "check", user=None, env=any_cluster.env("alice"))
    assert (code, answer["verdict"]) == (0, "clean")
    assert answer["node"]["kind"] == ("login" if words == ["handwash"] else "compute")
