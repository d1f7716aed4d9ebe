"""The files a throw-away Slurm is configured with."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.machine import Unavailable

PROCTRACKS = ("linuxproc", "pgid", "cgroup")
NODES = ("n1", "n2")
# sbin is not on everybody's PATH, and holds the daemons.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CPUS = 64

SLURM_CONF = """\
ClusterName=handwash
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge/socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
FirstJobId={first_job}
GresTypes=gpu
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=1024 Gres=gpu:a100:2
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=1024 Gres=gpu:a100:2
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""

GRES_CONF = """\
NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia[0-1]
NodeName=n2 Name=gpu Type=a100 File=/dev/nvidia[2-3]
"""


def tool(name: str, packages: str = "slurm-wlm munge") -> str:
    """The absolute path of a program, or Unavailable with the packages that have it."""
    found = shutil.which(name, path=PATH)
    if found is None:
        raise Unavailable(f"{name} is not installed (Debian: apt-get install {packages})")
    return found


def release() -> tuple[int, int]:
    """The Slurm release, as (22, 5)."""
    done = subprocess.run([tool("slurmd"), "-V"], capture_output=True, text=True)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    if found is None:
        raise Unavailable(f"slurmd -V says {done.stdout!r}")
    return int(found[1]), int(found[2])


def freezer() -> Path | None:
    """Where the freezer of cgroup v1 is mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and "freezer" in options.split(","):
            return Path(where)
    return None


def cgroup_conf(proctrack: str) -> str:
    """The text of cgroup.conf; Unavailable where proctrack/cgroup cannot work here."""
    if proctrack != "cgroup":
        # Up to 22.05 nothing else asks for cgroups; from 23.02 on slurmd wants to be told that it may do without.
        return "CgroupPlugin=disabled\n" if release() >= (23, 2) else ""
    where = freezer()
    if where is None or where.name != "freezer" or not os.access(where, os.W_OK):
        raise Unavailable("proctrack/cgroup needs the freezer of cgroup v1, mounted and writable")
    return f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={where.parent}\nCgroupAutomount=no\n"


def free_ports(slot: int, count: int) -> list[int]:
    """Port numbers that are free now, a range of their own for each slot.

    All lie below 32768, where the kernel begins to give out ports to outgoing connections: between choosing a port and a
    daemon's binding it, one from up there could be taken.
    """
    found: list[int] = []
    port = 17000 + 50 * slot
    while len(found) < count:
        port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
    return found


def listening(port: int) -> bool:
    """Whether something on this machine listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def node_port(slurm_conf: Path, node: str) -> int:
    """The port of a node's slurmd."""
    found = re.search(rf"^NodeName={node} .* Port=(\d+)", slurm_conf.read_text(), re.M)
    assert found, f"no {node} in {slurm_conf}"
    return int(found[1])


def write(
    directory: Path, proctrack: str, ports: list[int], first_job: int, more: Sequence[str], settings: Sequence[str]
) -> None:
    """Writes slurm.conf, gres.conf and cgroup.conf into the directory; *more* lines are ours as well."""
    text = SLURM_CONF.format(
        host=socket.gethostname().split(".")[0],
        directory=directory,
        proctrack=proctrack,
        ports=ports,
        first_job=first_job,
        cpus=CPUS,
    )
    # A parameter given twice is an error to some releases: what the caller sets takes the place of ours.
    given = {line.split("=", 1)[0].lower() for line in settings} - {"nodename", "partitionname"}
    lines = [line for line in [*text.splitlines(), *more] if line.split("=", 1)[0].lower() not in given]
    (directory / "slurm.conf").write_text("\n".join([*lines, *settings]) + "\n")
    (directory / "gres.conf").write_text(GRES_CONF)
    (directory / "cgroup.conf").write_text(cgroup_conf(proctrack))
