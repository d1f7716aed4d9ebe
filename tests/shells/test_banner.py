"""The banner in every shell: once per login and once per job, also where one shell is started from another."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, Person

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
    terminal.greeted = False
    assert "job 42" in terminal.run(program(tmp_path / "bin", own, SLURM_JOB_ID="42"))
    terminal.greeted = False
    assert "handwash" not in terminal.run(program(tmp_path / "bin", own))


@EVERY
def test_a_second_terminal_that_inherits_the_mark(somebody: Person) -> None:
    somebody.env.update(HANDWASH_BANNER="line", HANDWASH_ON_EXIT="off")
    for job in ("", "42"):
        first = somebody.shell(SLURM_JOB_ID=job)
        assert first.greeting.count("handwash: ") == 1
        mark = first.run("printenv HANDWASH_SHOWN").strip()
        second = somebody.shell(SLURM_JOB_ID=job, HANDWASH_SHOWN=mark)
        assert second.greeting.count("handwash: ") == (0 if job else 1), "a job's is shown once, whatever the terminal"
        assert "handwash" not in somebody.shell(SLURM_JOB_ID=job, HANDWASH_SHOWN=mark, TMUX="x").greeting


@EVERY
def test_the_mark_is_the_only_export(somebody: Person) -> None:
    names = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        shown = somebody.shell().run("env")
        names.append({line.partition("=")[0] for line in shown.splitlines()} - {"_"})
    assert names[1] - names[0] == {"HANDWASH_SHOWN"}
    assert names[0] <= names[1]
