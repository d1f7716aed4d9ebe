"""A safe-srun session all of whose watchers are gone at once, as after a power cut of a submit host: named, dealt with."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.slurm.bystanders import bystanders
from tests.slurm.test_check import ask
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, running, wait_until

from handwash.node import wire
from handwash.survey.procfs import ancestors

pytestmark = pytest.mark.usefixtures("handwash_venv")

# One that lets go of everything by which it could be told, and is on record all the same.
HIDDEN = "setsid -f env -i sleep 103.3 </dev/null >/dev/null 2>&1; exec sleep 103.4"


def test_a_session_that_lost_its_watchers(cluster_pgid: Cluster) -> None:
    """Its job is over, a process of it is not: named at the next login, ended on request, and never called clean."""
    cluster = cluster_pgid
    records = cluster.home("alice") / ".local" / "state" / "handwash" / "sessions"

    def rows(session: str) -> list[list[str]]:
        return [row for path in records.glob(f"{session}.*") for row in wire.unpack(path.read_bytes()) or []]

    def session_of(on_record: list[str]) -> str:
        """Other sessions of hers may be on record too."""
        for path in records.glob("*.part"):
            if on_record in [row[:3] for row in wire.unpack(path.read_bytes()) or []]:
                return path.name.partition(".")[0]
        return ""

    def napping(nap: str) -> list[int]:
        return [pid for pid in cluster.processes("alice") if processes.arguments(pid) == ["sleep", nap]]

    with bystanders(cluster):
        child = cluster.popen(
            ["safe-srun", "-w", "n1", "--overcommit", "bash", "-c", HIDDEN], user="alice", stderr=subprocess.DEVNULL
        )
        try:
            assert wait_until(lambda: napping("103.3") and napping("103.4"), 20)
            hidden = identity(napping("103.3")[0])
            assert hidden
            on_record = ["process", str(hidden.pid), str(hidden.started)]
            assert wait_until(lambda: session_of(on_record), 20)
            session = session_of(on_record)
            assert wait_until(lambda: any(row[0] == "job" and row[1] for row in rows(session)), 20)
            helpers = {int(row[1]) for row in rows(session) if row[0] == "helper"}
            for pid in helpers:  # stopped first, so that none takes over from another
                os.kill(pid, signal.SIGSTOP)
            # Each before its parent, whose end would make the kernel continue what is stopped below it (exit(3), orphaned
            # process groups).
            for pid in sorted(helpers, key=lambda pid: len(ancestors(pid)), reverse=True):
                os.kill(pid, signal.SIGKILL)
            child.wait(20)
            job = next(row[1] for row in rows(session) if row[0] == "job" and row[1])
            words = ["handwash", "clean", "--session", session, "--yes"]
            # The job's own end, by its owner or its time limit; what left its process group goes on (proctrack/pgid).
            cluster.run(["scancel", job], user="alice")
            assert wait_until(lambda: job not in [row.id for row in cluster.jobs()], 60)
            assert running(hidden), "it did not survive: this is no test of what finds it"
            said = cluster.run(["handwash", "banner"], user="alice").stderr
            assert session in said and "never closed" in said and str(hidden.pid) in said, said
            code, answer = ask(cluster, *words)
            assert code == 0 and hidden.pid in answer["ended"] and not running(hidden), answer
            (item,) = [one for one in ask(cluster, "handwash", "sessions")[1]["items"] if one["id"] == session]
            assert (item["outcome"], item["closed"]) == ("unconfirmed", True)
            assert session not in cluster.run(["handwash", "banner"], user="alice").stderr
        finally:
            child.kill()
            child.wait()
            left = [*napping("103.3"), *napping("103.4")]
            processes.end_all(lambda: [pid for pid in left if identity(pid)])
            cluster.run(["rm", "-rf", str(records)], user="alice")
