"""The stand-in's qstat, qdel and pbsnodes (see tests/testbed/pbs.py): ``pbs_command.py FOLDER qstat|qdel|pbsnodes WORDS…``.

Standard library alone, so that it can run with -I -S. Formats, words and exit codes as recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import getopt
import json
import os
import pwd
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

USAGE = (
    "usage: \nqstat [-f] [-J] [-p] [-t] [-x] [-E] [-F format | -w] [-D delim] [ job_identifier... | destination... ]\n"
)
TABLE = "Job id            Name             User              Time Use S Queue\n"
RULE = "----------------  ---------------- ----------------  -------- - -----\n"
# PBS's error numbers modulo 256.
HISTORY, UNKNOWN, PERM, SYSTEM, STATE, QUEUE, CONNECT = 35, 153, 159, 162, 168, 170, 255
# For so long after its start a job has no session_id.
SETTLED_S = 2
TIMES = ("ctime", "Execution_Time", "mtime", "qtime", "stime", "obittime", "etime")


@contextlib.contextmanager
def state_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The server's state, for one at a time; what is changed in it stays."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = (folder / "state.json").read_text()
        state = json.loads(text)
        for job in state["jobs"]:
            pass_time(job)
        yield state
        if json.dumps(state) != text:
            (folder / "state.new").write_text(json.dumps(state))
            (folder / "state.new").replace(folder / "state.json")


def pass_time(job: dict[str, Any]) -> None:
    """What the server would have learnt of a job by now."""
    attributes = job["attributes"]
    if attributes["job_state"] == "E" and time.time() >= job["over_at"]:
        finish(job)
    elif attributes["job_state"] == "R" and time.time() >= attributes["stime"] + SETTLED_S:
        attributes["substate"] = "42"
        if job["session"] is not None:
            attributes["session_id"] = str(job["session"])


def finish(job: dict[str, Any]) -> None:
    """From E to F: the record that history keeps."""
    attributes = job["attributes"]
    attributes.update(job_state="F", substate="92", obittime=job["over_at"], mtime=job["over_at"])
    if "stime" in attributes:
        used = max(0, int(job["over_at"] - attributes["stime"]))
        attributes["resources_used.walltime"] = f"{used // 3600:02}:{used // 60 % 60:02}:{used % 60:02}"
        attributes.setdefault("Exit_status", "0")


def complain(program: str, words: str, code: int) -> int:
    print(f"{program}: {words}", file=sys.stderr)
    return code


def full(job: dict[str, Any]) -> str:
    """`qstat -f -w` of one job. Escapes as qstat.c makes them: newline and form feed, then the control characters."""
    lines = [f"Job Id: {job['id']}"]
    for name, value in job["attributes"].items():
        # As any PBS command: by the clock of its own environment, without a zone.
        text = time.ctime(value) if name in TIMES else str(value)
        text = text.replace("\n", "\\n").replace("\f", "\\f")
        text = "".join(f"^{chr(ord(c) + 64)}" if ord(c) < 32 and c != "\t" else c for c in text)
        lines.append(f"    {name} = {text}")
    return "\n".join(lines) + "\n\n"


def row(job: dict[str, Any]) -> str:
    attributes = job["attributes"]
    name = attributes["Job_Name"]
    name = name if len(name) < 16 else name[:15] + "*"
    used = attributes.get("resources_used.cput", "0")
    owner = attributes["Job_Owner"].partition("@")[0]
    return f"{job['id']:<17} {name:<16} {owner:<16}  {used:>8} {attributes['job_state']:>1} {attributes['queue']:<16}\n"


def qstat(folder: Path, words: list[str]) -> int:
    try:
        options, ids = getopt.gnu_getopt(words, "fwtxru:B")
    except getopt.GetoptError as error:
        sys.stderr.write(f"qstat: invalid option -- '{error.opt}'\n{USAGE}")
        return 2
    given = dict(options)
    with state_of(folder) as state:
        jobs = state["jobs"]
        server, history = state["server"], state["history"]
        if state["is"] == "down":
            sys.stderr.write("Connection refused\n")
            return complain("qstat", f"cannot connect to server {server} (errno=15010)", CONNECT)
        if "-B" in given:
            show_server(state, given)
            return 0
    if not ids:
        if "-x" in given and not history:
            return complain("qstat", "PBS is not configured to maintain job history ", 0)
        chosen = [job for job in jobs if is_listed(job, given)]
        show(chosen, given)
        return 0
    code = 0
    for word in ids:
        job = named(jobs, word, server)
        if not word[:1].isdigit():
            code = complain("qstat", f"Unknown queue destination {word}", QUEUE)
        elif "-x" in given and not history:
            complain("qstat", f"PBS is not configured to maintain job history {word}", 0)
        elif job is None or (is_over(job) and not history):
            code = complain("qstat", f"Unknown Job Id {with_server(word, server)}", UNKNOWN)
        elif is_over(job) and "-x" not in given:
            said = f"{job['id']} Job has finished, use -x or -H to obtain historical job information"
            code = complain("qstat", said, HISTORY)
        else:
            show([job], given)
    return code


def is_over(job: dict[str, Any]) -> bool:
    return job["attributes"]["job_state"] in ("F", "M")


def is_listed(job: dict[str, Any], given: dict[str, str]) -> bool:
    """Whether a job without its id is among those asked for (req_select.c): with -t and -u subjobs, not their array."""
    attributes = job["attributes"]
    if is_over(job) and "-x" not in given:
        return False
    if "-u" in given and attributes["Job_Owner"].partition("@")[0] != given["-u"]:
        return False
    if "array_index" in attributes and "-t" not in given:
        return False
    if "array" in attributes and "-t" in given and ("-u" in given or "-r" in given):
        return False
    return "-r" not in given or attributes["job_state"] in ("R", "S")


def show(jobs: list[dict[str, Any]], given: dict[str, str]) -> None:
    if "-f" in given:
        if "-w" not in given:
            raise SystemExit("the stand-in has -f with -w alone")
        sys.stdout.write("".join(map(full, jobs)))
    elif "-u" in given or "-r" in given:
        raise SystemExit("the stand-in has -u and -r with -f alone")
    elif jobs:
        sys.stdout.write(TABLE + RULE + "".join(map(row, jobs)))


def show_server(state: dict[str, Any], given: dict[str, str]) -> None:
    """`qstat -B -f`: what is set of the server's attributes, as everybody may read it."""
    if "-f" not in given:
        raise SystemExit("the stand-in has -B with -f alone")
    kept = state["history_duration"]
    attributes = {
        "server_state": "Active",
        "server_host": state["server"],
        "scheduling": "True",
        "default_queue": "workq",
        "pbs_version": "23.06.06",
        **({"job_history_enable": "True"} if state["history"] else {}),
        **({"job_history_duration": kept} if kept else {}),
    }
    lines = [f"Server: {state['server']}", *(f"    {name} = {value}" for name, value in attributes.items())]
    sys.stdout.write("\n".join(lines) + "\n\n")


def with_server(word: str, server: str) -> str:
    return word if "." in word else f"{word}.{server}"


def named(jobs: list[dict[str, Any]], word: str, server: str) -> dict[str, Any] | None:
    return next((job for job in jobs if job["id"] == with_server(word, server)), None)


def qdel(folder: Path, words: list[str]) -> int:
    options, ids = getopt.gnu_getopt(words, "W:x")
    forced = ("-W", "force") in options
    me = pwd.getpwuid(os.getuid()).pw_name
    code = 0
    with state_of(folder) as state:
        server = state["server"]
        if state["is"] == "down":
            sys.stderr.write(f"Connection refused\nCouldn't connect to cluster: {server}\n")
            return SYSTEM
        for word in ids:
            job = named(state["jobs"], word, server)
            if job is None or (is_over(job) and not state["history"]):
                code = complain("qdel", f"Unknown Job Id {with_server(word, server)}", UNKNOWN)
            elif is_over(job):
                code = complain("qdel", f"Job has finished {job['id']}", HISTORY)
            elif job["attributes"]["Job_Owner"].partition("@")[0] != me:
                code = complain("qdel", f"Unauthorized Request  {job['id']}", PERM)
            elif job["attributes"]["job_state"] == "E" and not forced:
                code = complain("qdel", f"Request invalid for state of job {job['id']}", STATE)
            elif state["ignores_qdel"]:
                pass
            else:
                end(state, job, forced)
    return code


def end(state: dict[str, Any], job: dict[str, Any], forced: bool) -> None:
    """E until its processes are said to be over, then F; a job that has not begun, and a forced one, at once."""
    attributes = job["attributes"]
    at_once = forced or attributes["job_state"] not in ("R", "S")
    job["over_at"] = time.time() + (0 if at_once else state["ends_in_s"])
    attributes["Exit_status"] = "265" if forced else "271"
    attributes.pop("session_id", None)
    attributes.update(job_state="E", substate="51")
    if at_once:
        finish(job)


def pbsnodes(folder: Path, words: list[str]) -> int:
    if words != ["-a", "-v"]:
        raise SystemExit("the stand-in has pbsnodes -a -v alone")
    with state_of(folder) as state:
        if state["is"] == "down":
            return complain("pbsnodes", f"cannot connect to server {state['server']}, error=15010", 1)
        for name, attributes in state["vnodes"].items():
            print(
                name, *(f"     {attribute} = {value}" for attribute, value in attributes.items()), sep="\n", end="\n\n"
            )
    return 0


def main() -> int:
    folder, program, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with (folder / "asked").open("a") as asked:
        asked.write(json.dumps([program, *words]) + "\n")
    with state_of(folder) as state:
        hangs = state["is"] == "hangs"
    while hangs:
        time.sleep(3600)
    return {"qstat": qstat, "qdel": qdel, "pbsnodes": pbsnodes}[program](folder, words)


if __name__ == "__main__":
    sys.exit(main())
