"""Builds the stand-in for libnvidia-ml.so.1: `python build.py FOLDER [SYMBOL-TO-LEAVE-OUT …]`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
_built: dict[tuple[str, ...], bytes] = {}


def compiler() -> str | None:
    """The C compiler's path, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def build(folder: Path, missing: tuple[str, ...] = ()) -> Path:
    """Puts the library into `folder` without the symbols `missing`; compiled once per program and set of symbols."""
    key = tuple(sorted(missing))
    if key not in _built:
        _built[key] = _compile(key)
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / NAME
    # Under a new name and renamed: a program that has the old one mapped keeps it whole.
    scratch = folder / f"{NAME}.new"
    scratch.write_bytes(_built[key])
    scratch.chmod(0o755)
    scratch.rename(library)
    return library


def _compile(missing: tuple[str, ...]) -> bytes:
    cc = compiler()
    if cc is None:
        raise FileNotFoundError("no C compiler")
    with tempfile.TemporaryDirectory() as scratch:
        # An exact name in a linker's version script wins over a pattern, so dlsym() does not find the symbol.
        script = Path(scratch, "symbols")
        script.write_text("{ global: nvml*; local: " + "".join(f"{symbol}; " for symbol in missing) + "*; };\n")
        library = Path(scratch, NAME)
        command = [cc, "-O1", "-fPIC", "-shared", "-pthread", f"-Wl,--version-script={script}", f"-Wl,-soname,{NAME}"]
        subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
        return library.read_bytes()


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), tuple(sys.argv[2:])))
