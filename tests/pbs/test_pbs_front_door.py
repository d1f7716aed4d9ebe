"""The commands as a person meets them on a PBS cluster: where they are, what they hold, what the server's silence means."""

from __future__ import annotations

import os
import re
import time

import pytest
from tests.contract.test_front_door import CHECK, JOB, LOOK, NODE, PROCESS, shape
from tests.testbed.pbs_world import PbsWorld

HOST = os.uname().nodename.partition(".")[0]
LOOKS = ("where", "check", "status", "banner")
HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202e\n    job_state = F\nJob Id: 99.vm\n    x = 名"


def said(world: PbsWorld, *words: str, **options: object) -> str:
    _code, out, err = world.run(*words, **options)
    return out + err


def test_a_login_node(pbs_world: PbsWorld) -> None:
    """By pbs.conf, in every command and both languages; nothing is held, nothing is found."""
    code, answer = pbs_world.json("where")
    shape(answer, NODE)
    assert (code, answer["kind"], answer["job"], answer["host"]) == (0, "login", None, HOST)
    assert any(str(pbs_world.pbs.config) in why for why in answer["why"])
    for command in LOOKS:
        assert "login node, for editing and submitting" in said(pbs_world, command)
        assert "登录节点" in said(pbs_world, command, env={"HANDWASH_LANG": "zh_CN"})
    code, answer = pbs_world.json("check")
    assert (code, answer["verdict"]) == (0, "clean"), answer
    assert answer["jobs"] == {"known": True, "why": None, "items": []}
    assert pbs_world.run("leave", "exit")[0] == 0
    assert pbs_world.pbs.asked() == []


def test_a_compute_node_without_a_job(pbs_world: PbsWorld) -> None:
    """By pbs.conf too; not a workstation, and not a job of somebody else's."""
    pbs_world.on_compute_node()
    pbs_world.pbs.add("somebody", interactive=True, gpus=8)
    code, answer = pbs_world.json("where")
    assert (code, answer["kind"], answer["job"]) == (0, "compute", None)
    assert any("PBS_START_MOM=1" in why for why in answer["why"])
    for command in LOOKS:
        assert "compute node, but this shell is not inside a job of yours" in said(pbs_world, command)
        assert "计算节点" in said(pbs_world, command, env={"HANDWASH_LANG": "zh_CN"})


@pytest.mark.parametrize("interactive", [True, False])
def test_inside_a_job(pbs_world: PbsWorld, interactive: bool) -> None:
    """Its number, its GPUs and its cost; qstat, which MOM leaves off the PATH, is found through pbs.conf."""
    pbs_world.on_compute_node()
    job = pbs_world.job(gpus=2, interactive=interactive, name="训练", walltime_s=7200, started=time.time() - 1800)
    env = pbs_world.inside(job)
    code, answer = pbs_world.json("where", env=env, whole=True)
    shape(answer, NODE)
    assert (code, answer["kind"], answer["job"], answer["host"]) == (0, "compute", job, HOST)
    for command in LOOKS:
        assert f"inside your job {job}" in said(pbs_world, command, env=env, whole=True)
        assert job in said(pbs_world, command, env={**env, "HANDWASH_LANG": "zh_CN"}, whole=True)
    _code, answer = pbs_world.json("check", env=env, whole=True)
    shape(answer, CHECK)
    (row,) = answer["jobs"]["items"]
    shape(row, JOB)
    assert (row["id"], row["state"], row["name"], row["partition"]) == (job, "RUNNING", "训练", "workq")
    assert (row["gpus"], row["limit_s"], row["interactive"], row["nodes"]) == (2, 7200, interactive, [HOST])
    assert 1800 <= row["elapsed_s"] < 1900 and row["gpu_hours"] == pytest.approx(1.0, abs=0.06)
    assert answer["other_nodes"] == []
    # Never the way to end a job that one sits in.
    assert "qdel" not in said(pbs_world, "status", env=env, whole=True)


def test_the_parts_of_an_answer(pbs_world: PbsWorld) -> None:
    """`check --json` and `status --json` by the contract, jobs with ids such as `12.vm`."""
    pbs_world.on_compute_node()
    job, queued, held = pbs_world.job(), pbs_world.job(state="Q"), pbs_world.job(state="H")
    sleeper = pbs_world.sleeper(pbs_world.inside(job))
    for command in ("check", "status"):
        _code, answer = pbs_world.json(command)
        shape(answer, CHECK)
        for look, items in (("jobs", JOB), ("processes", PROCESS)):
            shape(answer[look], LOOK)
            for item in answer[look]["items"]:
                shape(item, items)
        assert [row["id"] for row in answer["jobs"]["items"]] == [job, queued, held]
        assert [row["state"] for row in answer["jobs"]["items"]] == ["RUNNING", "PENDING", "PENDING"]
        assert [row["elapsed_s"] for row in answer["jobs"]["items"]][1:] == [0, 0]
        (row,) = [row for row in answer["processes"]["items"] if row["pid"] == sleeper]
        assert (row["job"], row["whose"], row["fate"]) == (job, "living-job", "survives")


def test_a_stale_id(pbs_world: PbsWorld) -> None:
    """A shell that outlives its job is told so; it is in no job, whatever its variables say."""
    pbs_world.on_compute_node()
    job = pbs_world.job()
    env = pbs_world.inside(job)
    pbs_world.pbs.end(job)
    code, answer = pbs_world.json("where", env=env, whole=True)
    assert (code, answer["kind"], answer["job"]) == (0, "compute", None)
    assert any(f"PBS_JOBID={job} is stale" in why for why in answer["why"])
    other = pbs_world.job()
    assert pbs_world.json("where", env=env, whole=True)[1]["job"] is None
    assert pbs_world.json("where", env=pbs_world.inside(other), whole=True)[1]["job"] == other


@pytest.mark.parametrize(
    "env",
    [{"PBS_JOBID": "7.vm"}, {"PBS_ENVIRONMENT": "PBS_BATCH"}, {"PBS_JOBID": "-x", "PBS_ENVIRONMENT": "PBS_BATCH"}],
    ids=",".join,
)
def test_typed_by_hand(pbs_world: PbsWorld, env: dict[str, str]) -> None:
    """Half of what MOM sets, or nonsense, is no job."""
    code, answer = pbs_world.json("where", env=env)
    assert (code, answer["kind"], answer["job"]) == (0, "login", None)


def test_no_qstat_at_all(pbs_world: PbsWorld) -> None:
    """A PBS cluster whose commands are nowhere: could not tell, and what to try; never nothing in the queue."""
    pbs_world.pbs.config.write_text("PBS_SERVER=vm\n")
    # Where Slurm's commands are, and none of PBS's, it would be Slurm.
    for env, whole in (({"PATH": "/nonexistent"}, False), (pbs_world.inside(pbs_world.job()), True)):
        code, answer = pbs_world.json("check", env=env, whole=whole)
        assert (code, answer["verdict"], answer["jobs"]["known"]) == (3, "unknown", False)
        assert "module load pbs" in answer["jobs"]["why"]


def test_a_server_that_is_down(pbs_world: PbsWorld) -> None:
    """Could not tell, in PBS's words, whichever command; inside a job the job is known all the same, and no leaver held."""
    pbs_world.on_compute_node()
    job = pbs_world.job()
    env = pbs_world.inside(job)
    sleeper = pbs_world.sleeper(env)
    pbs_world.pbs.down()
    for names, whole in ((pbs_world.env, False), (env, True)):
        code, answer = pbs_world.json("check", env=names, whole=whole)
        assert (code, answer["verdict"], answer["jobs"]["known"]) == (3, "unknown", False), answer
        assert "cannot connect to server vm (errno=15010)" in answer["jobs"]["why"]
        assert pbs_world.json("clean", env=names, whole=whole)[0] == 3
        code, out, _err = pbs_world.run("clean", "--yes", env=names, whole=whole)
        assert code == 3 and "Clean:" not in out and "15010" in out
        code, out, err = pbs_world.run("leave", "exit", env=names, whole=whole)
        assert (code, out) == (0, "") and "could not tell" in err and "15010" in err
        assert "无法" in said(pbs_world, "check", env={**names, "HANDWASH_LANG": "zh_CN"}, whole=whole)
    assert pbs_world.json("where", env=env, whole=True)[1]["job"] == job
    assert pbs_world.row(sleeper)["fate"] == "unknown"
    assert pbs_world.lives(sleeper)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("printf 'qstat: \\033[31mred\\n' >&2; exit 5", "qstat failed (exit code 5): qstat: \\x1b[31mred"),
        ("echo 'Job Id: 1.vm'", "breaks off"),
        ("printf 'Job Id: 1.vm\\n\\n'", "cannot be read"),
        ("echo 'job-ID  prior  name'; echo", "cannot be read"),
        ("kill -9 $$", "qstat failed (exit code -9)"),
        ("printf 'Job Id: 1.vm\\n    a = b\\n\\n'; echo warning >&2", "qstat failed (exit code 0): warning"),
    ],
)
def test_a_qstat_that_lies(pbs_world: PbsWorld, script: str, said: str) -> None:
    """No answer of PBS's is no empty queue: Grid Engine's qstat, one that breaks off, one that dies; in harmless words."""
    pbs_world.on_compute_node()
    sleeper = pbs_world.sleeper(pbs_world.inside(pbs_world.job()))
    (pbs_world.pbs.bin / "qstat").write_text(f"#!/bin/sh\n{script}\n")
    code, out, err = pbs_world.run("check")
    assert code == 3 and said in out and "\x1b" not in out + err, out
    assert pbs_world.json("clean", "--yes")[0] == 3 and pbs_world.lives(sleeper)


@pytest.mark.parametrize("command", ["check", "where", "banner", "leave exit", "clean"])
def test_a_server_that_hangs(pbs_world: PbsWorld, command: str) -> None:
    """Nobody waits longer than the deadline, and the qstat that hangs is not left behind."""
    pbs_world.on_compute_node()
    env = {**pbs_world.inside(pbs_world.job()), "HANDWASH_DEADLINE": "1"}
    pbs_world.pbs.hang()
    started = time.monotonic()
    code, out, err = pbs_world.run(*command.split(), env=env, whole=True)
    assert time.monotonic() - started < 1 + 1.5
    assert code == {"check": 3, "clean": 3}.get(command, 0), out + err
    if command not in ("where",):
        assert re.search("did not answer in time|No answer within", out + err) and "Clean:" not in out, out + err
    assert not [
        row
        for row in pbs_world.json("check", env=env, whole=True)[1]["processes"]["items"]
        if "qstat" in row["command"]
    ]


def test_arrays(pbs_world: PbsWorld) -> None:
    """What waits of one as one, each that runs by itself; a shell in a subjob is in that one."""
    pbs_world.on_compute_node()
    array = pbs_world.pbs.add_array("XRRQ", pbs_world.me, gpus=1)
    rows = pbs_world.json("check")[1]["jobs"]["items"]
    assert [(row["id"], row["state"]) for row in rows] == [
        (array, "PENDING"), ("1[2].vm", "RUNNING"), ("1[3].vm", "RUNNING"),
    ]  # fmt: skip
    inside = pbs_world.inside("1[2].vm")
    assert pbs_world.json("where", env=inside, whole=True)[1]["job"] == "1[2].vm"
    sleepers = [pbs_world.sleeper(pbs_world.inside(f"1[{index}].vm")) for index in (1, 2, 3)]
    assert [pbs_world.row(pid)["whose"] for pid in sleepers] == ["ended-job", "living-job", "living-job"]
    assert pbs_world.would_end() == sleepers[:1]
    # Brackets are a pattern to every shell.
    assert "qdel JOB" in said(pbs_world, "status") and "qdel 1[" not in said(pbs_world, "status")
    pbs_world.pbs.end("1[3].vm")
    pbs_world.pbs.change(array, array_state_count="Queued:0 Running:1 Exiting:0 Expired:3")
    assert "qdel '1[2].vm'" in said(pbs_world, "status")


def test_a_job_on_two_nodes(pbs_world: PbsWorld) -> None:
    """The other one was not looked at, which is said wherever something is; to look there is for the person."""
    pbs_world.on_compute_node()
    job = pbs_world.job()
    pbs_world.pbs.change(job, exec_host=f"{HOST}.cluster.example/0*2+n2/0*2")
    env = pbs_world.inside(job)
    code, answer = pbs_world.json("check", env=env, whole=True)
    assert (code, answer["other_nodes"]) == (0, ["n2"])
    for command in ("check", "banner", "leave exit"):
        assert "Not looked at: n2, of the same job. To look, log in there" in said(
            pbs_world, *command.split(), env=env, whole=True
        )
    code, out, err = pbs_world.run("clean", "--all-nodes", "--dry-run", env=env, whole=True)
    assert code == 3 and "n2" in out + err and "Clean: nothing of yours is left over here." not in out, out + err


def test_somebody_else_s_jobs(pbs_world: PbsWorld) -> None:
    """Neither shown nor counted, nor a hint on how to end one, though their owner has chosen every word of them."""
    pbs_world.on_compute_node()
    theirs = pbs_world.pbs.add(
        "somebody", interactive=True, gpus=4, name="mine", variables=f"V=\\n    Job_Owner = {pbs_world.me}@localhost"
    )
    array = pbs_world.pbs.add_array("RR", "somebody", gpus=1)
    for command in ("check", "status", "clean"):
        words = said(pbs_world, command)
        assert theirs not in words and "qdel" not in words and array not in words, words
    assert pbs_world.json("check")[1]["jobs"]["items"] == []


def test_hostile_names(pbs_world: PbsWorld) -> None:
    """A job's name is one line of harmless text, and no attribute of its job or another."""
    job = pbs_world.job(name=HOSTILE)
    for command in ("check", "status", "banner", "clean"):
        words = said(pbs_world, command)
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(words), words
    (row,) = pbs_world.json("check")[1]["jobs"]["items"]
    assert (row["id"], row["state"]) == (job, "RUNNING") and "99.vm" not in row["id"]
