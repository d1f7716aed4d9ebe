"""Which jobs ran on this node when a shell was opened there outside of all jobs, as by ssh: without pam_slurm_adopt such a
shell bears no sign of a job, and goes on when the job is over. The banner notes them, a later look of that shell compares.
"""

from __future__ import annotations

import os

from handwash import paths, world
from handwash.model import Job, Node, Survey, Unknown
from handwash.survey import procfs
from handwash.teardown import identity

_CAP = 256 * 1024
# Of the largest number of 64 bits; a longer one is damage, and int() refuses it from 4300 on.
_DIGITS = 20
# Longer than a job's number with the name of its server, the longest of which a host can have (RFC 1035) and some more.
_NUMBER_CAP = 300


def _prefix() -> str:
    return f"opened.{world.host()}."


def note(seen: Survey) -> None:
    """Notes them for the leader of this session. A disk that is full or read-only costs the note."""
    if isinstance(seen.node, Unknown) or isinstance(seen.jobs, Unknown):
        return
    node = seen.node
    jobs = [job.number for job in seen.jobs if _is_reason(job, node)]
    leader = os.getsid(0)
    start = identity.start_of(leader)
    if node.kind != "compute" or node.job is not None or not jobs or start is None:
        return
    # A file for each of them: of two logins at once neither takes the other's note away.
    path = os.path.join(paths.state_dir(), f"{_prefix()}{leader}")
    try:
        paths.write_whole(path, f"{identity.boot_id()} {leader} {start} {' '.join(jobs)}\n".encode())
    except OSError:
        return
    for name in _names():
        row = _row(name)
        if row is None or identity.same(row[0], row[1]) is None:
            _forget(name)


def _is_reason(job: Job, node: Node) -> bool:
    """Whether a job is why somebody would come to this node: it runs here, and was submitted from another one.

    Where people submit from a compute node, they are there without a job as well. The controller's own host is `localhost`
    to it (22.05).
    """
    host = job.alloc_host.split(".")[0]
    is_from_here = host in ("", node.host) or (host == "localhost" and node.controller is not False)
    return job.is_on(node.host) and not is_from_here


def look() -> list[str]:
    """The jobs that are on record for a shell of this process's chain; lists one folder, and reads what is of the chain."""
    chain = {f"{_prefix()}{pid}" for pid, _name in procfs.ancestors(os.getpid())}
    rows = [_row(name) for name in _names() if name in chain]
    return [number for row in rows if row is not None and identity.start_of(row[0]) == row[1] for number in row[2]]


def _names() -> list[str]:
    """The notes of this host; one that is being written has no name yet."""
    try:
        names = os.listdir(paths.state_dir())
    except OSError:
        return []
    return sorted(name for name in names if name.startswith(_prefix()) and name[len(_prefix()) :].isdigit())


def _row(name: str) -> tuple[int, int, list[str]] | None:
    """(pid, start time, job numbers) of this boot; None where that is damaged, or of another boot."""
    try:
        with open(os.path.join(paths.state_dir(), name), "rb") as file:
            content = file.read(_CAP)
    except OSError:
        return None
    boot, *words = content.decode("utf-8", "replace").strip("\n").split(" ")
    if boot != identity.boot_id() or len(words) < 3 or not all(map(_is_number, words[:2])):
        return None
    if not all(map(_is_job, words[2:])):
        return None
    return int(words[0]), int(words[1]), words[2:]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _DIGITS


def _is_job(word: str) -> bool:
    """As a job's own processes have it: `123` of Slurm, `123.server` and `123[4].server` of PBS."""
    return word.isascii() and word.isprintable() and 0 < len(word) <= _NUMBER_CAP


def _forget(name: str) -> None:
    try:
        os.unlink(os.path.join(paths.state_dir(), name))
    except OSError:
        pass


def over(seen: Survey) -> str | None:
    """The last of them, if all are over and no other job of the person's is on this node: the shell outlives it."""
    if isinstance(seen.node, Unknown) or isinstance(seen.jobs, Unknown) or not seen.opened_beside:
        return None
    here = seen.node.host
    is_here_for_a_job = seen.node.kind != "compute" or seen.node.job is not None
    if is_here_for_a_job or any(job.number in seen.opened_beside or job.is_on(here) for job in seen.jobs):
        return None
    return seen.opened_beside[-1]
