"""A stand-in for PBS, which cannot be installed from a package: qstat, qdel and pbsnodes that answer out of a folder.

It stands for an OpenPBS server (23.06.06 and the head of 2026), as seen by one who asks it from any host. Recorded from the
real one, and the same here: the format of `qstat -f -w` and of the table, the exit codes, the words beside them but for two,
the server that is down and the one that hangs, history on and off, E after qdel, no `session_id` in the first seconds. Read
in its sources and not seen: which jobs `-u`, `-t` and `-r` choose, `-B`, the words beside the exit codes 159 and 168, and all
of pbsnodes, which tells what a test says of the vnodes and nothing of the jobs on them. Not here: MOM, the scheduler, qsub,
`-f` without `-w`; it starts and ends no process, so a job's processes are the test's own.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.testbed.programs import pbs_command

COMMANDS = ("qstat", "qdel", "pbsnodes")
# How long after a qdel a job's processes are said to last; the real server's `kill_delay` is ten seconds.
ENDS_IN_S = 1.0
# One that is added in state E stays there until `end`.
LONG_S = 1e6


class Wanted(NamedTuple):
    """A job of the stand-in's. `started`: seconds since the epoch, by default now. `session`: its leader's pid.

    `variables`: what its owner has put into its Variable_List; `more`: other attributes, with `__` for a dot.
    """

    user: str
    state: str = "R"
    gpus: int = 0
    name: str = "STDIN"
    interactive: bool = False
    started: float | None = None
    walltime_s: int | None = None
    session: int | None = None
    variables: str = ""
    more: Mapping[str, str] = {}


class Pbs:
    """One server. `server`: its name; `node`: its one host that runs jobs."""

    server = "vm"
    node = "vm"

    def __init__(self, folder: Path, *, mom: bool = True, history: bool = False, python: str = sys.executable) -> None:
        """`mom`: whether pbs.conf says that this host runs jobs; `history`: whether finished jobs are kept.

        `python`: what runs the commands.
        """
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        # A copy: the stand-in can be another person's who may not read this checkout.
        code = shutil.copy(pbs_command.__file__, folder)
        for command in COMMANDS:
            program = self.bin / command
            words = [python, "-I", "-S", code, str(folder), command]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
        self.config = folder / "pbs.conf"
        self.config.write_text(
            f"PBS_EXEC={folder}\nPBS_HOME={folder}/spool\nPBS_SERVER={self.server}\n"
            f"PBS_START_SERVER=0\nPBS_START_COMM=0\nPBS_START_SCHED=0\nPBS_START_MOM={int(mom)}\n"
        )
        state = {"server": self.server, "is": "up", "history": history, "ends_in_s": ENDS_IN_S, "ignores_qdel": False}
        (folder / "state.json").write_text(json.dumps({**state, "history_duration": "", "jobs": [], "vnodes": {}}))
        self._number = 0
        self.vnode(self.node)

    def vnode(self, name: str, gpus: int = 0, used: int = 0, cpus: int = 8, state: str = "free", **more: str) -> None:
        """A vnode, or another state of it, in the order of pbsnodes. `used`: of its GPUs; `more`: other attributes."""
        attributes = {
            "Mom": name,
            "ntype": "PBS",
            "state": state,
            "pcpus": str(cpus),
            "resources_available.arch": "linux",
            "resources_available.ncpus": str(cpus),
            **({"resources_available.ngpus": str(gpus), "resources_assigned.ngpus": str(used)} if gpus else {}),
            "resources_assigned.ncpus": "0",
            **more,
            "resv_enable": "True",
            "sharing": "default_shared",
        }
        with pbs_command.state_of(self.folder) as known:
            known["vnodes"][name] = attributes

    def set(self, **changes: Any) -> None:
        """`history`; `history_duration`: for how long it is kept, `336:00:00`, or "" where the site has not set it.

        `ends_in_s`: seconds in E after qdel; `ignores_qdel`: it says yes, and the job runs on.
        """
        with pbs_command.state_of(self.folder) as state:
            assert set(changes) <= set(state)
            state.update(changes)

    def down(self) -> None:
        """Nobody listens: "Connection refused" at once."""
        self.set(**{"is": "down"})

    def hang(self) -> None:
        """The server is there and does not answer; each command waits for ever."""
        self.set(**{"is": "hangs"})

    def up(self) -> None:
        """It answers again."""
        self.set(**{"is": "up"})

    def add(self, user: str | None = None, state: str = "R", **wanted: Any) -> str:
        """A job, by default of the person who runs the tests, with what `Wanted` says of it; gives its id."""
        self._number += 1
        job = f"{self._number}.{self.server}"
        self._put(job, Wanted(user or me(), state, **wanted))
        return job

    def add_array(self, states: str, user: str | None = None, **wanted: Any) -> str:
        """An array with one subjob for each letter of `states` (Q, R, E, X); gives the array's id."""
        self._number += 1
        array = f"{self._number}[].{self.server}"
        names = {"Queued": "Q", "Running": "R", "Exiting": "E", "Expired": "X"}
        waiting = ",".join(str(index) for index, letter in enumerate(states, start=1) if letter == "Q")
        shown = {
            "array": "True",
            "array_state_count": " ".join(f"{name}:{states.count(letter)}" for name, letter in names.items()),
            "array_indices_submitted": f"1-{len(states)}",
            "array_indices_remaining": waiting or "-",
        }
        one = Wanted(user or me(), **{"name": "arr", **wanted})
        self._put(array, one._replace(state="B", more=shown))
        for index, letter in enumerate(states, start=1):
            more = {"array_id": array, "array_index": str(index)}
            self._put(f"{self._number}[{index}].{self.server}", one._replace(state=letter, more=more))
        return array

    def _put(self, job: str, wanted: Wanted) -> None:
        attributes = record(job, wanted, self.server, self.node)
        with pbs_command.state_of(self.folder) as state:
            state["jobs"].append(
                {"id": job, "session": wanted.session, "over_at": time.time() + LONG_S, "attributes": attributes}
            )

    def state_of(self, job: str) -> str:
        """The letter of a job's state now."""
        return str(self._job(job)["attributes"]["job_state"])

    def _job(self, job: str) -> dict[str, Any]:
        with pbs_command.state_of(self.folder) as state:
            return next(one for one in state["jobs"] if one["id"] == job)

    def change(self, job: str, **attributes: str) -> None:
        """Other attributes for a job, with `__` for a dot; an empty value takes one away."""
        with pbs_command.state_of(self.folder) as state:
            of = next(one for one in state["jobs"] if one["id"] == job)["attributes"]
            of.update({name.replace("__", "."): value for name, value in attributes.items()})
            for name in [name for name, value in of.items() if value == ""]:
                del of[name]

    def end(self, job: str, *, status: int = 0) -> None:
        """The job has ended, as by itself, and has left the queue."""
        with pbs_command.state_of(self.folder) as state:
            one = next(one for one in state["jobs"] if one["id"] == job)
            one["over_at"] = time.time()
            one["attributes"]["Exit_status"] = str(status)
            pbs_command.finish(one)

    def asked(self, command: str = "qdel") -> list[list[str]]:
        """The words after `qdel` (or `qstat`), of each time it was started, in order."""
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words for name, *words in map(json.loads, lines) if name == command]

    def environment(self, path: str = os.defpath) -> dict[str, str]:
        """What a login shell on a PBS cluster has: the commands on the PATH, before `path`, and where pbs.conf is."""
        return {"PATH": f"{self.bin}:{path}", "PBS_CONF_FILE": str(self.config)}

    def inside(self, job: str, path: str = os.defpath) -> dict[str, str]:
        """The variables that MOM sets in a job, as recorded. It sets PATH anew: qstat is not on it."""
        found = self._job(job)
        attributes = found["attributes"]
        user = attributes["Job_Owner"].partition("@")[0]
        nodes = self.folder / "aux" / job
        nodes.parent.mkdir(exist_ok=True)
        nodes.write_text(f"{self.node}\n")
        return {
            "PATH": path,
            "PBS_CONF_FILE": str(self.config),
            "PBS_ENVIRONMENT": "PBS_INTERACTIVE" if attributes.get("interactive") == "True" else "PBS_BATCH",
            "PBS_JOBCOOKIE": "24CA69F2082EB9317845CD3D3496FCD1",
            "PBS_JOBDIR": f"/home/{user}",
            "PBS_JOBID": job,
            "PBS_JOBNAME": attributes["Job_Name"],
            "PBS_MOMPORT": "15003",
            "PBS_NODEFILE": str(nodes),
            "PBS_NODENUM": "0",
            "PBS_O_HOME": f"/home/{user}",
            "PBS_O_HOST": "localhost",
            "PBS_O_LOGNAME": user,
            "PBS_O_QUEUE": "workq",
            "PBS_O_SYSTEM": "Linux",
            "PBS_O_WORKDIR": f"/home/{user}",
            "PBS_QUEUE": "workq",
            "PBS_TASKNUM": "1",
            "NCPUS": "1",
            "OMP_NUM_THREADS": "1",
        }


def me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def hours(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def record(job: str, wanted: Wanted, server: str, node: str) -> dict[str, Any]:
    """The attributes of a job, in the order of the recordings; a time is in seconds since the epoch."""
    number = job.partition(".")[0]
    state, name, home = wanted.state, wanted.name, f"/home/{wanted.user}"
    began = state in ("R", "S", "E", "F")
    started = time.time() if wanted.started is None else wanted.started
    chunk = "ncpus=1" + (f":ngpus={wanted.gpus}" if wanted.gpus else "")
    wall = hours(max(0, int(time.time() - started))) if state == "R" else "00:00:00"
    used = {"cpupercent": "0", "cput": "00:00:00", "mem": "0kb", "ncpus": "1", "vmem": "0kb", "walltime": wall}
    kept = f"localhost:{home}/{name}"
    by_owner = f",{wanted.variables}" if wanted.variables else ""
    found: dict[str, Any] = {
        "Job_Name": name,
        "Job_Owner": f"{wanted.user}@localhost",
        **{f"resources_used.{kind}": value for kind, value in used.items() if began},
        "job_state": state,
        "queue": "workq",
        "server": server,
        "Checkpoint": "u",
        "ctime": started,
        "Error_Path": f"{kept}.e{number}",
        "exec_host": f"{node}/0" if began else None,
        "exec_vnode": f"({node}:{chunk})" if began else None,
        "Hold_Types": "u" if state == "H" else "n",
        "interactive": "True" if wanted.interactive else None,
        "Join_Path": "n",
        "Keep_Files": "n",
        "Mail_Points": "a",
        "mtime": started,
        "Output_Path": f"{kept}.o{number}",
        "Priority": "0",
        "qtime": started,
        "Rerunable": str(not wanted.interactive),
        "Resource_List.ncpus": "1",
        "Resource_List.ngpus": str(wanted.gpus) if wanted.gpus else None,
        "Resource_List.nodect": "1",
        "Resource_List.place": "free",
        "Resource_List.select": f"1:{chunk}",
        "Resource_List.walltime": None if wanted.walltime_s is None else hours(wanted.walltime_s),
        "stime": started if began or state == "B" else None,
        "substate": {"R": "41", "E": "51", "H": "20", "B": "70", "F": "92"}.get(state, "10"),
        "Variable_List": f"PBS_O_HOME={home},PBS_O_LOGNAME={wanted.user},PBS_O_WORKDIR={home}"
        f"{by_owner},PBS_O_QUEUE=workq,PBS_O_HOST=localhost",
        "etime": started,
        "Submit_arguments": f"-N {name}",
        "project": "_pbs_project_default",
        "Submit_Host": "localhost",
        **{attribute.replace("__", "."): value for attribute, value in wanted.more.items()},
    }
    return {attribute: value for attribute, value in found.items() if value is not None}


@pytest.fixture
def pbs(tmp_path: Path) -> Pbs:
    """A PBS server with one host, that one, and no jobs; its commands are in `bin`."""
    return Pbs(tmp_path / "pbs")
