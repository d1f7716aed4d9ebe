"""`handwash cost` for PBS through the front door: nothing of what is judged is ever run.

The answers of qstat and pbsnodes stand for a server's, in the form in which OpenPBS prints them: tests/unit/test_cost_qsub.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_cost import NOTHING, H, ask
from tests.contract.test_front_door import NAME, World
from tests.contract.test_front_door import world as world
from tests.testbed.driver.fake import FakeDriver
from tests.unit.test_cost_qsub import QUEUES, SERVER, VNODES


@pytest.fixture
def pbs(world: World, fake_driver: FakeDriver) -> World:
    """A login node of a PBS cluster without a GPU, whose server answers; what else is started leaves a mark."""
    world.env.update(fake_driver.gpus(0).env())
    for name, text in (("-B", SERVER), ("-Q", QUEUES), ("vnodes", VNODES)):
        (world.folder / name).write_text(text)
    world.script("qstat", f'echo "qstat $*" >>{world.folder}/asked; exec /bin/cat "{world.folder}/$1"')
    world.script("pbsnodes", f"exec /bin/cat {world.folder}/vnodes")
    for name in ("qsub", "qdel", "train"):
        world.script(name, f"echo {name} >>{world.folder}/started")
    return world


def script(world: World, text: str, name: str = "job.sh") -> str:
    path: Path = world.folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    return str(path)


def bounds(answer: dict[str, Any]) -> tuple[Any, ...]:
    return answer["verdict"], answer["gpus"], answer["limit_s"], answer["max_gpu_hours"]


def test_a_line_a_script_and_a_shell_on_a_node(pbs: World) -> None:
    line = ["qsub", "-l", "select=2:ncpus=4:ngpus=2+1:ngpus=1", "-l", "walltime=1:00:00", "--", "/bin/a"]
    assert bounds(ask(pbs, "--", *line)) == ("yes", 5, H, 5)
    assert bounds(ask(pbs, "qsub -I -l ngpus=1 -l walltime=2:00:00")) == ("yes", 1, 2 * H, 2)
    path = script(pbs, "#PBS -l select=1:ngpus=2\n#PBS -l walltime=0:30:00\n#PBS -J 1-4\npython x.py")
    for words in ([path], ["--", "qsub", path], ["--", "bash", "-c", f"qsub {path}"]):
        assert bounds(ask(pbs, *words)) == ("yes", 8, H / 2, 4), words
    assert bounds(ask(pbs, "--", "qsub", "-l", "select=1:ncpus=1", path)) == NOTHING
    assert "qstat -B -f" in (pbs.folder / "asked").read_text()


def test_which_program_a_script_is_for(pbs: World) -> None:
    """Where qsub alone is here, it is qsub's; where both are, its lines tell; where there is no qsub, sbatch's as ever."""
    mine = script(pbs, "#PBS -l select=1:ngpus=1")
    plain, slurm = script(pbs, "ls", "plain.sh"), script(pbs, "#SBATCH -G1 -t60", "slurm.sh")
    both = script(pbs, "#PBS -l ngpus=1\n#SBATCH -t 60", "both.sh")
    assert ask(pbs, mine)["verdict"] == "yes" and "no #PBS line" in ask(pbs, plain)["why"][0]
    pbs.script("sbatch", f"echo sbatch >>{pbs.folder}/started")
    assert ask(pbs, mine)["gpus"] == 1
    assert "no #SBATCH line" in ask(pbs, plain)["why"][0]
    assert ask(pbs, slurm)["verdict"] == "yes"
    assert "another scheduler" in ask(pbs, both)["unknown"][0]
    (pbs.bin / "qsub").unlink()
    assert "another scheduler" in ask(pbs, mine)["unknown"][0]
    (pbs.bin / "sbatch").unlink()
    assert ask(pbs, mine)["gpus"] == 1


def test_a_server_that_does_not_answer_leaves_no_bound(pbs: World) -> None:
    """Down, gone, none here at all, or Slurm's own qstat: what is asked for is said, nothing is a no, and there is no bound."""
    asks = ["--", "qsub", "-l", "select=1:ngpus=2", "-l", "walltime=1:0:0", "--", "/bin/a"]
    for text in (
        "echo 'Connection refused' >&2; echo 'qstat: cannot connect to server vm (errno=15010)' >&2; exit 255",
        "echo Unknown option: B >&2; exit 2",
        "echo 'Job id              Name             Username        Time Use S Queue'",
        "exit 0",
        None,
    ):
        if text is None:
            (pbs.bin / "qstat").unlink()
        else:
            pbs.script("qstat", text)
        answer = ask(pbs, *asks)
        assert bounds(answer) == ("yes", None, H, None) and answer["unknown"], text
        assert ask(pbs, "--", "qsub", "--", "/bin/a")["verdict"] == "unknown"
    shown = pbs.run("cost", *asks)[1]
    assert shown.startswith("yes: it costs GPU-hours, how many could not be told (at least 2 GPUs × 1:00:00)\n")


def test_hosts_that_could_not_be_told_leave_no_bound(pbs: World) -> None:
    pbs.script("pbsnodes", "exit 1")
    answer = ask(pbs, "--", "qsub", "-l", "ngpus=2", "--", "/bin/a")
    assert bounds(answer) == ("yes", None, 2 * H, None) and answer["unknown"]


def test_a_server_that_hangs_does_not_hold_it_up(pbs: World) -> None:
    pbs.script("qstat", "/bin/sleep 60")
    begun = time.monotonic()
    lines = "; ".join(["qsub -l ngpus=1 -- /bin/a"] * 3)
    answer = ask(pbs, "--", "bash", "-c", lines, env={"HANDWASH_DEADLINE": "1.5"})
    assert time.monotonic() - begun < 3 and answer["verdict"] == "yes" and answer["max_gpu_hours"] is None
    assert "no answer in time" in answer["unknown"][0]


def test_what_a_person_reads(pbs: World) -> None:
    shown = pbs.run("cost", "--", "qsub", "-l", "ngpus=2", "-l", "walltime=8:00:00", "--", "/bin/a")[1].splitlines()
    assert shown[0] == "yes: at most 16 GPU-hours (2 GPUs × 8:00:00)" and "qdel JOB" in shown[-1]
    shown = pbs.run("cost", "--", "qsub", "-I", "-l", "ngpus=1")[1].splitlines()
    assert shown[0] == "yes: at most 2 GPU-hours (1 GPU × 2:00:00)" and shown[-1].endswith(": exit")
    assert any("queue workq sets 2:00:00" in line for line in shown)
    assert pbs.run("cost", "--", "qdel", "1")[1].startswith("no: ")
    assert pbs.run("cost", "--", "qalter", "1")[1].startswith("could not tell")
    said = pbs.run("cost", "--", "qsub", "-l", "ngpus=2", "--", "/bin/a", env={"HANDWASH_LANG": "zh_CN"})[1]
    assert said.startswith("会：最多 4 卡时")


def test_foreign_text_stays_harmless(pbs: World) -> None:
    name = NAME.replace("\n", "").replace(" ", "")
    (pbs.folder / "-B").write_text(SERVER.replace("default_queue = workq", f"default_queue = {name}"))
    for line in (
        ["-q", name],
        ["-l", f"{name}=1"],
        ["-l", f"select=1:a={name}"],
        [f"-W{name}=1"],
        [f"-l walltime={name}"],
        [],
    ):
        _code, out, err = pbs.run("cost", "--", "qsub", *line, "--", "/bin/a")
        assert "\x1b" not in out + err and "\u202e" not in out + err and (out or err), line
