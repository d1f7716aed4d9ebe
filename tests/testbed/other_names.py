"""A PATH on which Slurm's programs have the names of Tianhe systems, or others, and its own ones are missing."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

SLURM = (
    "sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue sreport srun sshare sstat "
    "strigger".split()
)
TIANHE = {program: f"yh{program[1:]}" for program in SLURM}
_WHERE = ("/usr/local/bin", "/usr/bin", "/bin")


def links(folder: Path, names: Mapping[str, str] = TIANHE) -> Path:
    """The folder, new, with a link to every program of this machine, Slurm's left out, which are copied under these names."""
    folder.mkdir()
    folder.chmod(0o755)
    for place in map(Path, _WHERE):
        for path in place.iterdir() if place.is_dir() else ():
            if path.name not in SLURM and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
    for program, name in names.items():
        found = shutil.which(program, path=":".join(_WHERE))
        if found is not None:
            shutil.copy(found, folder / name)
    return folder
