"""The keeper that takes over from a dead safe-srun without having heard which job it was."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from handwash import world
from handwash.schedulers.slurm_step import GONE, Answer
from handwash.srun import confirm, keeper, record
from handwash.srun.pipe import Pipe

SESSION = "20260101-000000-0123456789ab"
PLAN = keeper.Plan(SESSION, 0.1, (), "", True, "true", 1, 0.0)


@pytest.mark.parametrize("case", ["nothing launched", "no pipe", "a node has spoken"])
def test_clean_only_where_nothing_was_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Else a job may be running, or have left something: neither is it looked for by its name, nor is it called clean."""
    monkeypatch.setattr(world, "env", {"TMPDIR": str(tmp_path)})
    asked: list[keeper.Plan] = []

    def give_back(plan: keeper.Plan, _main: record.Main) -> confirm.Confirmation:
        asked.append(plan)
        return confirm.Confirmation(Answer(GONE))

    monkeypatch.setattr(keeper, "give_back", give_back)
    word = record.PartWord("n1", "", "7", "0", False, True, False, True, 1, 0, 0, (), (), (), ())
    monkeypatch.setattr(record, "parts_of", lambda _session, _where: [word] if case == "a node has spoken" else [])
    pipe = Pipe()
    if case == "no pipe":
        pipe.remove()
    mine, other = socket.socketpair()
    main = record.Main(SESSION, "true", str(tmp_path))
    with mine, other:
        keeper.Keeper(other, pipe, PLAN, main).take_over()
    nothing = case == "nothing launched"
    assert main.fields["outcome"] == ("clean" if nothing else "unconfirmed")
    assert asked == ([PLAN] if nothing else [])
