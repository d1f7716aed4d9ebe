"""A login node's limits: what passes them alone and together, and what is no business of theirs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_judge import COMPUTES, NOW, UID, process, survey

from handwash import judge, limits
from handwash.limits import Policy

POLICY = Policy(login_cores=1.0, login_memory=4.0 * 1024**3, login_threads=100)
GIB = 1024**3


def over(*processes: Any, kind: str = "login") -> list[tuple[str, float, list[int]]]:
    seen = survey(kind, processes=processes)
    verdict = judge.judge(seen, UID, NOW, POLICY)
    return [
        (one.kind, round(one.measured, 2), [process.pid for process in one.by])
        for one in limits.over(seen, verdict, POLICY, NOW)
    ]


def busy(pid: int, cores: float, **changes: Any) -> Any:
    return process(pid, started=NOW - 1000, cpu_s=cores * 1000, **changes)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([], []),
        ([process()], []),
        ([busy(11, 2.0)], [("cores", 2.0, [11])]),
        ([busy(11, 0.4), busy(12, 0.7)], [("cores", 1.1, [12, 11])]),
        ([busy(11, 0.9)], []),
        # A compiler that runs for a moment.
        ([process(11, started=NOW - 2, cpu_s=50.0)], []),
        ([process(11, rss=3 * GIB), process(12, rss=2 * GIB)], [("memory", 5.0 * GIB, [11, 12])]),
        ([process(11, threads=60), process(12, threads=60)], [("threads", 120, [11, 12])]),
        ([process(11, **COMPUTES)], [("gpu", 1, [11])]),
        ([process(n, threads=40) for n in range(11, 16)], [("threads", 200, [11, 12, 13])]),
        # Services, other people's, what has ended.
        ([process(11, name="tmux", rss=9 * GIB), process(12, uid=7, rss=9 * GIB), process(13, state="Z", rss=9 * GIB)], []),
    ],
)  # fmt: skip
def test_together(processes: list[Any], expected: list[Any]) -> None:
    """Named with the largest first."""
    assert over(*processes) == expected


def test_elsewhere_there_are_no_limits() -> None:
    assert over(busy(11, 9.0), kind="compute") == [] and over(busy(11, 9.0), kind="workstation") == []


def test_work_in_a_window_counts_too() -> None:
    """It is no leftover, but the login node has to bear it."""
    window = process(6000, name="bash", terminal=9, sid=6000)
    work = busy(11, 3.0, terminal=9, sid=6000)
    assert over(window, work) == [("cores", 3.0, [11])]
