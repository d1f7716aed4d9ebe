"""The prolog's way to report."""

from __future__ import annotations

import os

from handwash import world


class Pipe:
    """The prolog's way to report: a named pipe in a folder of its own, kept open for reading and writing."""

    def __init__(self) -> None:
        self.path = ""
        self.fd = -1
        for place in (world.env.get("XDG_RUNTIME_DIR", ""), world.env.get("TMPDIR", ""), "/tmp", "/dev/shm"):
            if not os.path.isabs(place):
                continue
            self.folder = os.path.join(place, "handwash-pipe-" + os.urandom(8).hex())
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

    def remove(self) -> None:
        """Takes the pipe away again."""
        for away, path in ((os.unlink, self.path), (os.rmdir, self.folder)):
            try:
                away(path)
            except OSError:
                pass
        self.path = ""
