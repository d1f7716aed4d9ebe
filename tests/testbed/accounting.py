"""The accounting of a cluster: slurmdbd, and a MariaDB of its own that listens on a socket in the cluster's folder alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed import configuration
from tests.testbed.configuration import PATH
from tests.testbed.processes import wait_until

if TYPE_CHECKING:
    from tests.testbed.daemons import Daemons

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr")
DAEMONS = ("slurmdbd", "mariadbd")

SLURM_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass=socket={directory}/munge/socket
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/none
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={directory}/slurmdbd.pid
LogFile={directory}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=handwash
"""

# Nothing of it has to outlive a power cut.
QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M")


def require() -> None:
    """Unavailable where a program is missing."""
    for name in PROGRAMS:
        configuration.tool(name, "mariadb-server slurmdbd")


def write(directory: Path, port: int) -> list[str]:
    """Writes slurmdbd.conf, beside which slurmdbd finds slurm.conf; answers the lines of that one."""
    path = directory / "slurmdbd.conf"
    path.touch(mode=0o600)
    path.write_text(SLURMDBD_CONF.format(directory=directory, port=port))
    return SLURM_CONF.format(directory=directory, port=port).splitlines()


def start(cluster: Daemons) -> None:
    """Starts the database and slurmdbd, and makes the cluster known to them."""
    folder = cluster.directory / "sql"
    places = ["--no-defaults", f"--datadir={folder}", "--user=root"]
    done = subprocess.run(
        [configuration.tool("mariadb-install-db"), *places, "--skip-test-db", "--skip-name-resolve"],
        env={"PATH": PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done
    socket = folder / "socket"
    # The character set as in Debian's own configuration: with the program's default, Chinese names become question marks.
    words = [f"--socket={socket}", f"--pid-file={folder}/pid", "--skip-networking", "--character-set-server=utf8mb4"]
    cluster.spawn("mariadbd", [configuration.tool("mariadbd"), *places, *words, *QUICK])
    assert wait_until(socket.exists, 30), cluster.logs()
    start_slurmdbd(cluster)
    added = wait_until(lambda: cluster.run(["sacctmgr", "-i", "add", "cluster", "handwash"]).returncode == 0, 30, 0.2)
    assert added, cluster.logs()


def start_slurmdbd(cluster: Daemons) -> None:
    """Starts slurmdbd and waits until it listens."""
    # The library's name for the socket of a database on localhost (mariadb(1), "Environment").
    cluster.spawn(
        "slurmdbd", [configuration.tool("slurmdbd"), "-D"], {"MYSQL_UNIX_PORT": f"{cluster.directory}/sql/socket"}
    )
    assert wait_until(lambda: configuration.listening(port(cluster)), 30), cluster.logs()


def stop_slurmdbd(cluster: Daemons) -> None:
    """Ends slurmdbd; the controller keeps for it what happens meanwhile."""
    cluster.end_daemon("slurmdbd")


def port(cluster: Daemons) -> int:
    """The port of slurmdbd."""
    for line in (cluster.directory / "slurmdbd.conf").read_text().splitlines():
        if line.startswith("DbdPort="):
            return int(line.partition("=")[2])
    raise AssertionError(os.listdir(cluster.directory))
