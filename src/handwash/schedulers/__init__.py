"""The batch schedulers that handwash knows, a class for each (`base.Scheduler`), and which of them is here."""

from __future__ import annotations

import os

from handwash import siteinfo, slurm_names, world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handwash.schedulers.base import Scheduler

# By the setting `scheduler`: a name of ours, or the name of a module that the site has installed beside handwash.
_wanted = ""
_known: dict[str, Scheduler] = {}


def choose(name: str) -> None:
    """Takes this scheduler from now on, whatever there is to see: `slurm`, `pbs`, or a module's name. "": looks for it."""
    global _wanted
    _wanted = name


def here() -> Scheduler:
    """The scheduler of this host, by the setting, by the job that this shell is in, then by what is installed.

    Where there is no sign of any it is Slurm, which knows best that it is not here. Where the setting names a module that
    cannot be used, it is a scheduler of which nothing can be told.
    """
    return of(_wanted or _seen())


def loaded() -> Scheduler:
    """`here`, for one look at many processes: a module of the site's has been imported then, which can take its time."""
    found = here()
    if not is_of_the_site():
        return found
    from handwash.schedulers.of_the_site import OfTheSite

    return found.load() if isinstance(found, OfTheSite) else found


def is_of_the_site() -> bool:
    """Whether it is one that the site has a module for."""
    return _wanted not in ("", "slurm", "pbs")


def _seen() -> str:
    env = world.env
    # Inside a job, it. Slurm comes first: it can bring PBS's commands and variables along (its torque package).
    if env.get("SLURM_JOB_ID"):
        return "slurm"
    is_slurm = siteinfo.config_file() is not None
    if is_slurm and not env.get("PBS_JOBID"):
        return "slurm"
    from handwash.schedulers import pbs_node

    if pbs_node.job_in_environment(env) is not None:
        return "pbs"
    if is_slurm:
        return "slurm"
    # Not by `qstat` alone, which Grid Engine and Slurm's own wrappers have too. Slurm's commands alone say little: its package
    # may be there for a cluster elsewhere, or it has no file of its own (configless, from 20.02) and pbs.conf is an old one.
    is_pbs = os.access(pbs_node.config_path(env), os.R_OK)
    if is_pbs and slurm_names.find("squeue") is not None:
        from handwash.schedulers import pbs_adapter

        is_pbs = pbs_adapter.command("qstat") is not None
    return "pbs" if is_pbs else "slurm"


def of(name: str) -> Scheduler:
    """The scheduler of a name: `slurm`, `pbs`, or a module's."""
    if name not in _known:
        _known[name] = _load(name)
    return _known[name]


def _load(name: str) -> Scheduler:
    if name == "slurm":
        from handwash.schedulers.slurm_adapter import Slurm

        return Slurm()
    if name == "pbs":
        from handwash.schedulers.pbs_adapter import Pbs

        return Pbs()
    from handwash.schedulers import of_the_site

    return of_the_site.OfTheSite(name)
