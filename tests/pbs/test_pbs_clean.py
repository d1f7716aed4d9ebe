"""What is left over on a node of a PBS cluster, what `clean` ends and offers, and what has to survive it."""

from __future__ import annotations

import shutil
import signal
import time

import pexpect
import pytest
from tests.contract.test_front_door import CLEAN, shape, until
from tests.testbed import processes
from tests.testbed.pbs_world import PbsWorld
from tests.testbed.processes import wait_until


@pytest.fixture
def node(pbs_world: PbsWorld) -> PbsWorld:
    """A node that runs jobs; the shell that asks is in none."""
    pbs_world.on_compute_node()
    return pbs_world


def at_terminal(world: PbsWorld, answer: str, *, env: dict[str, str] | None = None) -> tuple[int, str]:
    """`handwash clean` where somebody answers what is asked of jobs, and says no to all else."""
    child = world.terminal([*world.handwash, "clean"], env)
    said = ""
    # More than the thirty seconds for which a job is waited for.
    while child.expect([r"\[y/N\] ", pexpect.EOF], timeout=60) == 0:
        said += child.before + child.after
        child.send(answer if "Cancel it" in child.before else "n\n")
    said += child.before
    child.close()
    return child.exitstatus, said


@pytest.mark.parametrize("history", [False, True])
def test_of_a_job_that_has_ended(node: PbsWorld, history: bool) -> None:
    """Found and ended; those of jobs that go on, of this shell's and of another, are not touched."""
    node.pbs.set(history=history)
    over, going, own, queued = node.job(), node.job(), node.job(interactive=False), node.job(state="E")
    left = node.sleeper(node.inside(over))
    spared = [node.sleeper(node.inside(job)) for job in (going, own, queued)]
    node.pbs.end(over)
    row = node.row(left)
    assert (row["job"], row["whose"], row["fate"], row["leftover"]) == (over, "ended-job", "survives", True)
    assert [node.row(pid)["leftover"] for pid in spared] == [False] * 3
    inside = {"env": node.inside(own), "whole": True}
    for options in ({}, inside):
        code, answer = node.json("check", **options)
        assert (code, answer["verdict"]) == (1, "leftover")
        assert node.would_end(**options) == [left]
    # Nobody is there to ask.
    code, _out, err = node.run("clean")
    assert code == 1 and "--yes" in err and node.lives(left)
    code, answer = node.json("clean", "--yes")
    shape(answer, CLEAN)
    assert (code, answer["ended"], answer["left"]) == (0, [left], [])
    assert not node.lives(left) and all(map(node.lives, spared))
    assert node.json("check")[1]["verdict"] == "clean"
    assert node.pbs.asked() == []


def test_in_chinese(node: PbsWorld) -> None:
    """The same, by a Chinese reader: no sentence is left in English."""
    job = node.job()
    left = node.sleeper(node.inside(job))
    node.pbs.end(job)
    other = node.job()
    code, out, _err = node.run("status", env={"HANDWASH_LANG": "zh_CN"})
    assert code == 1 and "已结束的作业" in out and f"qdel {other}" in out and str(left) in out, out
    assert "GPU-hours" not in out and "left over" not in out and "Clean" not in out


def test_an_id_of_somebody_else_s_job(node: PbsWorld) -> None:
    """A process of one's own in a job that another person has submitted (qsub -u): while that is there it is no leftover."""
    theirs = node.pbs.add("somebody")
    sleeper = node.sleeper(node.inside(theirs))
    assert node.would_end() == []
    code, answer = node.json("check")
    assert code == 0 and answer["jobs"]["items"] == []
    assert node.row(sleeper)["whose"] == "living-job"
    node.pbs.end(theirs)
    assert node.would_end() == [sleeper]


def test_a_subjob_on_its_way_out(node: PbsWorld) -> None:
    """In state E no list of running subjobs has it, and its program may be writing a checkpoint (kill_delay)."""
    node.pbs.add_array("ERX", node.me)
    ending, running, over = (node.sleeper(node.inside(f"1[{index}].vm")) for index in (1, 2, 3))
    assert [node.row(pid)["whose"] for pid in (ending, running, over)] == ["living-job", "living-job", "ended-job"]
    assert node.would_end() == [over]
    # A shell in it outlives nothing yet.
    for index, job in ((1, "1[1].vm"), (2, "1[2].vm"), (3, None)):
        assert node.json("where", env=node.inside(f"1[{index}].vm"), whole=True)[1]["job"] == job


@pytest.mark.parametrize("how", ["exit 3", "exec sleep 60"])
def test_the_server_goes_before_it_has_told(node: PbsWorld, how: str) -> None:
    """Whether a job that a process names is over was to be asked by its number: no answer is no leave to end anything.

    Nor is it another deadline.
    """
    job = node.job()
    sleeper = node.sleeper(node.inside(job))
    node.pbs.end(job)
    qstat = node.pbs.bin / "qstat"
    # Answers the list, and nothing about one job.
    text = qstat.read_text()
    qstat.write_text(text.replace("exec ", f'case "$*" in *-u*) ;; *) {how} ;; esac\nexec ', 1))
    began = time.monotonic()
    code, answer = node.json("check", env={"HANDWASH_DEADLINE": "2"})
    assert (code, answer["verdict"], answer["jobs"]["known"]) == (3, "unknown", False), answer
    assert time.monotonic() - began < 2 + 1.5
    assert node.json("clean", "--yes")[0] == 3 and node.lives(sleeper)


def test_no_name_for_the_person(node: PbsWorld) -> None:
    """qstat chooses by a name; a number that has none is not a person with no jobs."""
    # What a directory that does not answer makes of pwd.getpwuid.
    world_file = node.package / "world.py"
    world_file.write_text(world_file.read_text().replace("pwd.getpwuid(of).pw_name", "{}[of]"))
    job = node.job()
    sleeper = node.sleeper(node.inside(job))
    code, answer = node.json("check")
    assert (code, answer["jobs"]["known"]) == (3, False) and "name" in answer["jobs"]["why"], answer
    assert node.json("clean", "--yes")[0] == 3 and node.lives(sleeper)


# What is offered


def test_a_job_that_nobody_sits_in(node: PbsWorld) -> None:
    """Asked about; after a yes exactly that one is deleted, once, and it is gone when it is said to be."""
    job, batch = node.job(gpus=2, name="\x1b[31mred"), node.job(interactive=False)
    node.pbs.add("somebody", interactive=True, gpus=4)
    node.job(state="Q")
    code, out = at_terminal(node, "n\n")
    assert code == 0 and f"Job {job} (\\x1b[31mred) holds 2 GPUs" in out.replace("^[", "\\x1b"), out
    assert out.count("Cancel it?") == 1 and f"qdel {batch}" in out and node.pbs.asked() == []
    code, out = at_terminal(node, "y\n")
    assert code == 0 and f"Job {job} has left the queue." in out, out
    assert node.pbs.asked() == [[job]] and node.pbs.state_of(job) == "F" and node.pbs.state_of(batch) == "R"


def test_nobody_is_asked(node: PbsWorld) -> None:
    """Without a terminal, or with --yes, the line to type is all."""
    job = node.job()
    for words in (["clean"], ["clean", "--yes"]):
        code, out, _err = node.run(*words)
        assert code == 0 and f"end it with: qdel {job}" in out and "[y/N]" not in out
    assert node.pbs.asked() == []
    assert "qdel" not in "".join(node.run("clean", "--dry-run")[1:])


def test_an_array_s_subjob(node: PbsWorld) -> None:
    """Interactive or not, its brackets are quoted: a shell would take them for a pattern."""
    node.pbs.add_array("R", node.me, gpus=1)
    assert "qdel '1[1].vm'" in node.run("clean")[1]


def qsub(node: PbsWorld) -> list[str]:
    """A qsub: a program of that name that waits."""
    return [str(shutil.copy("/bin/sleep", node.folder / "qsub")), "110"]


def test_one_that_is_attended(node: PbsWorld) -> None:
    """A qsub of the person's waits on this host: neither a word nor a question; nor is the qsub anything left over."""
    job = node.job()
    node.pbs.change(job, Job_Owner=f"{node.me}@{node.pbs.node}.cluster.example")
    waits = node.terminal(qsub(node))
    try:
        assert wait_until(lambda: processes.arguments(waits.pid)[:1] == [str(node.folder / "qsub")], 10)
        assert "qdel" not in node.run("clean")[1] and "qdel" not in node.run("status")[1]
        _code, out = at_terminal(node, "y\n")
        assert "Cancel it" not in out and node.pbs.asked() == []
        assert waits.isalive()
        # Made on another host: who sits there cannot be seen from here.
        node.pbs.change(job, Job_Owner=f"{node.me}@elsewhere")
        assert f"qdel {job}" in node.run("clean")[1]
    finally:
        waits.close(force=True)


def test_the_one_that_qsub_leaves_behind(node: PbsWorld) -> None:
    """For two minutes, without a terminal: it waits for no job, so the line is told; it is no leftover either."""
    job = node.job()
    node.pbs.change(job, Job_Owner=f"{node.me}@{node.pbs.node}")
    pid = node.start(*qsub(node))
    assert f"qdel {job}" in node.run("clean")[1]
    assert node.row(pid)["leftover"] is False and node.would_end() == []


def test_an_attended_one_s_qsub_is_no_leftover(node: PbsWorld) -> None:
    """With its terminal gone qsub still holds a job, which would end with it: a scheduler's client, never ended unasked."""
    pid = node.start(*qsub(node))
    assert node.row(pid)["leftover"] is False and node.would_end() == []
    # The server's silence makes no difference.
    node.pbs.down()
    assert node.row(pid)["leftover"] is False


def test_one_that_takes_its_time(node: PbsWorld) -> None:
    """E, until its processes are over (kill_delay): waited for, and only then said to be gone."""
    node.pbs.set(ends_in_s=4.0)
    job = node.job()
    began = time.monotonic()
    code, out = at_terminal(node, "y\n")
    assert code == 0 and f"Job {job} has left the queue." in out and time.monotonic() - began > 4
    assert node.pbs.asked() == [[job]]


def test_one_that_is_refused(node: PbsWorld) -> None:
    """159, an administrator has frozen it perhaps: it is still there, and nobody waits half a minute to hear it."""
    qdel = node.pbs.bin / "qdel"
    job = node.job()
    qdel.write_text(f'#!/bin/sh\necho "$@" >>"$HOME/asked"\necho "qdel: Unauthorized Request  {job}" >&2\nexit 159\n')
    began = time.monotonic()
    _code, out = at_terminal(node, "y\n")
    assert f"Job {job} is still in the queue: qstat -f {job}" in out and "left the queue" not in out, out
    assert (node.home / "asked").read_text() == f"{job}\n" and time.monotonic() - began < 10


def test_one_that_stays(node: PbsWorld) -> None:
    """qdel says yes, and the job runs on: in a copy that waits less long."""
    adapter = node.package / "schedulers" / "pbs_adapter.py"
    text = adapter.read_text()
    adapter.write_text(text.replace("_PATIENCE_S = 30.0", "_PATIENCE_S = 2.0"))
    assert adapter.read_text() != text
    node.pbs.set(ignores_qdel=True)
    job = node.job()
    _code, out = at_terminal(node, "y\n")
    assert f"Job {job} is still in the queue: qstat -f {job}" in out and "has left the queue" not in out, out
    assert node.pbs.asked() == [[job]]


def test_the_server_goes_down_over_the_question(node: PbsWorld) -> None:
    """Could not tell whether it has left, at once, with the line to look."""
    job = node.job()
    child = node.terminal([*node.handwash, "clean"])
    child.expect("Cancel it")
    node.pbs.down()
    began = time.monotonic()
    child.send("y\n")
    child.expect(f"Could not tell whether job {job} has left the queue: qstat -f {job}".replace(".", r"\."))
    child.expect(pexpect.EOF)
    child.close()
    assert time.monotonic() - began < 10
    assert node.pbs.asked() == [[job]]
    node.pbs.up()
    assert node.pbs.state_of(job) == "R"


def test_what_outlives_the_job_that_was_cancelled(node: PbsWorld) -> None:
    """It is asked about then, and ended after a yes; what belongs to another job is not."""
    job, other = node.job(), node.job(interactive=False)
    left, spared = node.sleeper(node.inside(job)), node.sleeper(node.inside(other))
    child = node.terminal([*node.handwash, "clean"])
    child.expect("Cancel it")
    child.send("y\n")
    child.expect("End this process")
    assert str(spared) not in child.before and str(left) in child.before
    child.send("y\n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0 and not node.lives(left) and node.lives(spared)


def test_interrupted_while_it_waits(node: PbsWorld) -> None:
    """Ctrl-C does not wait for the job."""
    node.pbs.set(ends_in_s=100)
    job = node.job()
    child = node.terminal([*node.handwash, "clean"])
    child.expect("Cancel it")
    child.send("y\n")
    until(lambda: node.pbs.state_of(job) == "E")
    child.kill(signal.SIGINT)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
