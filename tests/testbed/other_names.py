"""A PATH on which Slurm's programs have the names of Tianhe systems, or others, and its own ones are missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SLURM = (
    "sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue sreport srun sshare sstat "
    "strigger".split()
)
TIANHE = {program: f"yh{program[1:]}" for program in SLURM}
_WHERE = ("/usr/local/bin", "/usr/bin", "/bin")


def links(folder: Path, names: Mapping[str, str] = TIANHE) -> Path:
    """The folder, new, with a link to every program of this machine: to Slurm's by these names, without them not at all."""
    folder.mkdir()
    folder.chmod(0o755)
    for place in map(Path, _WHERE):
        for path in place.iterdir() if place.is_dir() else ():
            link = folder / (names.get(path.name, "") if path.name in SLURM else path.name)
            if link != folder and not link.is_symlink():
                link.symlink_to(path)
    return folder
