"""Who has started anew what was ended: an agent, never a person at a shell, never the one that is asking."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_judge import UID, process, survey

from handwash import cleaning
from handwash.frozen import replace
from handwash.model import Judged, Process, Unknown

AGENT = 400
CHAIN = (900, 800)


def judged(one: Process, whose: str = "no-job") -> Judged:
    return Judged(one, whose, "survives", True, "")


@pytest.mark.parametrize(
    ("agent", "new", "found"),
    [
        ({}, {}, True),
        # Of another program, another job, another parent.
        ({}, {"name": "eval.py"}, False),
        ({}, {"job": "7"}, False),
        ({}, {"ppid": 401}, False),
        # A shell somebody types into; the same program as a script's or a service's is one.
        ({"name": "bash", "terminal": 34817, "sid": AGENT}, {}, False),
        ({"name": "bash", "terminal": 34817, "sid": 1}, {}, True),
        ({"name": "bash", "terminal": 0, "sid": AGENT}, {}, True),
        ({"name": "torchrun", "terminal": 34817, "sid": AGENT}, {}, True),
        ({"uid": UID + 1}, {}, False),
        # The pid of one that has gone, used again.
        ({"start_ticks": 5001}, {}, False),
    ],
)
def test_who_has_started_it_anew(agent: dict[str, Any], new: dict[str, Any], found: bool) -> None:
    ended = judged(process(5000, ppid=AGENT))
    parent = judged(process(AGENT, **{"name": "agent", **agent}))
    fresh = judged(process(5001, **{"ppid": AGENT, **new}))
    now = (parent, judged(process(401)), fresh)
    assert cleaning.restarted([fresh], [ended], now, CHAIN) == ({5001: parent} if found else {})
    # One that is ended too, that asks, or that is gone is none.
    assert cleaning.restarted([fresh], [ended, parent], now, CHAIN) == {}
    assert cleaning.restarted([fresh], [ended], now, (AGENT,)) == {}
    assert cleaning.restarted([fresh], [ended], now[1:], CHAIN) == {}


@pytest.mark.parametrize(
    ("agent", "chain", "may"),
    [
        ({}, CHAIN, True),
        ({}, (AGENT,), False),
        ({"name": "bash", "terminal": 34817, "sid": AGENT}, CHAIN, False),
        ({"name": "bash"}, CHAIN, True),
    ],
)
def test_whether_there_is_an_agent_to_wait_for(agent: dict[str, Any], chain: tuple[int, ...], may: bool) -> None:
    parent, worker = process(AGENT, **{"name": "agent", **agent}), process(5000, ppid=AGENT)
    seen = survey(processes=(parent, worker), chain=chain)
    assert cleaning.staying_parents([judged(worker)], seen) == ((parent,) if may else ())
    assert not cleaning.staying_parents([judged(worker), judged(parent)], seen)
    assert not cleaning.staying_parents([judged(process(5001))], seen)
    assert not cleaning.staying_parents([judged(worker)], replace(seen, processes=Unknown("why")))


def test_orphans_are_nobody_s() -> None:
    """Process 1 gets them all: that two of the same name come to it means nothing."""
    ended, fresh = judged(process(5000)), judged(process(5001))
    assert cleaning.restarted([fresh], [ended], [judged(process(1)), fresh], CHAIN) == {}
