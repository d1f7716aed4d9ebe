"""What `clean` says of steps that have lost their srun, with a scripted scontrol: by two looks, or nothing. Never a finding."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from tests.contract.test_front_door import FIELDS, HANDWASH, World, until
from tests.contract.unseen import without_a_second_look
from tests.unit.test_slurm_launchers import BATCH, LINE

from handwash.survey import procfs

NUMBER = str(70_000_000 + os.getpid())
JOB_ID = "120_3"
HOST = os.uname().nodename.partition(".")[0]
OFFER = f"Step {NUMBER}.0 (train) runs on, but the srun that started it here is gone. To end it: scancel {NUMBER}.0"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """In a salloc shell; `scontrol` answers what stands in `steps`, and each time a line less of `later`."""
    made = World(tmp_path)
    made.env["SLURM_JOB_ID"] = NUMBER
    (tmp_path / "answer").write_text(f"{FIELDS.replace('123', NUMBER, 1)}bash\x1e\n")
    made.script("squeue", f"exec /bin/cat {tmp_path}/answer")
    return made


def steps(world: World, first: str, again: str | None = None) -> None:
    """What scontrol prints about the steps at the first look, and from then on."""
    for name, text in (("first", first), ("again", first if again is None else again)):
        (world.folder / name).write_text(text)
    here = world.folder
    world.script(
        "scontrol",
        f'case "$*" in *"show step {NUMBER}"*) /bin/cat {here}/first; /bin/cat {here}/again >{here}/new;'
        f" /bin/cat {here}/new >{here}/first ;; *) echo ProctrackType = proctrack/cgroup ;; esac",
    )


def line(pid: int, host: str = HOST) -> str:
    return LINE.replace("42.0", f"{NUMBER}.0").format(name="train", launcher=f"{host}:{pid}") + "\n"


def gone() -> int:
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    return child.pid


@pytest.mark.skipif(not procfs.is_host_namespace(), reason="a container: pids of its own")
def test_an_srun_that_is_gone(world: World) -> None:
    """Offered with the line to type; not where it lives, was on another host, or the step has just ended with it."""
    pid = gone()
    for first, again, offered in (
        (line(pid), None, True),
        (line(pid) + BATCH.replace("42.", f"{NUMBER}."), None, True),
        (line(pid), "", False),
        (line(os.getpid()), None, False),
        (line(pid, "elsewhere"), None, False),
        (BATCH.replace("42.", f"{NUMBER}."), None, False),
        ("", None, False),
    ):
        steps(world, first, again)
        code, out, err = world.run("clean")
        assert (OFFER in out) == offered, (first, again, out)
        # Whoever runs the tests may have something here.
        assert code == 0 or "left over" in out, out + err
        assert offered == ("scancel" in out)


def test_not_where_nobody_asked(world: World) -> None:
    """A look, what only shows, what is about one process, and a shell that holds no job ask nothing of scontrol about steps."""
    steps(world, line(gone()))
    world.script("scontrol", (world.bin / "scontrol").read_text().replace("#!/bin/sh\n", 'echo "$*" >>"$HOME/asked"\n'))
    for words in (["check"], ["status"], ["banner"], ["clean", "--dry-run"], ["clean", "--json"], ["clean", "1"]):
        assert "scancel" not in "".join(world.run(*words)[1:])
    world.script("squeue", "exit 0")
    world.run("clean", env={"SLURM_JOB_ID": None})
    assert "show step" not in (world.home / "asked").read_text()


def cleaned(code: int, out: str) -> bool:
    """Whether nothing of whoever runs the tests was in the way of the exit code that is asked for."""
    return code != 1 or "left over" not in out


@pytest.mark.skipif(not procfs.is_host_namespace(), reason="a container: pids of its own")
def test_scontrol_does_not_answer(world: World) -> None:
    """Whether a step has lost its srun could not be told then: the reason, and neither the word clean nor its exit code."""
    world.script("scontrol", "echo 'slurm_load: \x1b[31mno' >&2; exit 1")
    code, out, _err = world.run("clean")
    assert out.count(f"The steps of job {NUMBER} could not be told: slurm_load: \\x1b[31mno") == 1
    assert "Clean:" not in out and (code == 3 or not cleaned(code, out)), out
    (world.bin / "scontrol").unlink()
    assert f"The steps of job {NUMBER} could not be told: scontrol: No such file" in world.run("clean")[1]


@pytest.mark.skipif(not procfs.is_host_namespace(), reason="a container: pids of its own")
def test_the_processes_could_not_be_looked_at_again(world: World) -> None:
    """By the first look, which is older than the steps, nothing can be said of them."""
    steps(world, line(gone()))
    done = subprocess.run(
        [*HANDWASH[:-1], "-c", without_a_second_look("It hung."), "clean"], env=world.env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert "Could not tell which processes are yours: It hung." in done.stdout and OFFER not in done.stdout
    assert "Clean:" not in done.stdout and (done.returncode == 3 or not cleaned(done.returncode, done.stdout)), done


@pytest.mark.skipif(os.getuid() != 0, reason="makes namespaces")
@pytest.mark.parametrize("words", [["--pid"], ["--pid", "--uts"]], ids=" ".join)
def test_pids_of_its_own_under_the_host_s_name(world: World, words: list[str]) -> None:
    """A namespace of names begins with the host's: what another one tells of pids is not to be looked up here."""
    with subprocess.Popen(["/bin/sleep", "60"]) as srun:
        try:
            steps(world, line(srun.pid))
            unshare = ["unshare", *words, "--fork", "--mount-proc"]
            done = subprocess.run(
                [*unshare, *HANDWASH, "clean"], env={**world.env, "PATH": f"{world.bin}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
            )  # fmt: skip
            assert done.returncode in (0, 1) and "is gone" not in done.stdout and srun.poll() is None, done
        finally:
            srun.kill()


@contextmanager
def srun() -> Iterator[int]:
    """Somebody's srun in another session: a program of that name that waits."""
    with subprocess.Popen(["srun", "60"], executable="/bin/sleep", start_new_session=True) as child:
        try:
            until(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"srun"))
            yield child.pid
        finally:
            child.kill()


@pytest.mark.skipif(not procfs.is_host_namespace(), reason="a container: pids of its own")
@pytest.mark.parametrize("asks", [False, True])
def test_a_job_that_an_srun_of_this_host_sits_in(world: World, asks: bool) -> None:
    """Made by `salloc --no-shell`, and worked in with `srun --jobid` from another session: neither a word nor a question."""
    world.env.pop("SLURM_JOB_ID")
    hint = f"scancel {JOB_ID}"
    with srun() as pid:
        for said, offered in (
            (line(pid), False),
            (line(pid) + BATCH.replace("42.", f"{NUMBER}."), False),
            (line(gone()), True),
            (line(os.getpid()), True),
            (line(pid, "elsewhere"), True),
            (BATCH.replace("42.", f"{NUMBER}."), True),
            ("", True),
        ):
            steps(world, said)
            code, out = at_terminal(world, "n\n") if asks else world.run("clean")[:2]
            assert (hint in out or f"Job {JOB_ID} (bash) holds" in out) == offered, (said, out)
            assert code == 0 or not cleaned(code, out)
    world.script("scontrol", "echo 'slurm_load: no' >&2; exit 1")
    code, out = at_terminal(world, "n\n") if asks else world.run("clean")[:2]
    assert hint not in out and "Cancel it" not in out and "Clean:" not in out
    assert f"The steps of job {NUMBER} could not be told: slurm_load" in out
    assert code == 3 or not cleaned(code, out)


@pytest.mark.skipif(not procfs.is_host_namespace(), reason="a container: pids of its own")
def test_somebody_has_gone_into_it_while_the_question_stood(world: World) -> None:
    """The answer comes late; what it was about is no longer so."""
    world.env.pop("SLURM_JOB_ID")
    world.script("scancel", 'echo "$*" >>"$HOME/cancelled"')
    with srun() as pid:
        steps(world, "", line(pid))
        _code, out = at_terminal(world, "y\n")
        assert f"Somebody works in job {JOB_ID} by now: it was not cancelled." in out, out
        assert not (world.home / "cancelled").exists()


def at_terminal(world: World, answer: str) -> tuple[int, str]:
    """`handwash clean` where somebody answers what is asked of jobs and steps."""
    child = pexpect.spawn(
        HANDWASH[0], [*HANDWASH[1:], "clean"], env={**world.env, "TERM": "dumb"}, encoding="utf-8", timeout=20
    )
    said = ""
    while child.expect([r"\[y/N\] ", pexpect.EOF]) == 0:
        said += child.before + child.after
        # Never to a question about a process of whoever runs the tests.
        child.send(answer if "Cancel it" in child.before else "n\n")
    said += child.before
    child.close()
    return child.exitstatus, said
