"""Who must survive: what a teardown has no business with, checked alive after each test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import Identity, identity, running, wait_until

NAP = "109.7"


def napping(cluster: Cluster, user: str, nap: str = NAP) -> list[Identity]:
    """The sleepers of a user that sleep exactly so long."""
    found = [pid for pid in cluster.processes(user) if processes.arguments(pid)[1:] == [nap]]
    return [who for who in map(identity, found) if who]


@contextmanager
def bystanders(cluster: Cluster) -> Iterator[list[Identity]]:
    """alice's second job on the same node, bob's look-alike command, alice's sleeper and tmux outside of any job."""
    nap = ["srun", "-w", "n1", "-J", "bystander", "--overcommit", "sleep", NAP]
    job = cluster.popen(nap, user="alice", stderr=subprocess.DEVNULL)
    other = cluster.popen(["bash", "-c", "exec -a leaky.sh sleep 109.8"], user="bob")
    mine = cluster.popen(["sleep", "109.9"], user="alice")
    tmux = shutil.which("tmux")
    socket = f"{cluster.home('alice')}/tmux"
    if tmux:
        cluster.run(
            [tmux, "-S", socket, "-f", "/dev/null", "new-session", "-d", "sleep 109.6"], user="alice", check=True
        )
    number = ""
    try:
        assert wait_until(lambda: napping(cluster, "alice"), 20)
        number = next(row.id for row in cluster.jobs() if row.name == "bystander")
        people = [*napping(cluster, "alice"), *(who for who in (identity(other.pid), identity(mine.pid)) if who)]
        if tmux:
            assert wait_until(lambda: napping(cluster, "alice", "109.6"), 10)
            people += napping(cluster, "alice", "109.6")
            people += [
                who
                for pid in cluster.processes("alice")
                if processes.arguments(pid)[:1] == [tmux] and (who := identity(pid))
            ]
        assert len(people) == (5 if tmux else 3)
        yield people
        lost = [who for who in people if not running(who)]
        assert not lost, f"wrong victims: {lost}"
        assert [row for row in cluster.jobs() if row.id == number], "the second job was taken away"
    finally:
        if tmux:
            cluster.run([tmux, "-S", socket, "kill-server"], user="alice")
        for child in (other, mine):
            child.kill()
            child.wait()
        if number:
            cluster.run(["scancel", number], user="alice")
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        cluster.run(["rm", "-f", socket], user="alice")
