"""The cluster's own settings: where slurm.conf is, and what the controller says, asked once a day and remembered."""

from __future__ import annotations

import os

from handwash import paths, run, world

# slurm.conf(5): SLURM_CONF, the build's sysconfdir, and the folder that slurmd fills where the site is configless.
_CONFIG_FILES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/run/slurm/conf/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
)
# Besides the process tracking: the programs of the site's own in whose place safe-srun puts its own (srun(1), --prolog).
SETTINGS = ("ProctrackType", "SrunProlog", "SrunEpilog")
_REMEMBERED_FOR_S = 24 * 3600


def config_file() -> str | None:
    """The slurm.conf in force, or None where there is none that can be read."""
    own = world.env.get("SLURM_CONF")
    for path in (own,) if own else _CONFIG_FILES:
        if os.access(path, os.R_OK):
            return path
    return None


def remembered() -> dict[str, str] | None:
    """`SETTINGS` out of the person's state folder; None where they were not asked for within a day. Starts no program."""
    try:
        with open(_path(), encoding="utf-8") as file:
            if world.now() - os.fstat(file.fileno()).st_mtime > _REMEMBERED_FOR_S:
                return None
            key, *lines = file.read(8192).splitlines() or [""]
    except (OSError, UnicodeError):
        return None
    found = {name: value for name, _equals, value in (line.partition("=") for line in lines)}
    return found if key == _key() and found.keys() == set(SETTINGS) else None


def ask(timeout: float) -> dict[str, str] | None:
    """`SETTINGS`, remembered or asked of the controller; None without an answer in time (seconds)."""
    known = remembered()
    if known is not None:
        return known
    from handwash.schedulers import slurm

    try:
        answer = slurm.parse_config(run.run(slurm.scontrol_config_argv(), timeout), SETTINGS)
    except OSError:
        return None
    if answer is not None:
        try:
            paths.write_whole(_path(), "\n".join([_key(), *map("=".join, answer.items()), ""]).encode())
        except OSError:
            pass  # asked again next time
    return answer


def _path() -> str:
    return os.path.join(paths.state_dir(), "site")


def _key() -> str:
    """Names the cluster's configuration file and its age: another cluster, or a changed file, is asked anew."""
    path = config_file()
    if path is None:
        return "no-file"
    try:
        return f"{path} {os.stat(path).st_mtime_ns}"
    except OSError:
        return path
