"""Which scheduler handwash asks: by what is there to see, by the setting, and one that the site has a module for."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.contract.test_front_door import CHECK, shape
from tests.testbed.pbs_world import PbsWorld
from tests.testbed.programs import toy_scheduler

SQUEUE = '#!/bin/sh\necho "$*" >>"$HOME/squeue"\nexit 0\n'


@pytest.fixture
def both(pbs_world: PbsWorld) -> PbsWorld:
    """A host with pbs.conf, the commands of PBS and those of Slurm; slurm.conf is named by a variable, and is not there."""
    program = pbs_world.pbs.bin / "squeue"
    program.write_text(SQUEUE)
    program.chmod(0o755)
    return pbs_world


def asked(world: PbsWorld, **options: object) -> set[str]:
    """Who is asked for jobs."""
    for path in (world.home / "squeue", world.pbs.folder / "asked"):
        path.unlink(missing_ok=True)
    code, answer = world.json("check", **options)
    assert code in (0, 3), answer
    found = {"pbs"} if world.pbs.asked("qstat") else set()
    return found | ({"slurm"} if (world.home / "squeue").exists() else set())


def test_by_what_there_is(both: PbsWorld) -> None:
    """Slurm's commands beside a pbs.conf: PBS. With a slurm.conf, or without a pbs.conf whatever qstat there is: Slurm."""
    assert asked(both) == {"pbs"}
    conf = Path(both.env["SLURM_CONF"])
    conf.write_text("NodeName=elsewhere\n")
    assert asked(both) == {"slurm"}
    conf.unlink()
    # A site that has gone over to Slurm, configless, and has left pbs.conf where it was.
    qstat = both.pbs.bin / "qstat"
    qstat.rename(both.pbs.bin / "aside")
    assert asked(both) == {"slurm"}
    (both.pbs.bin / "aside").rename(qstat)
    both.env["PBS_CONF_FILE"] = "/nonexistent"
    assert asked(both) == {"slurm"}


def test_inside_a_job(both: PbsWorld) -> None:
    """The job that a shell is in says which, before any file does; Slurm's torque package sets PBS's variables too."""
    Path(both.env["SLURM_CONF"]).write_text("NodeName=elsewhere\n")
    job = both.job()
    env = {**both.inside(job), "PATH": both.env["PATH"]}
    assert asked(both, env=env, whole=True) == {"pbs"}
    assert both.json("where", env=env, whole=True)[1]["job"] == job
    # Not MOM's: what is typed by hand, or handed on to another cluster, is no job.
    for wrong in ({"PBS_JOBID": "-x"}, {"PBS_ENVIRONMENT": "x"}, {"PBS_ENVIRONMENT": ""}):
        assert asked(both, env={**env, **wrong}, whole=True) == {"slurm"}
    within = {**env, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    assert asked(both, env=within, whole=True) == {"slurm"}


@pytest.mark.parametrize(("name", "who"), [("slurm", "slurm"), ("pbs", "pbs"), ("auto", "pbs")])
def test_by_the_setting(both: PbsWorld, name: str, who: str) -> None:
    """The site's file, then the person's environment, over whatever there is to see."""
    site = both.folder / "etc" / "handwash" / "handwash.toml"
    site.parent.mkdir(parents=True)
    site.write_text(f'scheduler = "{name}"\n')
    tomli = subprocess.run([both.python, "-I", "-S", "-c", "import tomllib"], capture_output=True).returncode != 0
    if not tomli:
        assert asked(both) == {who}
    assert asked(both, env={"HANDWASH_SCHEDULER": name}) == {who}
    if not tomli:
        assert asked(both, env={"HANDWASH_SCHEDULER": "pbs"}) == {"pbs"}


@pytest.mark.parametrize("name", ["a b", "../x", "os;", "-x", "1", "\x1b[31m"])
def test_no_name_at_all(both: PbsWorld, name: str) -> None:
    """What cannot be a module's name is a mistake in the settings, told in a line; what was in force stays."""
    code, _out, err = both.run("check", env={"HANDWASH_SCHEDULER": name})
    assert code == 0 and "HANDWASH_SCHEDULER" in err and len(err.splitlines()) == 1 and "\x1b" not in err
    assert asked(both, env={"HANDWASH_SCHEDULER": name}) == {"pbs"}


# The site's own


class Site:
    """handwash installed in an environment of its own, with the site's module in another folder of that environment."""

    def __init__(self, world: PbsWorld) -> None:
        self.world = world
        venv = world.folder / "venv"
        subprocess.run([world.python, "-I", "-m", "venv", "--without-pip", str(venv)], check=True)
        (packages,) = venv.glob("lib/python3*/site-packages")
        shutil.copytree(world.package, packages / "handwash")
        self.modules = world.folder / "modules"
        self.modules.mkdir()
        (packages / "site.pth").write_text(f"{self.modules}\n")
        world.handwash = [str(venv / "bin" / "python"), "-I", "-S", str(packages / "handwash" / "__main__.py")]
        self.folder = world.folder / "toys"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        world.env = {**world.env, "HANDWASH_SCHEDULER": "toys", "TOY_FOLDER": str(self.folder)}
        self.module(Path(toy_scheduler.__file__).read_text())

    def module(self, text: str) -> None:
        (self.modules / "toys.py").write_text(text)

    def jobs(self, *rows: str) -> None:
        (self.folder / "jobs").write_text("".join(f"{row}\n" for row in rows))
        (self.folder / "jobs").chmod(0o666)

    def inside(self, job: str) -> dict[str, str]:
        return {**self.world.env, "TOY_JOB": job, "TOY_NODE": "1"}


@pytest.fixture
def site(pbs_world: PbsWorld) -> Site:
    """A host of PBS, with a module for another scheduler in the settings: that counts."""
    made = Site(pbs_world)
    made.jobs()
    return made


def test_a_module_of_the_site_s(site: Site) -> None:
    """Found behind `python -I -S` in site-packages, .pth files included; it tells jobs, places and whose work something is."""
    world = site.world
    assert world.json("where")[1]["kind"] == "login"
    site.jobs("a1 train", "a2 shell")
    node = {"TOY_NODE": "1"}
    left, spared = world.sleeper(site.inside("a0")), world.sleeper(site.inside("a1"))
    code, answer = world.json("check", env=node)
    shape(answer, CHECK)
    assert (code, answer["verdict"], answer["node"]["kind"]) == (1, "leftover", "compute")
    assert [(row["id"], row["interactive"]) for row in answer["jobs"]["items"]] == [("a1", False), ("a2", True)]
    assert world.row(left, env=node)["whose"] == "ended-job" and world.row(spared, env=node)["whose"] == "living-job"
    assert world.json("where", env=site.inside("a1"))[1]["job"] == "a1"
    assert world.would_end(env=node) == [left]
    code, answer = world.json("clean", "--yes", env=node)
    assert (code, answer["ended"]) == (0, [left]) and world.lives(spared)
    code, out, err = world.run("clean", env=node)
    assert code == 0 and "end it with: toydel a2" in out and "toydel a1" in out, out + err
    assert not world.pbs.asked("qstat")


def test_a_module_that_prints(site: Site) -> None:
    """Nobody has asked for that: an answer stays whole, for programs and for people."""
    text = Path(toy_scheduler.__file__).read_text() + "print('noise')\n"
    site.module(text.replace("        rows = ", "        print('noise')\n        rows = "))
    site.jobs("a1 train")
    code, answer = site.world.json("check")
    assert code == 0 and [row["id"] for row in answer["jobs"]["items"]] == ["a1"]
    assert not any("noise" in said for said in site.world.run("check")[1:])


def test_its_job_is_cancelled(site: Site) -> None:
    """After a yes, by the module, this one and no other."""
    world = site.world
    site.jobs("a1 train", "a2 shell")
    child = world.terminal([*world.handwash, "clean"])
    child.expect(r"Job a2 .* Cancel it\? \[y/N\] ")
    child.send("y\n")
    child.expect("Job a2 has left the queue")
    child.wait()
    child.close()
    assert (site.folder / "cancelled").read_text() == "a2\n"


def test_it_could_not_tell(site: Site) -> None:
    """In the module's own words."""
    (site.folder / "jobs").unlink()
    code, answer = site.world.json("check")
    assert (code, answer["verdict"]) == (3, "unknown")
    assert answer["jobs"]["why"] == "The toy's list of jobs cannot be read: No such file or directory."


BASE = "from handwash.schedulers.base import Place, Scheduler\nfrom handwash.model import Job\n"
JOBS = "    def jobs(self, said): return (Job('a1', 'a1', 'RUNNING', 'x', 'toys', (), 1, 60, None, False),)\n"
TOY = (
    BASE
    + "class Toy(Scheduler):\n    name = 'toys'\n    variables = (b'TOY_JOB',)\n"
    + JOBS
    + "    {}\nSCHEDULER = Toy()\n"
)
NO_JOBS = "    def jobs(self, said): return ()"
COMPUTES = "\n    def place(self, seen, living): return Place('compute', None, ('x',))\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "ModuleNotFoundError"),
        ("raise RuntimeError('\x1b[31mboom')", "RuntimeError: \\x1b[31mboom"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("1 +", "SyntaxError"),
        ("X = 1", "AttributeError"),
        ("SCHEDULER = 'toys'", "no SCHEDULER that is a scheduler"),
        (BASE + "SCHEDULER = Scheduler", "no SCHEDULER that is a scheduler"),
        (BASE + "SCHEDULER = Scheduler()", "does not tell which jobs there are"),
        (TOY.replace(JOBS, "").format("pass"), "does not tell which jobs there are"),
        (TOY.format("variables = ()"), "does not tell which job a process is in"),
        (TOY.format("variables = ('TOY_JOB',)"), "TypeError"),
        (TOY.format("variables = 7"), "TypeError"),
        (TOY.format("def ask(self): raise RuntimeError('boom')"), "ask, RuntimeError: boom"),
        (TOY.format("def ask(self): import sys; sys.exit(0)"), "ask, SystemExit: 0"),
        (TOY.format("def ask(self): return self"), "ask, ValueError: unmarshallable object"),
        (TOY.format("def jobs(self, said): return None"), "jobs, None"),
        (TOY.format("def jobs(self, said): return ['a1']"), "jobs, ['a1']"),
        (TOY.format("name = ''"), "TypeError: name = ''"),
        (TOY.format("name = None"), "TypeError: name = None"),
        (TOY.format("divided_by = 'pool'"), "TypeError: divided_by"),
        (TOY.format("lists_all = 1"), "TypeError: lists_all = 1"),
        (TOY.replace("'a1', 'a1'", "'a1', 1").format("pass"), "jobs, TypeError: Job.number = 1"),
        (TOY.replace(", 1, 60", ", '2', 60").format("pass"), "jobs, TypeError: Job.gpus = '2'"),
        (TOY.replace(", 1, 60", ", True, 60").format("pass"), "jobs, TypeError: Job.gpus = True"),
        (TOY.replace(", 1, 60", ", 1, '60'").format("pass"), "jobs, TypeError: Job.elapsed_s = '60'"),
        (TOY.replace("(), 1, 60", "None, 1, 60").format("pass"), "jobs, TypeError: Job.nodes = None"),
        (TOY.format("def jobs(self, said): import sys; sys.exit(0)"), "jobs, SystemExit"),
        (TOY.format("def evidence(self): raise RuntimeError('boom')"), "evidence, RuntimeError: boom"),
        (TOY.format("def place(self, seen, living): return None"), "place, None"),
        (TOY.format("def place(self, seen, living): return Place('moon', None, ())"), "Place.kind = 'moon'"),
        (TOY.format("def place(self, seen, living): 1 / 0"), "place, ZeroDivisionError"),
        (TOY.format("def place(self, seen, living): return Place('login', None, 'why')"), "Place.why = 'why'"),
        (TOY.format("def place(self, seen, living): import os; os._exit(0)"), "it crashed"),
        (TOY.format("def jobs(self, said): import os; os._exit(0)"), "it crashed"),
        (TOY.format("def membership(self, groups, variables): return 'a1'" + COMPUTES), "membership, 'a1'"),
        (TOY.format("def membership(self, groups, variables): 1 / 0" + COMPUTES), "membership, ZeroDivisionError"),
        (TOY.format("lists_all = False\n    def not_over(self, jobs): return 7\n" + NO_JOBS), "not_over"),
        ("import time; time.sleep(60)", "No answer within 1 s"),
        (TOY.format("def ask(self): import time; time.sleep(60)"), "No answer within 1 s"),
        (TOY.format("def jobs(self, said): import time; time.sleep(60)"), "No answer within 1 s"),
        (TOY.format("def site(self, said): import time; time.sleep(60)"), "No answer within 1 s"),
        (TOY.format("def evidence(self): import time; time.sleep(60)"), "No answer within 1 s"),
        (TOY.format("def place(self, seen, living): import time; time.sleep(60)"), "No answer within 1 s"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_used(site: Site, text: str | None, said: str) -> None:
    """Could not tell, with the module's name or its words: never clean, no traceback, nothing ended, nobody held at exit."""
    world = site.world
    (site.modules / "toys.py").unlink()
    if text is not None:
        site.module(text)
    # Left over on a compute node, as far as anybody could tell; for all anybody knows it is a running job's.
    sleeper = world.sleeper(site.inside("a1"))
    env = {**site.inside("a1"), "HANDWASH_DEADLINE": "1" if "sleep" in (text or "") else "10"}
    code, answer = world.json("check", env=env)
    assert (code, answer["verdict"]) == (3, "unknown"), answer
    whys = [answer[look]["why"] for look in ("jobs", "processes")] + answer["node"]["why"]
    assert any(why is not None and said.replace("\\x1b", "\x1b") in why for why in whys), whys
    code, out, err = world.run("check", env=env)
    assert code == 3 and said in out + err and "\x1b" not in out + err, out + err
    code, out, err = world.run("clean", "--yes", env=env)
    assert code == 3 and "Clean:" not in out and world.lives(sleeper)
    code, out, err = world.run("leave", "exit", env={**env, "HANDWASH_ON_EXIT": "clean"})
    assert (code, out) == (0, "") and "could not tell" in err and world.lives(sleeper)
    code, out, err = world.run("banner", env=env)
    assert (code, out) == (0, "")


# What hangs, and whether the verdict has to do without it.
HANGS = [
    ("", True),
    ("ask", True),
    ("place", True),
    ("membership", True),
    ("cancel_line", False),
    ("queue_line", False),
]


@pytest.mark.parametrize(("method", "needed"), HANGS)
def test_a_module_that_is_slow(site: Site, method: str, needed: bool) -> None:
    """Import, look, reading or line: nobody waits for it much longer than the deadline, once and not for each."""
    world = site.world
    text = Path(toy_scheduler.__file__).read_text()
    hang = "import time; time.sleep(60)\n"
    if method:
        hang = f"class Slow(Toy):\n    def {method}(self, *words): {hang}SCHEDULER = Slow()\n"
    site.module(text + hang)
    site.jobs("a1 train", "a2 shell")
    env = {**site.inside("a2"), "HANDWASH_DEADLINE": "2"}
    for words in (["check"], ["leave", "exit"], ["where"], ["status"]):
        began = time.monotonic()
        code, out, err = world.run(*words, env=env)
        # Two seconds for all looks, half a second for the first line; the rest is for a busy machine.
        assert time.monotonic() - began < 2 + 0.5 + 1.5, (words, out, err)
        assert code == (3 if needed and words[0] in ("check", "status") else 0) or words == ["where"], (words, out, err)


def test_a_module_that_takes_its_time(site: Site) -> None:
    """It is imported once for jobs and place, so that both are told where one import fits into the deadline and two do not."""
    site.module(Path(toy_scheduler.__file__).read_text() + "import time; time.sleep(1.2)\n")
    site.jobs("a1 train")
    env = {**site.inside("a1"), "HANDWASH_DEADLINE": "2.2"}
    code, answer = site.world.json("check", env=env)
    assert (code, answer["node"]["job"]) == (0, "a1"), answer
    assert [row["id"] for row in answer["jobs"]["items"]] == ["a1"]


NOT_KNOWN = ["def site(self, said): 1 / 0", "def site(self, said): return Site(holders=())",
             "def site(self, said): return Site(holders='toyrun')", "def site(self, said): return None"]  # fmt: skip


@pytest.mark.parametrize("method", NOT_KNOWN)
def test_nobody_is_known_to_wait(site: Site, method: str) -> None:
    """Without the programs that wait for an interactive job none is offered: somebody may sit in it. One's own stays one."""
    world = site.world
    text = Path(toy_scheduler.__file__).read_text()
    site.module(f"{text}class Bad(Toy):\n    {method}\nSCHEDULER = Bad()\n")
    site.jobs("a1 train", "a2 shell", "a3 shell")
    code, out, err = world.run("clean", env=site.inside("a3"))
    assert code == 0 and "a2" not in out + err and "toydel a1" in out, out + err
    rows = world.json("check", env=site.inside("a3"))[1]["jobs"]["items"]
    assert [(row["id"], row["interactive"]) for row in rows] == [("a1", False), ("a2", None), ("a3", True)]


def test_a_cancel_that_fails(site: Site) -> None:
    """Raised, or nonsense: could not tell whether it has left. Lines that a module does not give are left out."""
    world = site.world
    for what in ("1 / 0", "return 'yes'", "import sys; sys.exit(0)"):
        text = Path(toy_scheduler.__file__).read_text()
        site.module(text.replace("SCHEDULER = Toy()", f"class Bad(Toy):\n    def cancel(self, job): {what}\n"
                    "    def cancel_line(self, job): 1 / 0\nSCHEDULER = Bad()\n"))  # fmt: skip
        site.jobs("a2 shell")
        child = world.terminal([*world.handwash, "clean"])
        child.expect(r"Cancel it\? \[y/N\] ")
        child.send("y\n")
        child.expect("Could not tell whether job a2 has left the queue")
        child.wait()
        child.close()
        code, out, err = world.run("status")
        assert code == 0 and "Job a2 is interactive and still runs" in out, out + err
