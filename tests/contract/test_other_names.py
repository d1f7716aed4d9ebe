"""A cluster whose Slurm has the names of Tianhe systems, through the front door, with stand-ins for what no real one says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_cost import SINFO, ask
from tests.contract.test_front_door import FIELDS, World

from handwash.schedulers.slurm import FIELD

BATCH = FIELDS.replace("\x1f0\x1f", "\x1f1\x1f", 1)
# A release that does not know --Format yet (before 15.08) says so, in getopt's words.
OLD = "echo \"yhqueue: unrecognized option '--Format=JobID:0'\" >&2; echo 'Try \"yhqueue --help\"' >&2; exit 1"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One batch job in the queue, called as nothing should be that is not Slurm's here."""
    made = World(tmp_path)
    for name in ("squeue", "scontrol"):
        (made.bin / name).rename(made.bin / name.replace("s", "yh", 1))
    (tmp_path / "answer").write_text(f"{BATCH}squeue scancel\x1e\n")
    made.script("yhqueue", f"exec /bin/cat {tmp_path}/answer")
    (tmp_path / "sinfo").write_text(SINFO)
    made.script("yhinfo", f"exec /bin/cat {tmp_path}/sinfo")
    return made


def test_the_queue_is_asked_and_what_to_type_is_here(world: World) -> None:
    """The node is a login node, the job is known, and its name is not taken for a program's."""
    code, answer = world.json("where")
    assert code == 0 and answer["kind"] == "login"
    code, answer = world.json("check")
    assert [job["name"] for job in answer["jobs"]["items"]] == ["squeue scancel"]
    code, out, err = world.run("status")
    assert "To end batch job 120_3 if you no longer want it: yhcancel 120_3" in out, (out, err)
    assert "squeue scancel" in out
    out = world.run("status", env={"HANDWASH_LANG": "zh_CN"})[1]
    assert "yhcancel 120_3" in out and " scancel 120_3" not in out
    assert "yhbatch" in world.run("cost", "--help")[1]


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_a_release_that_knows_no_format(world: World, language: str) -> None:
    """Could not tell, with its own words; never "no jobs"."""
    world.script("yhqueue", OLD)
    code, answer = world.json("check", env={"HANDWASH_LANG": language})
    assert (code, answer["verdict"]) == (3, "unknown") and not answer["jobs"]["known"], answer
    assert "yhqueue" in answer["jobs"]["why"] and "unrecognized option '--Format=JobID:0'" in answer["jobs"]["why"]
    assert "squeue" not in answer["jobs"]["why"]
    code, answer = world.json("doctor")
    found = {one["id"]: one for one in answer["findings"]}
    assert found["scheduler-unreachable"]["remedy"] == "yhcontrol ping" and answer["try"] is None
    code, answer = world.json("usage")
    assert code == 3 and not answer["known"]


def test_what_is_missing_is_called_as_the_rest_is(world: World) -> None:
    """The accounting's program is not here; the queue's own word counts."""
    line = (world.folder / "answer").read_text()
    times = f"2026-01-01T00:00:00{FIELD}2026-01-02T00:00:00{FIELD}"
    (world.folder / "answer").write_text(times + line)
    code, answer = world.json("usage", "--since", "2025-01-01")
    assert (code, answer["source"]) == (3, "squeue") and len(answer["items"]) == 1, answer
    assert "yhacct is not on the PATH" in answer["why"]
    # Without any, on a host that has a slurm.conf, nothing tells what it is called.
    for path in list(world.bin.iterdir()):
        path.unlink()
    assert "squeue is not on the PATH" in world.json("check")[1]["jobs"]["why"]
    assert "yhqueue" in world.json("check", env={"HANDWASH_SLURM_NAMES": "yh"})[1]["jobs"]["why"]


def test_a_site_with_names_of_its_own(world: World) -> None:
    """By a file or the variable; without it there is no such queue."""
    (world.bin / "yhqueue").rename(world.bin / "my.jobs")
    (world.bin / "yhcontrol").unlink()
    assert world.json("check")[1]["jobs"]["known"] is False
    for where in ("file", "variable"):
        env = {"HANDWASH_SLURM_NAMES": "squeue=my.jobs scancel=my.end"} if where == "variable" else {}
        if where == "file":
            file = world.folder / "etc" / "handwash" / "handwash.toml"
            file.parent.mkdir(parents=True)
            file.write_text('slurm_names = "squeue=my.jobs scancel=my.end"')
        out = world.run("status", env=env)[1]
        assert "if you no longer want it: my.end 120_3" in out
        if where == "file":
            file.unlink()
    err = world.run("check", env={"HANDWASH_SLURM_NAMES": "squeue=/tmp/x"})[2]
    assert "HANDWASH_SLURM_NAMES: slurm_names cannot be 'squeue=/tmp/x'" in err


NOTHING = ("no", 0, 0)
LINES: dict[str, tuple[str, Any, Any]] = {
    "yhrun --gres=gpu:2 -t 8:00:00 --pty bash": ("yes", 2, 16),
    "yhalloc -G2 -t 30": ("yes", 2, 1),
    "yhbatch --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, 1),
    "/usr/bin/yhbatch --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, 1),
    "nohup yhrun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, 1),
    "yhalloc -n1 yhrun --gres=gpu:4 a": NOTHING,
    "yhrun -n1 yhbatch --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, 1),
    "yhbatch --gres=gpu:1 -t 1:0:0 --wrap 'yhrun a'": ("yes", 1, 1),
    "yhrun --gres=gpu:8 --help": NOTHING,
    "yhqueue --me": NOTHING,
    "yhq": NOTHING,
    "yhi -N": NOTHING,
    "yhcancel 7": NOTHING,
    "yhcontrol show job 7": NOTHING,
    "yhcontrol requeue 7": ("unknown", None, None),
    "bash -c 'for i in 1 2; do yhrun a; done'": ("unknown", None, None),
    # Wherever they are met, Slurm's own too.
    "srun --gres=gpu:2 -t 8:00:00 a": ("yes", 2, 16),
}


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_costs(world: World, line: str) -> None:
    """As under Slurm's own names; the reasons speak of what was typed."""
    verdict, gpus, hours = LINES[line]
    answer = ask(world, "--", line)
    assert answer["verdict"] == verdict, answer
    if verdict != "unknown":
        assert (answer["gpus"], answer["max_gpu_hours"]) == (gpus, hours), answer
    if not line.startswith("srun"):
        said = " ".join((*answer["why"], *answer["unknown"]))
        assert not {"srun", "squeue", "scancel", "scontrol", "sbatch", "salloc"} & set(said.replace(":", " ").split())


def test_a_script_that_makes_jobs(world: World) -> None:
    """A batch script that submits others, and one that runs its steps."""
    script = world.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:1 -t 1:0:0\nyhrun python train.py\n")
    answer = ask(world, "--", "yhbatch", str(script))
    assert (answer["verdict"], answer["max_gpu_hours"], answer["unknown"]) == ("yes", 1, []), answer
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:1 -t 1:0:0\nyhbatch next.sh\n")
    answer = ask(world, "--", "yhbatch", str(script))
    assert "yhbatch" in answer["unknown"][0], answer
    out = world.run("cost", str(script))[1]
    assert "yhcancel JOB, with the number that `yhqueue --me` shows" in out, out


def test_who_sits_in_a_job_is_seen(world: World) -> None:
    """An interactive job whose yhrun runs in the session that made it is not one that nobody works in."""
    host = os.uname().nodename.partition(".")[0]
    child = subprocess.Popen(["yhrun", "60"], executable="/bin/sleep", start_new_session=True)
    try:
        for sid, offered in ((child.pid, False), (1, True)):
            row = FIELDS.replace("login1", host).replace("4711", str(sid))
            (world.folder / "answer").write_text(f"{row}bash\x1e\n")
            out = world.run("status")[1]
            assert ("If nobody works in it, end it with: yhcancel 120_3" in out) is offered, out
    finally:
        child.kill()
        child.wait()
