"""A site's own scheduler, as small as one can be: a folder with a file `jobs`, a line for each job: its id and its program.

It stands for a module that a site installs beside handwash and names in the setting `scheduler`. $TOY_JOB is a job's number,
$TOY_NODE says that a shell is on a node of it; what `cancel` was asked for is in the file `cancelled`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from handwash.model import Job, Site
from handwash.run import CouldNotTell
from handwash.schedulers.base import Place, Scheduler

FOLDER = os.environ.get("TOY_FOLDER", "/nonexistent")


class Toy(Scheduler):
    """Every job holds a GPU; those of a shell are interactive."""

    name = "Toy"
    variables = (b"TOY_JOB",)

    def ask(self) -> list[str]:
        try:
            with open(f"{FOLDER}/jobs", encoding="utf-8") as file:
                return file.read().splitlines()
        except OSError as error:
            raise CouldNotTell(f"The toy's list of jobs cannot be read: {error.strerror}.") from None

    def jobs(self, said: Sequence[str]) -> tuple[Job, ...]:
        rows = (line.split() for line in said)
        return tuple(
            Job(job, job, "RUNNING", program, "toys", (), 1, 60, None, interactive=program == "shell")
            for job, program in rows
        )

    def site(self, said: Sequence[str]) -> Site:
        return Site(holders=("toyrun",))

    def evidence(self) -> dict[str, str]:
        return {name: os.environ[name] for name in ("TOY_JOB", "TOY_NODE") if name in os.environ}

    def place(self, seen: dict[str, str], living: frozenset[str] | None) -> Place:
        job = seen.get("TOY_JOB")
        if "TOY_NODE" not in seen:
            return Place("login", None, ("This is where toys are asked for.",))
        if job is None or (living is not None and job not in living):
            return Place("compute", None, ("TOY_NODE is set.",))
        return Place("compute", job, ("TOY_NODE and TOY_JOB are set.",))

    def cancel(self, job: str) -> bool | None:
        with open(f"{FOLDER}/cancelled", "a", encoding="utf-8") as file:
            file.write(f"{job}\n")
        rest = [line for line in self.ask() if line.split()[0] != job]
        with open(f"{FOLDER}/jobs", "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in rest))
        return True

    def cancel_line(self, job: str) -> str:
        return f"toydel {job}"


SCHEDULER = Toy()
