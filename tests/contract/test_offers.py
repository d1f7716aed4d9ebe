"""What `clean` says of steps that have lost their srun, with a scripted scontrol: by two looks, or nothing. Never a finding."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.test_front_door import FIELDS, World
from tests.unit.test_slurm_launchers import BATCH, LINE

from handwash.survey import procfs

NUMBER = str(70_000_000 + os.getpid())
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


@pytest.mark.skipif(not procfs.has_pids_of_host(), reason="a container with the host's name and pids of its own")
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
    world.run("clean", env={"SLURM_JOB_ID": None})
    assert "show step" not in (world.home / "asked").read_text()


@pytest.mark.skipif(not procfs.has_pids_of_host(), reason="a container with the host's name and pids of its own")
def test_scontrol_does_not_answer(world: World) -> None:
    """Said, and no finding: it is about an offer."""
    world.script("scontrol", "echo 'slurm_load: \x1b[31mno' >&2; exit 1")
    code, out, _err = world.run("clean")
    assert f"The steps of job {NUMBER} could not be told: slurm_load: \\x1b[31mno" in out
    assert code == 0 or "left over" in out
    (world.bin / "scontrol").unlink()
    assert f"The steps of job {NUMBER} could not be told: scontrol: No such file" in world.run("clean")[1]
