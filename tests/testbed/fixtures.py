"""The clusters as pytest fixtures, and the check that no test leaves a job or a process on one.

``cluster_linuxproc``, ``cluster_pgid`` and ``cluster_cgroup`` are started when first asked for and shared by the session;
``cluster`` runs a test on each of the three; ``any_cluster`` is for a test to which the kind does not matter;
``cluster_accounting`` has slurmdbd.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed import installed
from tests.testbed.cluster import Cluster, ClusterError
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.machine import Unavailable
from tests.testbed.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
# What a test has ended itself may still be on its way out, a step in state COMPLETING for instance.
PATIENCE = 5.0

_started: dict[str, Cluster] = {}


def _shared(name: str, proctrack: str, *, accounting: bool = False) -> Iterator[Cluster]:
    try:
        cluster = Cluster(proctrack, accounting=accounting).start()
    except Unavailable as missing:
        pytest.skip(f"no test cluster: {missing}")
    _started[name] = cluster
    yield cluster
    del _started[name]
    cluster.stop()


@pytest.fixture(scope="session")
def cluster_linuxproc() -> Iterator[Cluster]:
    """The session's cluster with proctrack/linuxproc."""
    yield from _shared("cluster_linuxproc", "linuxproc")


@pytest.fixture(scope="session")
def cluster_pgid() -> Iterator[Cluster]:
    """The session's cluster with proctrack/pgid."""
    yield from _shared("cluster_pgid", "pgid")


@pytest.fixture(scope="session")
def cluster_cgroup() -> Iterator[Cluster]:
    """The session's cluster with proctrack/cgroup."""
    yield from _shared("cluster_cgroup", "cgroup")


@pytest.fixture(scope="module")
def cluster_accounting() -> Iterator[Cluster]:
    """A cluster with slurmdbd, for the tests of one file."""
    yield from _shared("cluster_accounting", "linuxproc", accounting=True)


@pytest.fixture(scope="session", params=PROCTRACKS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The session's clusters, one after the other."""
    found: Cluster = request.getfixturevalue(f"cluster_{request.param}")
    return found


@pytest.fixture(scope="session")
def any_cluster(cluster_linuxproc: Cluster) -> Cluster:
    """A cluster of the kind where most is left behind."""
    return cluster_linuxproc


@pytest.fixture(scope="session")
def handwash_venv() -> Iterator[Path]:
    """handwash, installed from a wheel of this checkout where ordinary users can run it; first on every cluster's PATH."""
    folder = Path(tempfile.mkdtemp(prefix="handwash-venv-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        try:
            installed.install(ROOT, folder)
        except Unavailable as missing:
            pytest.skip(str(missing))
        Cluster.shared_venv = folder
        yield folder
    finally:
        Cluster.shared_venv = None
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def nothing_left_on_the_clusters(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a job in the queue or a process of the users, and clears it away for the next one."""
    yield
    for name, cluster in list(_started.items()):
        if not {name, "cluster", "any_cluster"} & set(request.fixturenames):
            continue
        found = _left_on(cluster)
        if found:
            cluster.clear()
            pytest.fail(f"left on {name}:\n" + "\n".join(found))


def _left_on(cluster: Cluster) -> list[str]:
    try:
        wait_until(lambda: not cluster.leftovers(), PATIENCE, 0.05)
        return cluster.leftovers()
    except ClusterError as error:
        return [str(error)]
