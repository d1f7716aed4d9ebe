"""The prolog's way to report."""

from __future__ import annotations

import os

from handwash import world


class Pipe:
    """The prolog's way to report: a named pipe in a folder of its own, kept open for reading and writing."""

    def __init__(self) -> None:
        self.path = ""
        self.fd = -1
        self.files: list[str] = []
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
