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


def _path() -> str:
    return os.path.join(paths.state_dir(), f"opened.{world.host()}")


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
    others = [row for row in _rows() if row[0] != leader and identity.same(row[0], row[1]) is not None]
    lines = [f"{identity.boot_id()} {pid} {began} {' '.join(numbers)}" for pid, began, numbers in others]
    lines.append(f"{identity.boot_id()} {leader} {start} {' '.join(jobs)}")
    try:
        paths.write_whole(_path(), ("\n".join(lines) + "\n").encode())
    except OSError:
        pass


def _is_reason(job: Job, node: Node) -> bool:
    """Whether a job is why somebody would come to this node: it runs here, and was submitted from another one.

    Where people submit from a compute node, they are there without a job as well. The controller's own host is `localhost`
    to it (22.05).
    """
    host = job.alloc_host.split(".")[0]
    is_from_here = host in ("", node.host) or (host == "localhost" and node.controller is not False)
    return node.host in job.nodes and not is_from_here


def look() -> list[str]:
    """The jobs that are on record for a shell of this process's chain; reads one file."""
    rows = _rows()
    if not rows:
        return []
    chain = {pid for pid, _name in procfs.ancestors(os.getpid())}
    return [
        number for pid, start, numbers in rows if pid in chain and identity.start_of(pid) == start for number in numbers
    ]


def _rows() -> list[tuple[int, int, list[str]]]:
    """(pid, start time, job numbers) of this boot; what is damaged is passed over."""
    try:
        with open(_path(), "rb") as file:
            content = file.read(_CAP)
    except OSError:
        return []
    found = []
    for line in content.decode("utf-8", "replace").splitlines():
        boot, *words = line.split(" ")
        if boot == identity.boot_id() and len(words) > 2 and all(word.isascii() and word.isdigit() for word in words):
            found.append((int(words[0]), int(words[1]), words[2:]))
    return found


def over(seen: Survey) -> str | None:
    """The last of them, if all are over and no other job of the person's is on this node: the shell outlives it."""
    if isinstance(seen.node, Unknown) or isinstance(seen.jobs, Unknown) or not seen.opened_beside:
        return None
    here = seen.node.host
    is_here_for_a_job = seen.node.kind != "compute" or seen.node.job is not None
    if is_here_for_a_job or any(job.number in seen.opened_beside or here in job.nodes for job in seen.jobs):
        return None
    return seen.opened_beside[-1]
