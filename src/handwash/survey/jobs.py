"""Which jobs are mine: one request to the scheduler, and the site's process tracking, asked once and remembered."""

from __future__ import annotations

import os

from handwash import paths, run, world
from handwash.messages import _
from handwash.model import Job
from handwash.schedulers import slurm
from handwash.survey import node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REMEMBERED_FOR_S = 24 * 3600


def look() -> dict[str, Any]:
    """Squeue's answer as it came, and the process tracking. No scheduler at all is an answer: no jobs."""
    argv = slurm.squeue_argv(world.uid())
    if run.find(argv[0]) is None:
        if node.config_file() is not None or world.env.get("SLURM_JOB_ID"):
            raise run.CouldNotTell(
                _("squeue is not on the PATH, though this is a Slurm cluster. Try `module load slurm`.")
            )
        return {"result": None, "proctrack": None}
    # The deadline of the look ends this request too; its own limit is only a backstop.
    result = run.run(argv, timeout=60)
    answer = (result.code, result.out, result.err, result.timed_out, result.capped)
    return {"result": answer, "proctrack": proctrack() if result.code == 0 and not result.err else None}


def read(seen: dict[str, Any]) -> Any:
    """The jobs, or `Unknown` with the reason."""
    from handwash.model import Unknown

    if seen["result"] is None:
        return ()
    try:
        jobs: tuple[Job, ...] = slurm.parse_squeue(run.Result(*seen["result"]))
    except run.CouldNotTell as reason:
        return Unknown(str(reason))
    return jobs


def proctrack() -> str | None:
    """The site's process tracking, from the person's state folder or, at most once a day, from the controller."""
    key = _site_key()
    path = os.path.join(paths.state_dir(), "site")
    remembered = _recall(path, key)
    if remembered is not None:
        return remembered
    try:
        # The controller has just answered squeue; if it is slow now, the jobs must not wait for this.
        answer = slurm.parse_proctrack(run.run(slurm.scontrol_config_argv(), timeout=1))
    except OSError:
        return None
    if answer is not None:
        try:
            paths.write_whole(path, f"{key}\n{answer}\n".encode())
        except OSError:
            pass  # asked again next time
    return answer


def _site_key() -> str:
    """Names the cluster's configuration file and its age: another cluster, or a changed file, is asked anew."""
    path = node.config_file()
    if path is None:
        return "no-file"
    try:
        return f"{path} {os.stat(path).st_mtime_ns}"
    except OSError:
        return path


def _recall(path: str, key: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            if world.now() - os.fstat(file.fileno()).st_mtime > _REMEMBERED_FOR_S:
                return None
            lines = file.read(8192).splitlines()
    except (OSError, UnicodeError):
        return None
    return lines[1] if len(lines) == 2 and lines[0] == key and lines[1].isalnum() else None
