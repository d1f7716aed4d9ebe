"""A part of the fault matrix (`make fault-matrix`) on the session's clusters: the whole zoo, bystanders, one way at a time."""

from __future__ import annotations

import re

import pytest
from tests.faults import matrix
from tests.faults.session import SAFE
from tests.faults.ways import WAYS
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.programs.zoo import ESCAPEES

pytestmark = pytest.mark.usefixtures("handwash_venv")

# Everywhere: what cuts the chain in a place of its own. Elsewhere once.
EVERYWHERE = ["KILL safe-srun+srun", "KILL inner", "KILL outer+inner", "KILL safe-srun+both", "scancel step"]
ONCE = [
    ("linuxproc", "TERM"),
    ("linuxproc", "Ctrl-C twice"),
    ("linuxproc", "KILL srun"),
    ("linuxproc", "Ctrl-C twice, -N2"),
    ("linuxproc", "KILL safe-srun, -N2"),
    ("linuxproc", "KILL guardian"),
    ("linuxproc", "exit code"),
    ("linuxproc", "KILL slurmstepd"),
    ("linuxproc", "disk full"),
    ("linuxproc", "other user"),
    ("pgid", "closed terminal"),
    ("pgid", "KILL outer"),
    ("pgid", "guardian, then TERM"),
    ("pgid", "KILL stepd+both"),
    ("pgid", "KILL keeper"),
    ("pgid", "KILL twin"),
    ("pgid", "slurmd restarted"),
    ("pgid", "frozen"),
    ("pgid", "moved"),
    ("cgroup", "normal end"),
    ("cgroup", "KILL both+guardian"),
    ("cgroup", "moved, KILL both"),
    ("cgroup", "slurmctld away"),
]
STATUS = {
    "exit code": 7,
    "KILL srun": -9,
    "KILL outer": 137,
    "KILL inner": 137,
    "KILL outer+inner": 137,
    "KILL keeper": 0,
    "KILL twin": 0,
    "KILL guardian": 0,
}
CELLS = [(proctrack, way) for proctrack in PROCTRACKS for way in EVERYWHERE] + ONCE


@pytest.mark.parametrize("proctrack, name", CELLS, ids=[f"{proctrack}-{name}" for proctrack, name in CELLS])
def test_cell(proctrack: str, name: str, request: pytest.FixtureRequest) -> None:
    cluster = request.getfixturevalue(f"cluster_{proctrack}")
    way = WAYS[name]
    if not matrix.possible(way):
        pytest.skip("no freezer of cgroup v1")
    cell = matrix.run(cluster, name, way, SAFE, 60.0, list(ESCAPEES))
    assert not cell.red(), matrix.line(cell, 60.0) + (cell.ended.said if cell.ended else "")
    assert cell.ended is not None
    assert cell.ended.status == STATUS.get(name, cell.ended.status)
    if name == "frozen":
        assert re.search(r"could not be ended: \d+ \(it hangs in the kernel .*tell the administrator", cell.ended.said)
        assert re.search(r"node n\d: process \d+ \(.*\) of .* is in state D, .*; job \d+", cell.ended.said)
    if cell.beyond:
        assert cell.ended.outcome != "clean"
