"""The stand-in for PBS: it prints what was recorded, and the requests and readers of handwash get along with it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.testbed.pbs import Pbs, me
from tests.testbed.processes import wait_until

from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs as scheduler
from handwash.schedulers import pbs_accounting, pbs_job, pbs_node
from handwash.schedulers.slurm_step import GONE, THERE, UNKNOWN

RECORDED = Path(__file__).resolve().parent / "pbs"


def ask(pbs: Pbs, argv: list[str], timeout: float = 30, zone: str = "Asia/Shanghai") -> Result:
    """What a command answers; by the clock that handwash sets for it, wherever the person is."""
    env = {**pbs.environment(), "TZ": zone, **scheduler.ENVIRONMENT}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        return Result(None, late.stdout or b"", late.stderr or b"", True)
    return Result(done.returncode, done.stdout, done.stderr, False)


def jobs(pbs: Pbs, user: str | None = None) -> scheduler.Queue:
    return scheduler.parse_jobs(ask(pbs, scheduler.jobs_argv(user or me())), user or me(), time.time())


def state(pbs: Pbs, job: str, timeout: float = 30) -> str:
    return pbs_job.parse_state(ask(pbs, pbs_job.state_argv(job), timeout), job).word


@pytest.mark.parametrize(
    ("recording", "wanted"),
    [
        (
            "running",
            {"user": "alice", "gpus": 2, "interactive": True, "walltime_s": 1800, "session": 15755, "started": 0.0},
        ),
        ("queued", {"user": "alice", "state": "Q", "interactive": True}),
        ("held", {"user": "alice", "state": "H", "interactive": True}),
    ],
)
def test_it_prints_as_recorded(pbs: Pbs, recording: str, wanted: dict[str, object]) -> None:
    """The attributes of a record, but for a few that nothing reads, in the order and the form of the real one."""
    job = pbs.add(**wanted)
    (mine,) = scheduler.parse_records(ask(pbs, pbs_job.state_argv(job)).out.decode())
    (real,) = scheduler.parse_records((RECORDED / f"{recording}.txt").read_text())
    # What nothing reads and is not here; what this server learns later, and has at the end.
    missing = {"comment", "run_count", "jobdir", "etime", "session_id"}
    assert [name for name in real if name not in missing] == [name for name in mine if name not in missing]
    assert ("session_id" in mine) == ("session_id" in real)
    for name in ("job_state", "exec_host", "exec_vnode", "interactive", "Resource_List.walltime", "queue", "Rerunable"):
        assert mine.get(name) == real.get(name), name


# Printed by OpenPBS 23.06.06 for `qstat`.
TABLE = """\
Job id            Name             User              Time Use S Queue
----------------  ---------------- ----------------  -------- - -----
1.vm              run1             alice             00:00:00 R workq
2.vm              big              alice                    0 Q workq
3[].vm            arr              alice                    0 B workq
4.vm              xxxxxxxxxxxxxxx  alice                    0 H workq
5.vm              xxxxxxxxxxxxxxx* alice                    0 H workq
"""


def test_the_table(pbs: Pbs) -> None:
    """The short form, byte by byte but for the numbers and the blanks at the end of a row."""
    pbs.add("alice", name="run1")
    pbs.add("alice", "Q", name="big")
    pbs.add_array("R", "alice")
    pbs.add("alice", "H", name="x" * 15)
    pbs.add("alice", "H", name="x" * 16)
    printed = ask(pbs, ["qstat"]).out.decode()
    assert [line.rstrip() for line in printed.splitlines()] == TABLE.splitlines()


def test_jobs(pbs: Pbs) -> None:
    """The person's own, by GPUs, limit and time, read from any time zone; a record of somebody else's is none of them."""
    assert jobs(pbs).jobs == ()
    job = pbs.add(gpus=2, name="训练", interactive=True, walltime_s=3600, started=time.time() - 500)
    pbs.add("somebody", gpus=4, variables="V=\\n    Job_Owner = " + me())
    (found,) = jobs(pbs).jobs
    assert (found.id, found.state, found.name, found.gpus, found.limit_s) == (job, "RUNNING", "训练", 2, 3600)
    assert found.elapsed_s is not None and 500 <= found.elapsed_s <= 530
    assert found.interactive and found.nodes == ("vm",)
    assert [one.gpus for one in jobs(pbs, "somebody").jobs] == [4]


def test_arrays(pbs: Pbs) -> None:
    """What waits as one, what runs by itself, each once."""
    array = pbs.add_array("XRRQQ", gpus=1)
    other = pbs.add()
    first = jobs(pbs)
    assert first.begun and [(job.id, job.state) for job in first.jobs] == [(array, "PENDING"), (other, "RUNNING")]
    second = scheduler.parse_jobs(ask(pbs, scheduler.subjobs_argv(me())), me(), time.time())
    found = scheduler.with_subjobs(first, second)
    assert [(job.id, job.state) for job in found[2:]] == [("1[2].vm", "RUNNING"), ("1[3].vm", "RUNNING")]
    assert len(found) == 4


@pytest.mark.parametrize("history", [False, True])
def test_ending_a_job(pbs: Pbs, history: bool) -> None:
    """Asked for it is there for a while, asked again it says that it ends, then it is gone, with a record or without."""
    pbs.set(history=history, ends_in_s=0.5)
    job = pbs.add()
    assert state(pbs, job) == THERE
    for _time in range(2):
        assert pbs_job.parse_cancel(ask(pbs, pbs_job.cancel_argv(job)), job).word == THERE
    assert [job.state for job in jobs(pbs).jobs] == ["COMPLETING"]
    assert wait_until(lambda: state(pbs, job) == GONE, 20, 0.1)
    assert jobs(pbs).jobs == ()
    assert pbs_job.parse_cancel(ask(pbs, pbs_job.cancel_argv(job)), job).word == GONE
    assert pbs.asked() == [[job]] * 3
    asked = ask(pbs, pbs_accounting.history_argv(me()))
    if history:
        assert [run.id for run in pbs_accounting.parse_history(asked, me(), time.time()).runs] == [job]
    else:
        with pytest.raises(CouldNotTell):
            pbs_accounting.parse_history(asked, me(), time.time())


def test_ending(pbs: Pbs) -> None:
    """One that runs takes its time, one that waits is gone at once; never one of somebody else's."""
    pbs.set(ends_in_s=1000)
    ending, waiting, others = pbs.add(), pbs.add(state="Q"), pbs.add("somebody")
    ask(pbs, pbs_job.cancel_argv(ending))
    assert state(pbs, ending) == THERE
    assert pbs_job.parse_cancel(ask(pbs, pbs_job.cancel_argv(ending)), ending).word == THERE
    ask(pbs, pbs_job.cancel_argv(waiting))
    assert pbs_job.parse_cancel(ask(pbs, pbs_job.cancel_argv(others)), others).word == pbs_job.REFUSED
    assert [state(pbs, job) for job in (ending, waiting, others)] == [THERE, GONE, THERE]


def test_a_server_that_does_not_answer(pbs: Pbs) -> None:
    """Down or hanging, nothing is gone and nothing is empty."""
    job = pbs.add()
    pbs.down()
    assert state(pbs, job) == UNKNOWN
    assert pbs_job.parse_cancel(ask(pbs, pbs_job.cancel_argv(job)), job).word == UNKNOWN
    with pytest.raises(CouldNotTell, match="15010"):
        jobs(pbs)
    pbs.hang()
    assert state(pbs, job, timeout=1) == UNKNOWN
    pbs.up()
    assert state(pbs, job) == THERE


def test_inside_a_job(pbs: Pbs) -> None:
    """MOM's variables name the job; qstat is found through pbs.conf, for it is not on the PATH."""
    job = pbs.add(interactive=True)
    env = pbs.inside(job)
    assert pbs_node.job_in_environment(env) == job
    assert env["PBS_ENVIRONMENT"] == "PBS_INTERACTIVE"
    assert Path(env["PBS_NODEFILE"]).read_text() == "vm\n"
    config = pbs_node.parse_config(Path(pbs_node.config_path(env)).read_text())
    assert config.mom and config.server == "vm"
    done = subprocess.run([f"{config.commands}/qstat", job], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].split() == [job, "STDIN", me(), "00:00:00", "R", "workq"]
