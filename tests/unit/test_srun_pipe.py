"""The folder of the prolog's pipe: what killed sessions have left is taken away, and nobody else's is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from handwash import world
from handwash.srun.pipe import PREFIX, Pipe, prune


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(world, "env", {"TMPDIR": str(tmp_path)})
    yield tmp_path


def grow_old(folder: str) -> None:
    os.utime(folder, (time.time() - 7200, time.time() - 7200))


def test_what_nobody_holds_open_goes(place: Path) -> None:
    left, held, young, mine = Pipe(), Pipe(), Pipe(), Pipe()
    assert left.put("programs", "0 true\n")
    for pipe in (left, young):
        os.close(pipe.fd)
    for pipe in (left, held, mine):
        grow_old(pipe.folder)
    half = place / f"{PREFIX}half"
    half.mkdir()
    grow_old(str(half))
    other = place / "handwash-other"
    other.mkdir()
    grow_old(str(other))
    prune(mine.folder)
    assert {str(path) for path in place.iterdir()} == {held.folder, young.folder, mine.folder, str(other)}
    for pipe in (held, young, mine):
        pipe.remove()


def test_what_is_another_users_or_no_folder_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Pipe()
    os.close(theirs.fd)
    grow_old(theirs.folder)
    link = place / f"{PREFIX}link"
    link.symlink_to(place)
    monkeypatch.setattr(world, "uid", lambda: os.getuid() + 1)
    prune(str(place / "mine"))
    assert Path(theirs.path).exists() and link.is_symlink()


def test_nowhere_to_look(tmp_path: Path) -> None:
    prune("")
    prune(str(tmp_path / "gone" / "pipe"))
