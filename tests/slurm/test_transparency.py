"""The same command line with srun and with safe-srun: same output, same exit code, same files, same effect of signals."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.usefixtures("handwash_venv")

PRELUDE, *_SECTIONS = re.split(r"^## ", (Path(__file__).parent / "command_lines.txt").read_text(), flags=re.MULTILINE)
TABLE = {name: script for name, _, script in (section.partition("\n") for section in _SECTIONS)}
# The machine has two cores, and most of the time goes by in waiting.
AT_A_TIME = 10
LIMIT = 60.0


class Effect(NamedTuple):
    """What a command line did, without what differs from one run of srun to the next."""

    code: int | None
    out: list[str]
    err: list[str]
    files: list[str]

    def lines(self) -> list[str]:
        """All of it, for a comparison that people read."""
        parts = {"code": [str(self.code)], "stdout": self.out, "stderr": self.err, "files": self.files}
        return [f"{name}: {line}" for name, lines in parts.items() for line in lines]


def normal(text: str, folder: Path) -> list[str]:
    """Ids, ports, nodes and times replaced; what handwash says, and its own variable, left out."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, word in (
        # The one line that differs in its first word: slurmstepd has nobody to execute any more.
        (r"^(slurmstepd\S*|handwash): error: execve", "execve"),
        (r"^handwash: .*\n", ""),
        (r"^srun: (job \d+ (queued and waiting for|has been allocated) resources|Job step creation temporarily.*|"
         r"Job \d+ step creation temporarily.*|Step created for job \d+)\n", ""),
        (r"^HANDWASH_SESSION(=.*)?\n", ""),
        (r"\S*/handwash-pipe-\w+/\d+/", ""),
        (r"\d{4}-\d\d-\d\dT[\d:]+", "TIME"),
        (r"(JOB_?ID\S*=|PORT=|TASK_PID=|StepId=|STEP |job |bcast_)\d+", r"\1NUMBER"),
        (r"(?<![a-zA-Z])n[12]\b", "NODE"),
        (r"^S=(safe-)?srun$", "S"),
        # Whether the last words of a step that is ended by force still arrive is chance.
        (r"^slurmstepd\S*: error: \*\*\* STEP .*\n", ""),
        (r"^\S*catch.sh: line \d+: +\d+ Killed .*\n", ""),
    ):  # fmt: skip
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [one for line in text.splitlines() for one in each_task(line)]


def each_task(line: str) -> list[str]:
    """A line for each of the tasks in it: which of them srun names together is a matter of when it hears of them."""
    found = re.fullmatch(r"(srun: error: \S+): tasks? (\d[\d,-]*): (.*)", line)
    if found is None:
        return [line]
    head, numbers, words = found.groups()
    ends = [part.split("-") for part in numbers.split(",")]
    return [f"{head}: task {task}: {words}" for end in ends for task in range(int(end[0]), int(end[-1]) + 1)]


def effect(cluster: Cluster, program: str, number: int, script: str) -> Effect:
    """Runs a script of the table with srun or safe-srun, in a folder of its own."""
    folder = cluster.home("alice") / "table" / f"{number:03}-{program}"
    folder.mkdir()
    os.chown(folder, cluster.account("alice").pw_uid, cluster.account("alice").pw_gid)
    env = {"S": program, "PWD": str(folder), "HANDWASH_GRACE": "1"}
    try:
        done = cluster.run(["bash", "-c", PRELUDE + script], user="alice", cwd=folder, env=env, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return Effect(None, [], [], [])
    files = []
    for path in sorted(folder.rglob("*")):
        content = path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 10000 else "…"
        files += normal(f"{path.relative_to(folder)}: {content}", folder)
    # Several processes write standard error, in any order.
    return Effect(done.returncode, normal(done.stdout, folder), sorted(normal(done.stderr, folder)), files)


def effects_of_all(cluster: Cluster, table: dict[str, str] = TABLE) -> dict[str, tuple[Effect, Effect]]:
    """The whole table, run side by side, with srun and with safe-srun."""
    folder = cluster.home("alice") / "table"
    folder.mkdir()
    os.chown(folder, cluster.account("alice").pw_uid, cluster.account("alice").pw_gid)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        runs = {
            name: [pool.submit(effect, cluster, program, number, script) for program in ("srun", "safe-srun")]
            for number, (name, script) in enumerate(table.items())
        }
        effects = {name: (plain.result(), supervised.result()) for name, (plain, supervised) in runs.items()}
    shutil.rmtree(folder)
    return effects


def test_every_command_line_does_the_same_as_with_srun(any_cluster: Cluster) -> None:
    """The whole table; all that differs is shown."""
    assert len(TABLE) >= 60
    effects = effects_of_all(any_cluster)
    if any_cluster.restart_dead():
        # Slurm itself has failed under plain srun and safe-srun alike: that run says nothing.
        any_cluster.clear()
        effects = effects_of_all(any_cluster)
    # Slurm itself lets two things race in some of them, the TERM and the KILL of `srun -K` say, and a busy machine decides:
    # what differs once is run again by itself.
    for _time in range(2):
        differs = {name: TABLE[name] for name, (plain, supervised) in effects.items() if plain != supervised}
        if differs:
            effects.update(effects_of_all(any_cluster, differs))
    report = []
    for name, (plain, supervised) in effects.items():
        if plain.code is None:
            report.append(f"{name}: srun itself did not end")
        elif plain != supervised:
            report += [f"{name}:", *difflib.unified_diff(plain.lines(), supervised.lines(), "srun", "safe-srun", n=0)]
    assert not report, "\n".join(report)
