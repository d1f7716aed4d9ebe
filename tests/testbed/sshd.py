"""A real sshd of our own on 127.0.0.1, reached with a key that it makes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.processes import wait_until

SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")
LIMIT = 20.0


class Sshd:
    """Started with the object, ended by `stop`. *folder* has to be one that those who log in may pass through; *before* are
    the words of a program that becomes sshd; *environment* is what a login starts with."""

    def __init__(self, folder: Path, before: Sequence[str] = (), **environment: str) -> None:
        self.folder = folder
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        sftp = next((path for path in SFTP if Path(path).exists()), "internal-sftp")
        variables = {"LC_ALL": "C.UTF-8", **environment}
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nSubsystem sftp {sftp}\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        )
        # Of the client: nothing of whoever runs this.
        self.options = [
            *("-F", "none", "-i", str(folder / "user"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
        ]
        self.made_run = False
        if not Path("/run/sshd").exists():
            # sshd as root wants an empty folder there.
            Path("/run/sshd").mkdir(mode=0o755)
            self.made_run = True
        sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        assert sshd, "sshd is not installed"
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*before, sshd, "-D", "-e", "-f", str(folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self._answers() or self.process.poll() is not None, LIMIT)
        if self.process.poll() is not None or not self._answers():
            self.stop()
            raise AssertionError("sshd does not listen: " + (folder / "log").read_text())

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ssh(self, *words: str) -> list[str]:
        """A client's command line."""
        return ["ssh", *self.options, "-p", str(self.port), *words]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.made_run:
            Path("/run/sshd").rmdir()
