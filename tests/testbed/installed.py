"""handwash as a person gets it: a wheel of a checkout, installed where ordinary users can execute it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.testbed.configuration import PATH
from tests.testbed.machine import Unavailable

NOBODY = 65534


def interpreters() -> Iterable[str]:
    """Interpreters from which an environment may be made, ours first: the tests are to run the release they are run with."""
    yield getattr(sys, "_base_executable", sys.executable)
    for folder in ("/usr/bin", "/usr/local/bin"):
        yield f"{folder}/python3"


def reachable(interpreter: str) -> bool:
    """Whether an ordinary user can start this interpreter: one below /root, as pyenv has it, cannot be."""
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", "import ensurepip, venv"],
            cwd="/",
            capture_output=True,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
    except OSError:
        return False
    return done.returncode == 0


def install(source: str | Path, folder: Path) -> None:
    """Builds a wheel from the checkout and installs it with its dependencies into a new environment in *folder*."""
    interpreter = next((path for path in interpreters() if reachable(path)), None)
    if interpreter is None:
        raise Unavailable("no Python that ordinary users can execute (Debian: apt-get install python3-venv)")
    # The rest of the environment stays the caller's: it may say where pip finds its packages.
    environment = {**os.environ, "PATH": PATH}
    for argv in (
        [interpreter, "-m", "venv", "--without-pip", str(folder)],
        [sys.executable, "-m", "pip", f"--python={folder}/bin/python", "install", "-q", str(Path(source).resolve())],
    ):
        done = subprocess.run(argv, env=environment, umask=0o022, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)}:\n{done.stdout}{done.stderr}")
