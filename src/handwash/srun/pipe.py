"""The prolog's way to report."""

from __future__ import annotations

import errno
import os

from handwash import world

PREFIX = "handwash-pipe-"
# A folder younger than this, in seconds, may be one that is just being made.
YOUNG = 3600.0


class Pipe:
    """The prolog's way to report: a named pipe in a folder of its own, kept open for reading and writing."""

    def __init__(self) -> None:
        self.path = self.folder = ""
        self.fd = -1
        self.files: list[str] = []
        for place in (world.env.get("XDG_RUNTIME_DIR", ""), world.env.get("TMPDIR", ""), "/tmp", "/dev/shm"):
            if not os.path.isabs(place):
                continue
            self.folder = os.path.join(place, PREFIX + os.urandom(8).hex())
            try:
                os.mkdir(self.folder, 0o700)
                self.path = os.path.join(self.folder, "report")
                os.mkfifo(self.path, 0o600)
                self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                return
            except OSError:
                self.remove()

    def read(self) -> list[list[str]]:
        """The reports that have arrived, as words."""
        if self.fd < 0:
            return []
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return []
        return [line.split(" ") for line in data.decode("utf-8", "replace").splitlines()]

    def put(self, name: str, text: str) -> str | None:
        """Puts a file for srun beside the pipe; its path, None where there is no room for one."""
        if not self.path:
            return None
        # Numbered, since every component of a heterogeneous job may have one.
        folder = os.path.join(self.folder, str(len(self.files)))
        path = os.path.join(folder, name)
        try:
            os.mkdir(folder, 0o700)
            self.files.append(path)
            with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
        except OSError:
            return None
        return path

    def remove(self) -> None:
        """Takes the pipe away again."""
        rest = [(os.unlink, path) for path in self.files] + [(os.rmdir, os.path.dirname(path)) for path in self.files]
        for away, path in (*rest, (os.unlink, self.path), (os.rmdir, self.folder)):
            try:
                away(path)
            except OSError:
                pass
        self.path = ""


def prune(beside: str) -> None:
    """Takes away what killed sessions of this user have left beside this pipe's folder: pipes that nobody holds open."""
    place = os.path.dirname(beside)
    try:
        names = [name for name in os.listdir(place) if name.startswith(PREFIX)] if place else []
    except OSError:
        return
    for name in names:
        folder = os.path.join(place, name)
        try:
            status = os.lstat(folder)
            if folder == beside or status.st_uid != world.uid() or world.now() - status.st_mtime < YOUNG:
                continue
            # Opened for writing alone a pipe says whether there is a reader (fifo(7)); safe-srun and its keeper are.
            os.close(
                os.open(os.path.join(folder, "report"), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            )
        except FileNotFoundError:
            _remove_tree(folder)
        except OSError as error:
            if error.errno == errno.ENXIO:
                _remove_tree(folder)


def _remove_tree(folder: str) -> None:
    """A folder of ours, as deep as `Pipe.put` makes it."""
    for root, folders, files in os.walk(folder, topdown=False):
        for away, names in ((os.unlink, files), (os.rmdir, folders)):
            for name in names:
                try:
                    away(os.path.join(root, name))
                except OSError:
                    pass
    try:
        os.rmdir(folder)
    except OSError:
        pass
