"""My processes on this node, each with the job and the session it belongs to, as far as four kinds of evidence tell."""

from __future__ import annotations

import os

from handwash import patience, schedulers, world
from handwash.accelerators import device_files
from handwash.model import Process
from handwash.srun import takes_code
from handwash.survey import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from handwash.schedulers.base import Scheduler

# What is in every process of a job of Slurm's, and of PBS's: a node can belong to both, and one of them is asked.
_OF_OTHERS = (b"SLURM_JOB_ID", b"SLURMD_NODENAME", b"PBS_JOBID", b"PBS_ENVIRONMENT")
# As the kernel has their names (proc(5), comm).
_MULTIPLEXERS = ("tmux", "screen", "SCREEN", "zellij", "dtach", "abduco")
_INTERPRETERS = ("python", "perl", "ruby", "julia", "node", "Rscript", "bash", "sh", "zsh", "java", "torchrun")
# A command line can have megabytes (execve(2), "Limits on size"); all of them together have to fit into an answer.
_COMMAND_CAP = 4096
# PF_KTHREAD of the kernel's sched.h, in the flags of /proc/PID/stat (proc(5)): its own threads, which root sees. Not by their
# parent, process 2: in a container that is anybody.
_KERNEL_THREAD = 0x00200000


def look() -> list[dict[str, Any]]:
    """All processes of the person who asks, as plain data; the fields are those of `model.Process`."""
    uid = world.uid()
    boot = world.boot_time()
    here = schedulers.loaded()
    mine = [pid for pid in procfs.pids() if procfs.owner(pid) == uid]
    found = patience.each(
        mine, lambda pid: describe(pid, uid, boot, here), lambda pid: describe(pid, uid, boot, here, unread=True)
    )
    rows: dict[int, dict[str, Any]] = {row["pid"]: row for row in found if row is not None}
    # This look runs in a child of handwash, beside the other looks and what they start: none of that is the person's.
    for pid in [pid for pid in rows if _descends(pid, os.getppid(), rows)]:
        del rows[pid]
    terminal = _jobs_terminal() if here.waits_for_terminal else None
    if terminal is not None:
        path, number = terminal
        for pid, row in rows.items():
            paths = (path, "/dev/tty") if row["terminal"] == number else (path,)
            row["on_terminal"] = procfs.has_open(pid, paths)
    _by_record(rows)
    _by_ancestry(rows)
    return list(rows.values())


def _jobs_terminal() -> tuple[str, int] | None:
    """This shell's terminal, by path and device number; None in a pane of tmux or screen, whose terminal is no job's."""
    if any(name.startswith(_MULTIPLEXERS) for _pid, name in procfs.ancestors(os.getpid())):
        return None
    return procfs.own_terminal()


def _descends(pid: int, ancestor: int, rows: Mapping[int, Mapping[str, Any]]) -> bool:
    for _generation in range(8):
        if pid not in rows:
            return False
        pid = rows[pid]["ppid"]
        if pid == ancestor:
            return True
    return False


def describe(pid: int, uid: int, boot: float, here: Scheduler, unread: bool = False) -> dict[str, Any] | None:
    """One process as plain data, of another person only what is public; None where it is gone, or a thread of the kernel.

    `unread`: without what is in its memory, the command line and the environment.
    """
    stat = procfs.stat_fields(pid)
    if stat is None:
        return None
    comm, fields = stat
    if uid == 0 and int(fields[6]) & _KERNEL_THREAD:
        return None
    start_ticks = int(fields[19])
    mine = uid == world.uid()
    is_over = fields[0] in (b"Z", b"X")
    reads = mine and not unread and not is_over
    # The variables first: who has them has its words too, see there.
    variables = procfs.environment(pid, (*here.variables, *_OF_OTHERS, b"HANDWASH_SESSION")) if reads else {}
    words = [] if unread else procfs.arguments(pid)
    devices = (device_files.devices_of(pid) or ()) if mine else ()
    job, step, by = here.membership(procfs.groups(pid), variables)
    if job is None and (_is_all(variables, _OF_OTHERS[:2]) or _is_all(variables, _OF_OTHERS[2:])):
        by = "other-scheduler"
    return {
        "pid": pid,
        "ppid": int(fields[1]),
        "start_ticks": start_ticks,
        "started": boot + start_ticks / procfs.TICKS,
        "uid": uid,
        "user": world.user_name(uid),
        "command": " ".join(words)[:_COMMAND_CAP] or f"[{comm}]",
        "name": program_name(comm, words),
        "state": fields[0].decode(),
        "cpu_s": (int(fields[11]) + int(fields[12])) / procfs.TICKS,
        "rss": int(fields[21]) * procfs.PAGE,
        "threads": int(fields[17]),
        "terminal": int(fields[4]),
        "sid": int(fields[3]),
        "pgid": int(fields[2]),
        "job": job,
        "step": step,
        "session": variables.get("HANDWASH_SESSION") or None,
        "attributed_by": by or ("environment" if variables.get("HANDWASH_SESSION") else None),
        "devices": devices,
        "computes": device_files.holds_context(devices),
        "unread": unread,
    }


def _is_all(variables: Mapping[str, str], names: tuple[bytes, ...]) -> bool:
    return all(variables.get(name.decode()) for name in names)


def program_name(comm: str, words: list[str]) -> str:
    """What a person calls it: the script's name behind an interpreter, else the program's. Never its other arguments."""
    if not words or comm.startswith(("tmux:", "SCREEN")):
        return comm
    # A login shell has a dash before its name; a daemon that tells its state has a colon behind it (`sshd: me@pts/0`).
    program = os.path.basename(words[0].split(" ")[0]).lstrip("-").rstrip(":") or comm
    if program.rstrip("0123456789.") in _INTERPRETERS:
        for place, word in enumerate(words[1:], start=1):
            if word == "-m" and place + 1 < len(words):
                return words[place + 1]
            if not word.startswith("-"):
                return os.path.basename(word) or program
            if takes_code(word):
                break
    return program


def _by_record(rows: dict[int, dict[str, Any]]) -> None:
    """What a safe-srun session recorded as its own, however it has hidden since."""
    from handwash.srun import record

    sessions = record.recorded()
    if not sessions:
        return
    for row in rows.values():
        known = sessions.get((row["pid"], row["start_ticks"]))
        if known is None:
            continue
        session, job, step = known
        row["session"] = row["session"] or session
        if row["job"] is None and job:
            row.update(job=job, step=step, attributed_by="record")
        elif row["attributed_by"] is None:
            row["attributed_by"] = "record"


def watched_sessions(rows: list[dict[str, Any]]) -> set[str]:
    """The sessions of which a process is a living supervisor's child, as the command is and all that lost its parent."""
    parents = [(row["session"], procfs.stat_fields(row["ppid"])) for row in rows if row["session"] is not None]
    return {session for session, stat in parents if stat is not None and stat[0] == "handwash"}


def _by_ancestry(rows: dict[int, dict[str, Any]]) -> None:
    """A child of a process whose job is known belongs to the same job, even with its own environment cleared."""
    for row in rows.values():
        if row["job"] is not None and row["session"] is not None:
            continue
        parent = rows.get(row["ppid"])
        seen = {row["pid"]}
        while parent is not None and parent["pid"] not in seen:
            seen.add(parent["pid"])
            if row["job"] is None and parent["job"] is not None:
                # Below a shell that salloc gave, or a tmux started in one, a job's number means no more than it does there.
                by = "allocation" if parent["attributed_by"] == "allocation" else row["attributed_by"] or "ancestry"
                row.update(job=parent["job"], step=parent["step"], attributed_by=by)
            if row["session"] is None and parent["session"] is not None:
                row.update(session=parent["session"], attributed_by=row["attributed_by"] or "ancestry")
            parent = rows.get(parent["ppid"])


def read(rows: list[dict[str, Any]], extra: Mapping[int, Mapping[str, Any]] | None = None) -> tuple[Process, ...]:
    """The look's answer as records, oldest first; `extra` fills in fields by pid (the GPUs that each holds)."""
    extra = extra or {}
    return tuple(
        Process(**{**row, **extra.get(row["pid"], {})}) for row in sorted(rows, key=lambda row: row["start_ticks"])
    )
