"""Changing a file of the person's: through symbolic links, with a backup, mode and owner kept, all or nothing."""

from __future__ import annotations

import os
import shutil
import stat

BACKUP = ".handwash-backup"


class NotAFile(OSError):
    """A folder, a device or a pipe stands where a start-up file is expected."""


def read(path: str) -> bytes | None:
    """The content behind `path`; None where there is no file. Raises OSError, NotAFile among them."""
    try:
        # Opening a pipe would wait for its writer.
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind):
        raise NotAFile(f"{path}: not a regular file")
    with open(path, "rb") as file:
        return file.read()


def replace(path: str, old: bytes | None, new: bytes | None, *, mode: int = 0o666) -> str | None:
    """Turns `old` (None: no file) into `new` (None: no file). The path of the backup, if there was something to keep.

    A new file has `mode`, less the umask unless it is for everybody. Raises OSError; the file is then as it was.
    """
    backup = None
    # Not of a file of our own: its folder is one of which every file may be read.
    if old is not None and new is not None and not is_ours(path):
        backup = path + BACKUP
        _write_beside(backup, old, like=os.stat(path))
    target = os.path.realpath(path)
    if new is None:
        os.unlink(target)
    elif old is None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _write_beside(target, new, like=None, mode=mode)
    elif not _swap(target, new):
        _overwrite(target, old, new)
    return backup


def is_ours(path: str) -> bool:
    """Whether the whole file is handwash's, by its name."""
    return os.path.basename(path).startswith("handwash.")


def _write_beside(target: str, content: bytes, like: os.stat_result | None, mode: int = 0o666) -> None:
    """Writes a new file and renames it to `target`, with the mode of `like`, or of a file that a person makes."""
    scratch = f"{target}.{os.getpid()}"
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(handle, "wb") as file:
            if like is not None:
                os.fchmod(handle, stat.S_IMODE(like.st_mode))
            elif mode != 0o666:
                os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.rename(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise


def _swap(target: str, new: bytes) -> bool:
    """Puts a new file in the place of `target`. False where that would lose its owner, its other names or its attributes."""
    before = os.stat(target)
    if before.st_nlink > 1:
        return False
    scratch = f"{target}.{os.getpid()}"
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False  # the folder cannot be written, the file perhaps can
    try:
        with open(handle, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(handle)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.stat(scratch).st_gid):
            os.chown(scratch, before.st_uid, before.st_gid)
        # Mode and extended attributes: access lists and SELinux labels are among these.
        shutil.copystat(target, scratch)
        os.utime(scratch)
        os.rename(scratch, target)
    except OSError:
        os.unlink(scratch)
        return False
    return True


def _overwrite(target: str, old: bytes, new: bytes) -> None:
    """Writes into the file itself, and the old content back where that fails."""
    with open(target, "r+b", buffering=0) as file:
        try:
            _fill(file.fileno(), new)
        except OSError:
            _fill(file.fileno(), old)
            raise


def _fill(handle: int, content: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.ftruncate(handle, len(content))
    os.fsync(handle)
