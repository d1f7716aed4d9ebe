"""salloc's and sbatch's options where they differ from srun's, and the variables that stand for options. Data only.

From the sources of the releases 20.02 to 26.05 (slurm_opt.c, and opt.c of the three commands); rows as in `srun.options`.
"""

from __future__ import annotations

from handwash.srun.options import OPTIONS

_SRUN_ALONE = frozenset(
    "accel-bind async bcast bcast-exclude compress cpu-bind cpu_bind debugger-test disable-status epilog exact "
    "external-launcher het-group ignore-signals interactive jobid kill-on-bad-exit label mpi msg-timeout multi-prog "
    "no-allocate overlap pack-group preserve-env prolog pty quit-on-interrupt relative send-libs slurmd-debug "
    "task-epilog task-prolog threads treewidth unbuffered wait wait-for-children whole".split()
)
_NOT_SALLOC = _SRUN_ALONE | frozenset("error export input open-mode output parsable propagate test-only".split())
_NOT_SBATCH = _SRUN_ALONE | {"immediate"}

SALLOC: dict[str, tuple[str, str, str, str]] = {
    **{name: row for name, row in OPTIONS.items() if name not in _NOT_SALLOC},
    "bell": ("no", "", "", ""),
    "get-user-env": ("optional", "", "", "24.05"),
    "kill-command": ("optional", "K", "", ""),
    "no-bell": ("no", "", "", ""),
    "no-shell": ("no", "", "", ""),
    "resv-ports": ("optional", "", "24.05", ""),
    "wait-all-nodes": ("required", "", "", ""),
    "x11": ("optional", "", "", ""),
}
SBATCH: dict[str, tuple[str, str, str, str]] = {
    **{name: row for name, row in OPTIONS.items() if name not in _NOT_SBATCH},
    "array": ("required", "a", "", ""),
    "batch": ("required", "", "", ""),
    "export-file": ("required", "", "", ""),
    "external": ("no", "", "25.05", ""),
    "get-user-env": ("optional", "", "", ""),
    "gid": ("required", "", "", ""),
    "ignore-pbs": ("no", "", "", ""),
    "kill-on-invalid-dep": ("required", "", "", ""),
    "no-requeue": ("no", "", "", ""),
    "parsable": ("no", "", "", ""),
    "requeue": ("optional", "", "", ""),
    "resv-ports": ("optional", "", "24.05", ""),
    "uid": ("required", "", "", ""),
    "wait": ("no", "W", "", ""),
    "wait-all-nodes": ("required", "", "", ""),
    "wrap": ("required", "", "", ""),
}
# Of builds with X11 forwarding, and of pyxis, the most common plug-in that adds options.
PLUG_INS = {
    "x11": "no",
    **dict.fromkeys(
        (
            "container-image",
            "container-mounts",
            "container-workdir",
            "container-name",
            "container-save",
            "container-env",
        ),
        "required",
    ),
    **dict.fromkeys(
        (
            "container-mount-home",
            "no-container-mount-home",
            "container-remap-root",
            "no-container-remap-root",
            "container-entrypoint",
            "no-container-entrypoint",
            "container-entrypoint-log",
            "container-writable",
            "container-readonly",
        ),
        "no",
    ),
}

# Variable, option; a later one wins. Those alone that say something of GPUs, nodes, tasks, time, or where.
_COMMON = (
    ("CLUSTERS", "clusters"),
    ("EXCLUSIVE", "exclusive"),
    ("GPUS", "gpus"),
    ("GPUS_PER_NODE", "gpus-per-node"),
    ("GPUS_PER_SOCKET", "gpus-per-socket"),
    ("GPUS_PER_TASK", "gpus-per-task"),
    ("GRES", "gres"),
    ("PARTITION", "partition"),
    ("TIMELIMIT", "time"),
    ("TRES_PER_TASK", "tres-per-task"),
)
# A file of node names, where the line names none; not an option, and read by all three (slurm_opt.c, 22.05 in opt.c).
_HOSTFILE = ("SLURM_HOSTFILE", "hostfile")
SALLOC_VARIABLES = (
    _HOSTFILE,
    *((f"SALLOC_{name}", option) for name, option in _COMMON[:1]),
    ("SLURM_CLUSTERS", "clusters"),
    *((f"SALLOC_{name}", option) for name, option in _COMMON[1:]),
)
SBATCH_VARIABLES = (
    _HOSTFILE,
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
    *((f"SBATCH_{name}", option) for name, option in _COMMON[1:]),
    ("SBATCH_DISTRIBUTION", "distribution"),
    ("SBATCH_THREADS_PER_CORE", "threads-per-core"),
)
SRUN_VARIABLES = (
    _HOSTFILE,
    *((f"SLURM_{name}", option) for name, option in _COMMON),
    ("SLURM_DISTRIBUTION", "distribution"),
    ("SLURM_NNODES", "nodes"),  # until 23.02
    ("SLURM_JOB_NUM_NODES", "nodes"),
    ("SLURM_NPROCS", "ntasks"),
    ("SLURM_NTASKS", "ntasks"),
    ("SLURM_NSOCKETS_PER_NODE", "sockets-per-node"),
    ("SLURM_NCORES_PER_SOCKET", "cores-per-socket"),
    ("SLURM_THREADS_PER_CORE", "threads-per-core"),
    ("SLURM_NTASKS_PER_NODE", "ntasks-per-node"),
    ("SLURM_NTASKS_PER_GPU", "ntasks-per-gpu"),
    ("SLURM_NTASKS_PER_TRES", "ntasks-per-tres"),
)
