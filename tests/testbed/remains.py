"""What belongs to one cluster: which processes, which cgroups; found from outside, so that it works after a crash too."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.testbed import accounting, configuration, processes
from tests.testbed.processes import wait_until

# The mark in the environment of what root starts on a cluster; what the two users run is known by their uids.
MARK = "HANDWASH_TESTBED"
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd", *accounting.DAEMONS)
JOB_IDS_PER_SLOT = 10000


def first_job(slot: int) -> int:
    """The first job id of the cluster in this slot: jobs of two clusters on one machine never have the same id."""
    return slot * JOB_IDS_PER_SLOT + 1


def mounts(directory: Path) -> list[str]:
    """The mount points at and beneath a folder."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point) == directory or directory in Path(point).parents]


def daemons(directory: Path, names: Sequence[str]) -> list[int]:
    """The cluster's own daemons of these names."""
    found = []
    for pid in processes.pids():
        # Debian's slurmd is a link to slurmd-wlm.
        name = processes.program(pid).replace("-wlm", "")
        if name in names:
            # slurmstepd writes its command line over, slurmdbd has no word for its folder: they are known by their open logs.
            by_files = name in ("slurmstepd", "slurmdbd")
            words = processes.open_files(pid) if by_files else processes.arguments(pid)
            if any(f"{directory}/" in word for word in words):
                found.append(pid)
    return found


def everybody(directory: Path, uids: Collection[int]) -> list[int]:
    """All processes of the two users, and what root started through the cluster; never this process or one above it."""
    spared = processes.ancestors()
    return [
        pid
        for pid in processes.pids()
        if pid not in spared and (processes.uid(pid) in uids or processes.environment(pid).get(MARK) == str(directory))
    ]


def workers(directory: Path, uids: Collection[int]) -> list[int]:
    """All processes of the two users, and those of root's jobs."""
    return [
        pid
        for pid in everybody(directory, uids)
        if processes.uid(pid) in uids
        or ("SLURM_JOB_ID" in processes.environment(pid) and not processes.program(pid).startswith("slurmstepd"))
    ]


def _job_cgroups(slot: int, uids: Collection[int]) -> list[Path]:
    """The folders of the cluster's jobs and their steps below the freezer, the deepest first."""
    top = configuration.freezer()
    if top is None:
        return []
    ids = range(first_job(slot), first_job(slot + 1))
    jobs = [path for uid in uids for path in top.glob(f"slurm*/uid_{uid}")]
    jobs += [path for path in top.glob("slurm*/uid_0/job_*") if int(path.name[4:]) in ids]
    return sorted((sub for job in jobs for sub in (job, *job.rglob("*")) if sub.is_dir()), reverse=True)


def thaw(slot: int, uids: Collection[int]) -> None:
    """Thaws the jobs: slurmstepd freezes a step to kill it, and ended in between it leaves what no signal reaches."""
    for path in _job_cgroups(slot, uids):
        with contextlib.suppress(OSError):
            (path / "freezer.state").write_text("THAWED")


def _remove_when_empty(path: Path) -> None:
    # A zombie is listed until its parent has collected it.
    wait_until(lambda: not (path / "cgroup.procs").read_text(), 5)
    path.rmdir()


def remove_cgroups(slot: int, uids: Collection[int], *, last: bool) -> None:
    """Removes the jobs' cgroups, and with the last cluster of this kind those of the nodes."""
    for path in _job_cgroups(slot, uids):
        _remove_when_empty(path)
    top = configuration.freezer()
    if top is not None and last:
        # The nodes of every cluster have the same names, and so the same folders.
        for node in configuration.NODES:
            for path in (top / f"slurm_{node}" / "uid_0", top / f"slurm_{node}"):
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir()
