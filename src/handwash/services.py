"""Which programs are meant to outlive a terminal, and what belongs to them. Pure."""

from __future__ import annotations

from handwash import slurm_names
from handwash.model import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Programs that people start to outlive a terminal, and what a login brings with it: named as such, never leftovers.
_NAMES = frozenset(
    """
    SCREEN screen tmux zellij mosh-server dtach abduco code-server code-tunnel jupyter jupyter-lab jupyter-notebook
    jupyter-server jupyter_server jupyterlab notebook jupyterhub jupyterhub-singleuser rsession rserver
    remote-dev-server.sh systemd (sd-pam) dbus-daemon dbus-broker gpg-agent ssh-agent sshd sshd-session sftp-server
    pipewire wireplumber pulseaudio gvfsd emacsclient nvidia-cuda-mps-control nvidia-cuda-mps-server
    nvidia-persistenced nv-hostengine dcgm-exporter slurmd slurmd-wlm slurmstepd slurmctld slurmdbd munged pbs_mom pbs_demux
    """.split()
)
_EDITORS = frozenset("code-server code-tunnel remote-dev-server.sh".split())
_EDITOR_PATHS = ("/.vscode-server/", "/.cursor-server/", "/.windsurf-server/", "/JetBrains/RemoteDev/")
# Clients of the scheduler: they wait for a job that lives elsewhere and hold nothing themselves.
_CLIENTS = frozenset("srun salloc sbatch squeue scancel sattach sinfo scontrol qsub qstat qdel qselect qalter".split())
# What people type their commands into.
SHELLS = frozenset("bash zsh fish tcsh csh ksh ksh93 mksh dash sh ash yash busybox".split())
_KERNELS = ("ipykernel", "ipykernel_launcher", "xpython", "ark")


def is_service(process: Process) -> bool:
    """tmux, screen, editors' and notebook servers, and the agents and daemons of a login."""
    return process.name in _NAMES or process.name.startswith("tmux:") or _is_editor(process)


def _is_editor(process: Process) -> bool:
    return process.name in _EDITORS or any(path in process.command for path in _EDITOR_PATHS)


def is_client(process: Process) -> bool:
    """A client of the scheduler, under whichever name."""
    return slurm_names.own(process.name) in _CLIENTS


def is_kernel(process: Process) -> bool:
    """A notebook's kernel: it computes, whoever has started it."""
    return process.name in _KERNELS


def of_editor(process: Process, mine: Mapping[int, Process]) -> bool:
    """A helper of an editor's server, a language server such as clangd: below it, with no terminal in between.

    What runs in the editor's own terminal, a kernel, and whatever computes on a GPU is the person's work all the same.
    """
    if process.terminal or process.computes or process.gpus or is_kernel(process):
        return False
    pid, steps = process.ppid, 0
    while pid in mine and steps < 128:
        above = mine[pid]
        if above.terminal:
            return False
        if _is_editor(above):
            return True
        pid, steps = above.ppid, steps + 1
    return False
