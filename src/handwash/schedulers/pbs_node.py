"""What a node says of PBS: its configuration, and which job a process is in by its control group or environment. Pure.

Measured on OpenPBS 23.06 and its head of 2026; older shapes by the sources of 19.1 (pbs_cgroups.PY, pbs_loadconf.c).
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.schedulers import pbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Set by MOM in every process of a job, and by nothing else of PBS's.
VARIABLES = ("PBS_JOBID", "PBS_ENVIRONMENT")
_ENVIRONMENTS = ("PBS_BATCH", "PBS_INTERACTIVE")
_CONFIG = "/etc/pbs.conf"


@frozen
class Config:
    """A pbs.conf. `mom`: this host runs jobs; `commands`: the folder of qstat and qdel, "" where it is not said."""

    server: str
    mom: bool
    is_server: bool
    commands: str


def config_path(env: Mapping[str, str]) -> str:
    """Where PBS itself looks for its configuration."""
    return env.get("PBS_CONF_FILE") or _CONFIG


def parse_config(text: str) -> Config:
    """A pbs.conf as PBS reads it: `NAME=VALUE` lines, of which the last counts. `#NAME=VALUE`, a comment, is no name."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        if equals:
            found[name] = value
    exec_path = found.get("PBS_EXEC", "")
    return Config(
        server=found.get("PBS_SERVER", ""),
        mom=_is_on(found.get("PBS_START_MOM", "")),
        is_server=_is_on(found.get("PBS_START_SERVER", "")),
        commands=exec_path.rstrip("/") + "/bin" if exec_path.startswith("/") else "",
    )


def _is_on(value: str) -> bool:
    """A number above 0, whatever follows it (sscanf(3) `%u`)."""
    text = value.lstrip().lstrip("0")
    return text[:1] in tuple("123456789")


def job_in_environment(env: Mapping[str, str]) -> str | None:
    """The job whose MOM started this process or one before it; None where PBS_JOBID stands alone, as one typed by hand."""
    job = env.get("PBS_JOBID", "")
    return job if env.get("PBS_ENVIRONMENT") in _ENVIRONMENTS and pbs.is_job_id(job) else None


def job_in_cgroup(text: str) -> str | None:
    """The job in /proc/PID/cgroup where the site has PBS's cgroup hook, v1 or v2; None where it is in none.

    `/pbs_jobs.service/jobid/90.vm`, the first part by the site's choice of a name; before 20.0 with systemd
    `/pbspro.slice/pbspro-90.vm.slice`, with the job's id escaped. Only from the root on: a person can make such a folder below
    one of theirs.
    """
    for line in text.split("\n"):
        parts = line.partition(":")[2].partition(":")[2].split("/")
        if len(parts) < 3:
            continue
        job = None
        if len(parts) > 3 and parts[1].endswith(".service") and parts[2] == "jobid":
            job = parts[3]
        elif parts[1].endswith(".slice"):
            before = parts[1][: -len(".slice")] + "-"
            if parts[2].startswith(before) and parts[2].endswith(".slice"):
                job = _unescaped(parts[2][len(before) : -len(".slice")])
        # As the hook writes it, an id has its server; a user's own slice is `user-1000.slice`.
        if job is not None and "." in job and pbs.is_job_id(job):
            return job
    return None


def _unescaped(text: str) -> str:
    """systemd's own escaping (systemd.unit(5)): `\\x5b` for `[`."""
    before, *escaped = text.split("\\x")
    for part in escaped:
        try:
            before += chr(int(part[:2], 16)) + part[2:]
        except ValueError:
            return text
    return before
