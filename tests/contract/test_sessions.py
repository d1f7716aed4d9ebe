"""Sessions that nobody closed, through the front door: named at login, dealt with by `clean --session`, never a running one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.contract.test_front_door import HANDWASH, NAME, World, until
from tests.contract.test_front_door import world as world

from handwash.node import wire
from handwash.teardown import identity

SESSION = "20260101-000000-0a0b0c0d0e0f"


def record(world: World, session: str = SESSION, helper: tuple[int, int] = (1, 1), **fields: str) -> Path:
    """The file of a session that was never closed; the helper is who watches over it."""
    folder = world.home / ".local" / "state" / "handwash" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    said = {
        "id": session,
        "command": "train.py",
        "host": os.uname().nodename,
        "boot": identity.boot_id(),
        "started": "1700000000.000",
        **fields,
    }
    path = folder / f"{session}.session"
    path.write_bytes(wire.pack([*said.items(), ("helper", *helper)]))
    return path


@contextmanager
def sleeper(**env: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL, env=env, start_new_session=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_named_at_login_then_dealt_with(world: World) -> None:
    """What it has left is shown and ended, a bystander lives, and the record is closed without the word clean."""
    path = record(world)
    with sleeper(HANDWASH_SESSION=SESSION) as left, sleeper() as bystander:
        said = world.run("banner")[2]
        assert f"{left.pid} sleep" in said and f"handwash clean --session {SESSION}" in said
        code, answer = world.json("clean", "--session", SESSION, "--dry-run")
        assert code == 1 and [one["pid"] for one in answer["would_end"]] == [left.pid]
        assert path.exists() and left.poll() is None
        code, answer = world.json("clean", "--session", SESSION, "--yes")
        assert (code, answer["ended"], answer["left"]) == (0, [left.pid], [])
        assert left.wait(10) == -15 and bystander.poll() is None
    (session,) = world.json("sessions")[1]["items"]
    assert (session["outcome"], session["closed"]) == ("unconfirmed", True) and "1 process ended" in session["receipt"]
    assert SESSION not in world.run("banner")[2]
    assert world.json("clean", "--session", SESSION, "--yes")[0] == 0


def test_by_the_short_name_that_tables_show(world: World) -> None:
    """The beginning of its last part is enough where it is the only one; of two such nothing is ended."""
    path = record(world)
    with sleeper(HANDWASH_SESSION=SESSION) as left:
        for words in (["0a0b0"], ["1a0b0c"]):
            assert world.run("clean", "--yes", "--session", *words)[0] == 1
        twin = record(world, SESSION[:-6] + "ffffff")
        code, _out, err = world.run("clean", "--yes", "--session", "0a0b0c")
        assert code == 1 and left.poll() is None and "There is no session" not in err
        assert "'0a0b0c' is the beginning of more than one session: " in err and err.count(SESSION[:-6]) == 2
        twin.unlink()
        code, out, _err = world.run("clean", "--session", "0a0b0c", "--dry-run")
        assert code == 1 and str(left.pid) in out
        assert "session" in out.splitlines()[0] and "0a0b0c" in out.splitlines()[1]
        code, answer = world.json("clean", "--session", "0a0b0c", "--yes")
        assert (code, answer["ended"]) == (0, [left.pid]) and not path.exists()


def test_a_running_one_is_never_ended(world: World) -> None:
    """Its owner lives: said so, with exit code 1, whatever was asked."""
    with sleeper() as owner, sleeper(HANDWASH_SESSION=SESSION) as worker:
        record(world, helper=(owner.pid, identity.start_of(owner.pid) or 0))
        for words in ([], ["--yes"], ["--dry-run"]):
            code, out, err = world.run("clean", "--session", SESSION, *words)
            assert code == 1 and "still runs" in err and out == "", (words, out, err)
        assert world.json("clean", "--session", SESSION, "--yes")[1]["ended"] == []
        assert owner.poll() is None and worker.poll() is None
        assert SESSION not in world.run("banner")[2]
        (session,) = world.json("sessions")[1]["items"]
        assert (session["outcome"], session["ended"]) == ("running", None)


@pytest.mark.parametrize("host", ["", "elsewhere"])
def test_its_job_is_still_in_the_queue(world: World, host: str) -> None:
    """Nothing is ended; where its step still runs, the line to type names that step and not the whole job."""
    world.jobs()
    record(world, job="123", step="0", **({"host": host} if host else {}))
    answers = world.folder / "steps"
    world.script(
        "squeue", f'case "$*" in *--steps*) /bin/cat {answers} ;; *) exec /bin/cat {world.folder}/answer ;; esac'
    )
    with sleeper(HANDWASH_SESSION=SESSION) as left:
        answers.write_text("STEPID\n123.0\n123.batch\n")
        code, _out, err = world.run("clean", "--session", SESSION, "--yes")
        assert code == 1 and "scancel 123.0" in err and left.poll() is None
        world.script("squeue", f'case "$*" in *--steps*) exit 1 ;; *) exec /bin/cat {world.folder}/answer ;; esac')
        assert world.run("clean", "--session", SESSION, "--yes")[0] == 3 and left.poll() is None
        # The step is over, the allocation lives on: what is left of the session goes.
        world.script(
            "squeue", f'case "$*" in *--steps*) echo STEPID 123.batch ;; *) exec /bin/cat {world.folder}/answer ;; esac'
        )
        code, answer = world.json("clean", "--session", SESSION, "--yes")
        assert (code, answer["ended"]) == (0, [left.pid])


def test_the_queue_does_not_answer(world: World) -> None:
    """Whether its job is over cannot be told: nothing is ended."""
    world.script("squeue", "exit 1")
    for host in (os.uname().nodename, "elsewhere"):
        record(world, job="123", step="0", host=host)
        with sleeper(HANDWASH_SESSION=SESSION) as left:
            assert world.run("clean", "--session", SESSION, "--yes")[0] == 3
            assert left.poll() is None


# `safe-srun --local` in a job and beside one


@pytest.mark.parametrize(
    ("env", "job", "step"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}, "7", "0"),
        ({"PBS_JOBID": "7.server", "PBS_ENVIRONMENT": "PBS_INTERACTIVE"}, "7.server", None),
        # salloc's shell on the login node, and what outlived it; a number that was typed by hand.
        ({"SLURM_JOB_ID": "7"}, None, None),
        ({"PBS_JOBID": "7.server"}, None, None),
        ({}, None, None),
    ],
)
def test_a_local_one_is_on_record_with_the_job_that_it_is_in(
    world: World, env: dict[str, str], job: str | None, step: str | None
) -> None:
    argv = [*HANDWASH, "safe-srun", "--local", "/bin/sh", "-c", "exit 3"]
    assert subprocess.run(argv, env={**world.env, **env}, stdin=subprocess.DEVNULL).returncode == 3
    (session,) = world.json("sessions")[1]["items"]
    assert (session["job"], session["step"], session["outcome"]) == (job, step, "clean")


@pytest.mark.parametrize("queued", [True, False])
def test_a_local_one_in_an_allocations_shell(world: World, queued: bool) -> None:
    """What it left bears the number of a job that it was never in, whether that goes on or is long over."""
    if queued:
        world.jobs()
    path = record(world, local="1", allocation="123")
    with sleeper(HANDWASH_SESSION=SESSION, SLURM_JOB_ID="123") as left, sleeper(SLURM_JOB_ID="123") as bystander:
        said = world.run("banner")[2]
        assert f"{left.pid} sleep" in said and f"handwash clean --session {SESSION}" in said, said
        code, answer = world.json("clean", "--session", SESSION, "--yes")
        assert (code, answer["ended"]) == (0, [left.pid]) and bystander.poll() is None and not path.exists()


@pytest.mark.parametrize("fields", [{"job": "7"}, {"job": "7", "step": "0"}, {"allocation": "7"}, {}], ids=str)
def test_a_local_one_on_another_host(world: World, fields: dict[str, str]) -> None:
    """It may run there, whatever the queue says of a job: it is neither named, nor closed, nor ended from here."""
    path = record(world, local="1", host="elsewhere", **fields)
    with sleeper(HANDWASH_SESSION=SESSION) as worker:
        for _ in range(2):
            assert SESSION not in world.run("banner")[2]
        code, _out, err = world.run("clean", "--session", SESSION, "--yes")
        assert code == 3 and "cannot be told from here" in err, err
        assert worker.poll() is None and path.exists()
    (session,) = world.json("sessions")[1]["items"]
    assert (session["outcome"], session["closed"]) == ("running", False)


def test_foreign_text_is_harmless(world: World) -> None:
    """Names in a record reach the terminal without their escape sequences."""
    record(world, command=NAME, job="9", step=NAME)
    for words in (["sessions"], ["banner"], ["clean", "--session", SESSION, "--dry-run"]):
        _code, out, err = world.run(*words)
        assert not {"\x1b", "\x07", "\u202e"} & set(out + err) and "Traceback" not in err


def test_a_real_one_that_lost_its_watchers(world: World) -> None:
    """`safe-srun --local`, every process of handwash killed at once as by a power cut: found, named, ended."""
    script = 'echo $$ >"$HOME/pid"; exec /bin/sleep 60'
    child = subprocess.Popen(
        [*HANDWASH, "safe-srun", "--local", "/bin/sh", "-c", script], env=world.env, stdin=subprocess.DEVNULL
    )
    until(lambda: (world.home / "pid").exists() and (world.home / "pid").read_text().strip())
    pid = int((world.home / "pid").read_text())
    start = identity.start_of(pid)
    folder = world.home / ".local" / "state" / "handwash" / "sessions"

    def helpers() -> set[int]:
        rows = [row for path in folder.iterdir() for row in wire.unpack(path.read_bytes()) or []]
        return {int(row[1]) for row in rows if row[0] == "helper"}

    until(lambda: len(helpers()) >= 3 and any(path.suffix == ".part" for path in folder.iterdir()))
    for number in (19, 9):  # stopped first, so that none of them can take over from another
        for helper in helpers():
            os.kill(helper, number)
    child.wait(10)
    try:
        assert identity.same(pid, start or 0)
        said = world.run("banner")[2]
        assert "never closed" in said and str(pid) in said, said
        (session,) = world.json("sessions")[1]["items"]
        assert pid in [one["pid"] for one in session["members"] if one["alive"]]
        code, answer = world.json("clean", "--session", session["id"], "--yes")
        assert code == 0 and pid in answer["ended"]
    finally:
        who = identity.same(pid, start or 0)
        if who is not None and who.alive:
            os.kill(pid, 9)
