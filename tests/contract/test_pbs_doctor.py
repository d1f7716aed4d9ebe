"""`handwash doctor`, and what it tells people to type, on a PBS cluster; sessions of `safe-srun --local` inside a job of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

import pexpect
import pytest
from tests.contract.test_doctor import ask
from tests.contract.test_front_door import HANDWASH, MAIN, World, until
from tests.contract.test_front_door import world as world
from tests.contract.test_sessions import record, sleeper
from tests.testbed.driver.fake import GIB, FakeDriver
from tests.testbed.pbs import Pbs

from handwash.node import wire

# Not one of other tests that may run beside these.
SESSION = "20260101-000000-0b0c0d0e0f0a"
SAFE_SRUN = [sys.executable, "-I", "-S", str(MAIN.parent / "srun" / "entry.py")]
ASK_FOR_ONE = "qsub -I -l select=1:ncpus=4:ngpus=1 -l walltime=01:00:00"
SLURM = ("srun ", "sinfo", "scontrol", "squeue", "scancel", "sbatch", "Slurm")


@pytest.fixture
def cluster(world: World, pbs: Pbs) -> World:
    """A login node of a PBS cluster: pbs.conf says that this host runs no jobs, and there is nothing of Slurm."""
    pbs.config.write_text(pbs.config.read_text().replace("PBS_START_MOM=1", "PBS_START_MOM=0"))
    world.env.update(pbs.environment(str(world.bin)), SLURM_CONF=str(world.folder / "none"))
    (world.bin / "squeue").unlink()
    (world.bin / "scontrol").unlink()
    world.env.update(HANDWASH_LOGIN_CORES="1000", HANDWASH_LOGIN_MEMORY="4000", HANDWASH_LOGIN_THREADS="100000")
    return world


def inside(world: World, pbs: Pbs, job: str) -> dict[str, str]:
    return pbs.inside(job, str(world.bin))


def of_slurm(answer: dict[str, Any]) -> list[str]:
    """The sentences of an answer that speak of Slurm, but for the wrapper's own name."""
    said = [text for one in answer["findings"] for text in (one["what"], one["remedy"])]
    return [text for text in said if any(word in text.replace("safe-srun", "") for word in SLURM)]


def test_a_login_node(cluster: World, pbs: Pbs) -> None:
    """How many GPUs there are and how many are idle, by pbsnodes, and the line that gets one."""
    pbs.vnode("gpu1", gpus=4, used=1)
    pbs.vnode("gpu2", gpus=4, state="offline")
    pbs.vnode("fast1", gpus=2, queue="fast")
    code, found, answer = ask(cluster)
    assert code == 0 and {"login-node", "nvidia-smi-missing", "proctrack"} <= set(found), found
    assert answer["partitions"] == [
        {"name": "", "default": True, "gpus": 8, "idle": 3, "limit_s": None},
        {"name": "fast", "default": False, "gpus": 2, "idle": 2, "limit_s": None},
    ]
    assert answer["try"] == found["login-node"]["remedy"] == ASK_FOR_ONE
    assert "keeps the whole job and its GPUs allocated" in found["proctrack"]["what"]
    assert of_slurm(answer) == []
    said = cluster.run("doctor")[1]
    assert "3 of 8 GPUs idle now" in said and "queue fast: 2 of 2 GPUs idle now" in said
    assert said.rstrip().endswith(ASK_FOR_ONE)


def test_nobody_counts_gpus(cluster: World, pbs: Pbs) -> None:
    """No number is made up, and the line is the one that serves most sites; without pbsnodes too."""
    for _time in range(2):
        code, found, answer = ask(cluster)
        assert (code, answer["partitions"], answer["try"]) == (0, [], None)
        assert found["login-node"]["remedy"] == ASK_FOR_ONE
        assert "GPUs on this cluster" not in cluster.run("doctor")[1]
        (pbs.bin / "pbsnodes").unlink(missing_ok=True)


def test_the_server_is_down(cluster: World, pbs: Pbs) -> None:
    """Said with PBS's own words, and how to see whether it is up again; it is not asked a second time."""
    pbs.down()
    code, found, answer = ask(cluster)
    assert code == 1 and found["scheduler-unreachable"]["remedy"] == "qstat -B"
    assert "Connection refused" in found["scheduler-unreachable"]["evidence"] or "15010" in str(found)
    assert answer["try"] is None and of_slurm(answer) == []
    assert pbs.asked("pbsnodes") == []


def test_pbsnodes_that_fails(cluster: World, pbs: Pbs) -> None:
    """Could not tell, which is not the same as no GPUs."""
    program = pbs.bin / "pbsnodes"
    program.write_text("#!/bin/sh\necho 'pbsnodes: \033[31mError 15007' >&2; exit 1\n")
    code, found, answer = ask(cluster)
    assert code == 3 and [why for why in answer["unknown"] if "Error 15007" in why]
    assert found["login-node"]["remedy"] == ASK_FOR_ONE
    assert "\033" not in cluster.run("doctor")[1]


def test_inside_a_job(cluster: World, pbs: Pbs, fake_driver: FakeDriver) -> None:
    """One without a GPU; a broken GPU; one that is over. What to type next is PBS's."""
    none, one, over = (pbs.add(gpus=gpus, interactive=True) for gpus in (0, 1, 1))
    _code, found, answer = ask(cluster, env=inside(cluster, pbs, none))
    assert ASK_FOR_ONE in found["no-gpu-requested"]["remedy"] and of_slurm(answer) == []
    env = {**inside(cluster, pbs, one), **fake_driver.env(), "HANDWASH_DEADLINE": "5"}
    fake_driver.gpus(2, memory_total=40 * GIB).gpu(1, lost=1)
    _code, found, answer = ask(cluster, env=env)
    assert "host=NODE" in found["gpu-lost"]["remedy"] and of_slurm(answer) == []
    assert "no-gpu-requested" not in found and "cgroup hook" in found["proctrack"]["evidence"]
    fake_driver.gpus(2, memory_total=40 * GIB).mig(0, 1)
    _code, found, answer = ask(cluster, env=env)
    assert f"{ASK_FOR_ONE} -l place=excl" in found["gpu-shared"]["remedy"]
    pbs.end(over)
    pbs.config.write_text(pbs.config.read_text().replace("PBS_START_MOM=0", "PBS_START_MOM=1"))
    _code, found, answer = ask(cluster, env=inside(cluster, pbs, over))
    assert f"PBS_JOBID={over} is stale" in found["no-job"]["evidence"]
    assert found["no-job"]["remedy"] == ASK_FOR_ONE and of_slurm(answer) == []


def test_in_chinese(cluster: World, pbs: Pbs) -> None:
    """No sentence of it is left in English, nor names Slurm's commands."""
    _code, found, answer = ask(cluster, env={"HANDWASH_LANG": "zh_CN"})
    assert "不会释放" in found["proctrack"]["what"] and of_slurm(answer) == []


# Who keeps an interactive job


def at_terminal(world: World, env: dict[str, str], command: str, words: str = "leave exit") -> tuple[str, str]:
    """(the pid of `command`, which a person has started at their terminal; what handwash says there then)."""
    handwash = f"'{HANDWASH[0]}' -I -S '{MAIN}' {words}"
    script = f"{command} &\necho started $!\n{handwash}\nkill $!\n"
    names = {**world.env, **env, "TERM": "dumb", "HANDWASH_ON_EXIT": "warn", "PATH": f"{world.bin}:/usr/bin:/bin"}
    shell = pexpect.spawn(
        "/bin/bash", ["-c", script], env=names, encoding="utf-8", timeout=60, dimensions=(50, 300), echo=False
    )
    try:
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    said = str(shell.before).replace("\r\n", "\n")
    return said.partition("started ")[2].split()[0], said


@pytest.mark.parametrize("words", ["leave exit", "leave eof", "check", "status", "banner"])
def test_the_holder_of_the_terminal_is_named(cluster: World, pbs: Pbs, words: str) -> None:
    """With the job that it keeps, and what to do."""
    job = pbs.add(gpus=1, interactive=True)
    pid, said = at_terminal(cluster, inside(cluster, pbs, job), "/bin/sleep 60", words)
    keeps = (
        f"Process {pid} (sleep) holds this terminal: after you leave, job {job} and the GPUs it holds stay allocated"
    )
    assert keeps in said and "nohup COMMAND >FILE 2>&1 </dev/null &" in said, said


def test_a_service_that_holds_the_terminal(cluster: World, pbs: Pbs) -> None:
    """It is no leftover, and keeps the job all the same."""
    job = pbs.add(gpus=1, interactive=True)
    pid, said = at_terminal(cluster, inside(cluster, pbs, job), "exec -a tmux /bin/sleep 60")
    assert f"Process {pid} (tmux) holds this terminal: after you leave, job {job} " in said, said


@pytest.mark.parametrize(
    ("command", "is_inside"), [("/bin/sleep 60 >/dev/null 2>&1 </dev/null", True), ("/bin/sleep 60", False)]
)
def test_what_keeps_no_job(cluster: World, pbs: Pbs, command: str, is_inside: bool) -> None:
    """One that holds no terminal; one that is in no job."""
    job = pbs.add(gpus=1, interactive=True)
    _pid, said = at_terminal(cluster, inside(cluster, pbs, job) if is_inside else {}, command)
    assert "this terminal" not in said and ("before you leave" in said) == is_inside, said


# safe-srun in a job of PBS


def safe_srun(world: World, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    names = {**world.env, **env}
    return subprocess.run(
        [*SAFE_SRUN, *words], env=names, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_there_is_no_srun(cluster: World, pbs: Pbs) -> None:
    done = safe_srun(cluster, {}, "python", "train.py")
    assert done.returncode == 125 and f"PBS has no srun: get a job first ({ASK_FOR_ONE})" in done.stderr
    assert "safe-srun --local COMMAND" in done.stderr


@pytest.mark.parametrize("array", [False, True])
def test_a_local_session_inside_a_job(cluster: World, pbs: Pbs, array: bool) -> None:
    """What the command leaves is ended; it is on record with the job, whose id need not be a number."""
    job = pbs.add_array("RR", gpus=1).replace("[]", "[2]") if array else pbs.add(gpus=1, interactive=True)
    env = inside(cluster, pbs, job)
    leaves = "setsid -f /bin/sleep 60; exit 3"
    done = safe_srun(cluster, {**env, "PATH": f"{cluster.bin}:/usr/bin:/bin"}, "--local", "/bin/sh", "-c", leaves)
    assert done.returncode == 3, done
    (session,) = cluster.json("sessions", env=env)[1]["items"]
    assert (session["job"], session["outcome"], session["closed"]) == (job, "clean", True), session
    assert session["processes"] >= 2
    assert f"job {job}" in cluster.run("sessions", env=env)[1]


@pytest.mark.parametrize("array", [False, True])
def test_a_local_session_that_nobody_closed(cluster: World, pbs: Pbs, array: bool) -> None:
    """In a job that goes on: what it left is named and ended, and nobody is told to cancel the job; then it is closed."""
    job = pbs.add_array("RR").replace("[]", "[2]") if array else pbs.add(interactive=True)
    env = inside(cluster, pbs, job)
    path = record(cluster, SESSION, job=job, local="1")
    with sleeper(**{**env, "HANDWASH_SESSION": SESSION}) as left, sleeper(**env) as bystander:
        said = cluster.run("banner", env=env)[2]
        assert f"{left.pid} sleep" in said and f"handwash clean --session {SESSION}" in said and "qdel" not in said, (
            said
        )
        code, answer = cluster.json("clean", "--session", SESSION, "--yes", env=env)
        assert (code, answer["ended"]) == (0, [left.pid]), answer
        assert bystander.poll() is None and not path.exists()
    path = record(cluster, SESSION[:-1] + "0", job=job, local="1")
    assert "nothing of it is left here" in cluster.run("banner", env=env)[2] and not path.exists()
    assert pbs.asked("qdel") == []


def test_a_local_session_that_was_killed(cluster: World, pbs: Pbs) -> None:
    """With all that watched over it: the job that it ran in is not its own, so nobody is told to end that."""
    job = pbs.add(interactive=True)
    env = inside(cluster, pbs, job)
    folder = cluster.home / ".local" / "state" / "handwash" / "sessions"

    def rows(kind: str) -> list[list[str]]:
        return [row for path in folder.glob(f"*.{kind}") for row in wire.unpack(path.read_bytes()) or []]

    argv = [*SAFE_SRUN, "--local", "/bin/sleep", "60"]
    with subprocess.Popen(argv, env={**cluster.env, **env}, stdin=subprocess.DEVNULL, start_new_session=True) as owner:
        try:
            until(lambda: any(row[0] == "process" for row in rows("part")))
        finally:
            watchers = {int(row[1]) for kind in ("session", "part") for row in rows(kind) if row[0] == "helper"}
            # Each stopped before the first dies, so that none can do its work.
            send(signal.SIGSTOP, {owner.pid, *watchers})
            send(signal.SIGKILL, {owner.pid, *watchers})
    left = {int(row[1]) for row in rows("part") if row[0] == "process"}
    try:
        said = cluster.run("banner", env=env)[2]
        assert "never closed" in said and "qdel" not in said, said
        code, _out, err = cluster.run("clean", "--yes", "--session", rows("session")[0][1], env=env)
        assert "qdel" not in err and code == 0, err
    finally:
        send(signal.SIGKILL, left)


def send(number: signal.Signals, pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def test_a_session_of_a_job_in_the_queue(cluster: World, pbs: Pbs) -> None:
    """One that made its job: how to cancel that is said in PBS's words, quoted where a shell would take it for a pattern."""
    job = pbs.add_array("RR").replace("[]", "[2]")
    record(cluster, SESSION, job=job)
    assert f"its job is still in the queue: qdel '{job}'" in cluster.run("banner")[2]
    code, _out, err = cluster.run("clean", "--session", SESSION, "--yes")
    assert code == 1 and f"end that first: qdel '{job}'. Nothing was ended." in err


def test_a_shell_that_was_opened_beside_a_job(cluster: World, pbs: Pbs) -> None:
    """By ssh, on the node where the job runs: remembered though its id is no number, and told when the job is over."""
    pbs.config.write_text(pbs.config.read_text().replace("PBS_START_MOM=0", "PBS_START_MOM=1"))
    here = os.uname().nodename.partition(".")[0]
    job = pbs.add(more={"exec_host": f"{here}/0", "Job_Owner": f"{pbs_user()}@elsewhere"})
    line = f"'{HANDWASH[0]}' -I -S '{MAIN}'"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"{line} banner; read _go; {line} doctor"],
        env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            assert shell.stdin is not None and shell.stdout is not None
            state = cluster.home / ".local" / "state" / "handwash"
            until(lambda: bool(list(state.glob("opened.*"))), 30)
            pbs.end(job)
            said = shell.communicate(b"\n", timeout=30)[0].decode()
            assert f"This shell outlives your job {job}" in said
        finally:
            shell.kill()


def pbs_user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
