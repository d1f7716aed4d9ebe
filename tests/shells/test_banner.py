"""The banner in every shell: once per login and once per job, also where one shell is started from another."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.shells.first_lines import IN_PBS
from tests.shells.terminal import KINDS, Person

IN_SLURM = {"SLURM_JOB_ID": "42"}
EVERY = pytest.mark.parametrize("somebody", list(KINDS), indirect=True)


def program(folder: Path, other: Person, **more: str) -> str:
    """A program that becomes a shell of another person's, with their home, in this one's terminal and session."""
    folder.mkdir(exist_ok=True)
    words = [*(f"{name}={value}" for name, value in {**other.env, **more}.items()), *other.kind.argv()]
    path = folder / f"shell{len(list(folder.iterdir()))}"
    path.write_text(f"#!/bin/sh\nexec env {shlex.join(words)}\n")
    path.chmod(0o755)
    return str(path)


@EVERY
def test_once_per_login_and_once_per_job(somebody: Person, tmp_path: Path) -> None:
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    terminal = somebody.shell()
    assert terminal.greeting.count("handwash: ") == 1
    # tcsh keeps its terminal where no other shell does: all below it, and it and its own kind below each.
    names = KINDS if somebody.kind.name == "tcsh" else (somebody.kind.name, "tcsh")
    inner = {n: Person(tmp_path / n, somebody.tree, KINDS[n]) for n in names if KINDS[n].present}
    for name, other in inner.items():
        terminal.greeted = False
        assert "handwash" not in terminal.run(program(tmp_path / "bin", other)), name
        terminal.run("exit")
    own = inner[somebody.kind.name]
    for job, variables in (("42", IN_SLURM), ("12[3].vm", IN_PBS)):
        terminal.greeted = False
        assert f"job {job}," in terminal.run(program(tmp_path / "bin", own, **variables))
        terminal.greeted = False
        assert "handwash" not in terminal.run(program(tmp_path / "bin", own))
        terminal.run("exit")
        terminal.run("exit")


@EVERY
def test_a_second_terminal_that_inherits_the_mark(somebody: Person) -> None:
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    for job in ({}, IN_SLURM, IN_PBS):
        first = somebody.shell(**job)
        assert first.greeting.count("handwash: ") == 1
        mark = first.run("printenv HANDWASH_SHOWN").strip()
        second = somebody.shell(**job, HANDWASH_SHOWN=mark)
        assert second.greeting.count("handwash: ") == (0 if job else 1), "a job's is shown once, whatever the terminal"
        assert "handwash" not in somebody.shell(**job, HANDWASH_SHOWN=mark, TMUX="x").greeting


@EVERY
def test_a_job_with_the_environment_of_the_shell_that_submitted_it(somebody: Person) -> None:
    """As `qsub -V` hands it on, tmux and mark and all, to a shell on the same host; and from that job to the next."""
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off", TMUX="x")
    for job in ({}, IN_PBS, {**IN_PBS, "PBS_JOBID": "12[4].vm"}, {**IN_PBS, "PBS_JOBID": "13.vm"}):
        terminal = somebody.opens(somebody.kind.login, **job)
        assert terminal.greeting.count("handwash: ") == 1
        assert job.get("PBS_JOBID", "no job in this shell") in terminal.greeting
        somebody.env["HANDWASH_SHOWN"] = terminal.run("printenv HANDWASH_SHOWN").strip()


@EVERY
def test_the_mark_is_the_only_export(somebody: Person) -> None:
    names = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        shown = somebody.shell().run("env")
        names.append({line.partition("=")[0] for line in shown.splitlines()} - {"_"})
    assert names[1] - names[0] == {"HANDWASH_SHOWN"}
    assert names[0] <= names[1]
