"""What is ended beside what was shown: with looks and an end that the test makes, so that each moment is there on purpose."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.test_judge import IN_42, NOW, SHELL, UID, job, process, survey

from handwash import giveback, judge, world
from handwash import survey as surveys
from handwash.commands import clean
from handwash.config import Config
from handwash.frozen import replace
from handwash.giveback import Done
from handwash.model import Judged, Process, Survey, Unknown
from handwash.teardown import identity
from handwash.teardown.end import Outcome

Ending = Callable[..., tuple[Done, list[int]]]


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Ending:
    """Ends what the judge calls left over in `seen`, or 5000 as if a person had named it; (the outcome, the pids ended).

    Each later look finds what was there less what was ended, and `new`: those have come while the first were ended.
    `queue`: what the scheduler answers then.
    """

    def run(seen: Survey, *new: Process, named: bool = False, queue: Any = None) -> tuple[Done, list[int]]:
        assert not isinstance(seen.processes, Unknown)
        there = {(one.pid, one.start_ticks): one for one in seen.processes}
        asked: list[int] = []

        def end(pairs: list[tuple[int, int]], _grace: float, _uid: int) -> Outcome:
            for pair in pairs:
                del there[pair]
                asked.append(pair[0])
            if len(asked) == len(pairs):
                there.update({(one.pid, one.start_ticks): one for one in new})
            return Outcome(ended=tuple(pid for pid, _start in pairs))

        monkeypatch.setattr(giveback.end, "end", end)

        def take(_deadline: float, only: tuple[str, ...]) -> Survey:
            processes = tuple(there.values()) if only == ("processes",) else Unknown("It was not asked.")
            jobs = Unknown("It was not asked.") if queue is None or only != ("jobs",) else queue
            return replace(seen, processes=processes, jobs=jobs, living_steps=None)

        monkeypatch.setattr(surveys, "take", take)
        judged = judge.judge(seen, UID, NOW).judged
        targets = tuple(one for one in judged if (one.process.pid == 5000 if named else one.leftover))
        assert [one.process.pid for one in targets] == [5000]
        monkeypatch.setattr(identity, "start_of", lambda pid: next((start for one, start in there if one == pid), None))
        return giveback.end_all(Config(), seen, targets, only_leftovers=not named), asked

    monkeypatch.setattr(world, "uid", lambda: UID)
    monkeypatch.setattr(world, "now", lambda: NOW)
    monkeypatch.setattr(world, "pause", lambda _seconds: None)
    return run


OF_STEP_3 = {**IN_42, "step": "3"}
# Steps 0 and 1 run; 3, which has left 5000, does not.
IN_JOB = survey(inside="42", living_steps=("0", "1"), processes=(process(5000, **OF_STEP_3),))
ENDED_JOB = survey(jobs=(job("43"),), processes=(process(5000, **OF_STEP_3),))


@pytest.mark.parametrize("step", ["1", "2", "4", "99"])
def test_a_living_step_with_the_same_program(ending: Ending, step: str) -> None:
    """On the list, or begun after it was made, while a person read the question: it lives, and is no new leftover either."""
    done, asked = ending(IN_JOB, process(6000, **{**IN_42, "step": step}))
    assert asked == [5000] and done.left == ()


@pytest.mark.parametrize("seen", [IN_JOB, ENDED_JOB], ids=["step", "job"])
def test_more_out_of_what_is_over(ending: Ending, seen: Survey) -> None:
    """Of the same step or job that has ended nobody starts anything by hand: an agent does, and it is ended as well."""
    done, asked = ending(seen, process(6000, **OF_STEP_3))
    assert asked == [5000, 6000] and done.left == ()


def test_another_program_or_step_of_an_ended_job(ending: Ending) -> None:
    """Left over too, as it seems; nobody has agreed to it."""
    for new in ({"name": "eval.py"}, {"step": "2"}, {"session": "s2"}):
        done, asked = ending(ENDED_JOB, process(6000, **{**OF_STEP_3, **new}))
        assert asked == [5000] and [(one.process.pid, why) for one, why in done.left] == [(6000, "new")]


@pytest.mark.parametrize("step", ["0", "extern"])
def test_the_same_program_in_the_step_of_this_shell(ending: Ending, step: str) -> None:
    """In another window of it somebody can have started it meanwhile; what descends from one that was ended is its own."""
    here = {**IN_42, "step": step}
    seen = survey(inside="42", step=step, living_steps=("0", "1"), processes=(process(5000, **here),))
    done, asked = ending(seen, process(6000, **here))
    assert asked == [5000] and [(one.process.pid, why) for one, why in done.left] == [(6000, "new")]
    for kin in ({"pgid": 5000}, {"sid": 5000}, {"ppid": 5000}):
        assert ending(seen, process(6000, **{**here, **kin}))[1] == [5000, 6000]


def test_the_pid_of_one_that_was_ended_is_somebody_else_s_by_now(ending: Ending) -> None:
    """Neither that one, which leads a group and session of its own, nor what it has started."""
    seen, child = survey(processes=(process(5000),)), process(6001, ppid=5000, pgid=5000, sid=5000)
    for new in ((), (child,)):
        done, asked = ending(seen, process(5000, start_ticks=6000), *new, named=True)
        assert asked == [5000] and not done.left, done
    # Without anybody else of that pid, it is a child's.
    assert ending(seen, child, named=True)[1] == [5000, 6001]


def test_a_child_of_the_shell_that_asks(ending: Ending) -> None:
    """It was ended; the next one like it is typed by the person, and no work of an agent's."""
    seen = survey(inside="42", processes=(process(5000, ppid=SHELL, **IN_42),))
    done, asked = ending(seen, process(6000, ppid=SHELL, **IN_42))
    assert asked == [5000] and done.agents == ()


@pytest.mark.parametrize("queue", [(job("44"),), (), Unknown("It hung.")], ids=["lives", "over", "unknown"])
def test_a_job_that_starts_meanwhile(ending: Ending, queue: Any) -> None:
    """The queue was asked before it was there: asked again. What could not be told then is said."""
    done, asked = ending(ENDED_JOB, process(6000, **{**OF_STEP_3, "job": "44"}), queue=queue)
    assert asked == [5000] and done.unchecked == ("It hung." if isinstance(queue, Unknown) else None)
    assert [(one.process.pid, why) for one, why in done.left] == ([(6000, "new")] if queue == () else [])


@pytest.mark.parametrize("queue", [(job("42"),), (), Unknown("It hung.")], ids=["lives", "over", "unknown"])
def test_before_the_end_without_a_question(monkeypatch: pytest.MonkeyPatch, queue: Any) -> None:
    """On the way out, say: a job that is not in the queue of the look may have started since."""
    ended: list[int] = []

    def end_all(_settings: Config, seen: Survey, targets: tuple[Judged, ...]) -> Done:
        ended.extend(one.process.pid for one in targets)
        return Done((), (), (), (), seen)

    monkeypatch.setattr(surveys, "take", lambda _deadline, only: replace(ENDED_JOB, jobs=queue))
    monkeypatch.setattr(giveback, "end_all", end_all)
    monkeypatch.setattr(world, "uid", lambda: UID)
    monkeypatch.setattr(world, "now", lambda: NOW)
    young = {**OF_STEP_3, "started": NOW}
    seen = replace(ENDED_JOB, processes=(process(5000, **young), process(5001, **young), process(5002)), taken=NOW)
    targets = [one for one in judge.judge(seen, UID, NOW).leftovers if one.process.pid != 5001]
    said = io.StringIO()
    clean.end_all(Config(), seen, tuple(targets), said)
    assert ended == ([5000, 5002] if queue == () else [5002])
    assert ("It hung." in said.getvalue()) == isinstance(queue, Unknown)


@pytest.mark.parametrize(
    ("queue", "code"), [((job("42"),), 0), ((), 1), (Unknown("It hung."), 3)], ids=["lives", "over", "unknown"]
)
def test_before_anything_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], queue: Any, code: int
) -> None:
    """The queue is asked beside the look at the processes: a job can have started in between."""
    asked = []

    def take(_deadline: float, only: tuple[str, ...] = ()) -> Survey:
        asked.append(only)
        return replace(young, jobs=queue) if only else young

    young = replace(ENDED_JOB, processes=(process(5000, **{**OF_STEP_3, "started": NOW}),), taken=NOW)
    monkeypatch.setattr(surveys, "take", take)
    monkeypatch.setattr(world, "uid", lambda: UID)
    monkeypatch.setattr(world, "now", lambda: NOW)
    assert clean.clean(Config(), clean.Options(dry_run=True, as_json=True)) == code
    answer = json.loads(capsys.readouterr().out)
    assert [row["pid"] for row in answer.get("would_end", [])] == ([5000] if queue == () else [])
    assert asked == [(), ("jobs",)] and ("It hung." in str(answer["unknown"])) == (code == 3)


@pytest.mark.parametrize(("age", "may"), [(-0.5, True), (0.0, True), (0.01, True), (0.05, False), (3600.0, False)])
def test_what_is_older_than_the_queue_s_answer_is_not_asked_about(age: float, may: bool) -> None:
    """Its job would have been in it; one request is enough then, as nearly always."""
    seen = replace(ENDED_JOB, processes=(process(5000, **{**OF_STEP_3, "started": NOW - age}),), taken=NOW)
    (one,) = judge.judge(seen, UID, NOW).leftovers
    assert giveback.may_have_started([one], seen) == may
    assert giveback.may_have_started([one], replace(seen, taken=0.0))
    assert not giveback.may_have_started([replace(one, whose="no-job")], seen)


@pytest.mark.parametrize(
    ("agent", "new", "named"),
    [
        ({}, (), True),
        # It has started another one already: then it is said to be so.
        ({}, (process(6000, ppid=4000),), False),
        ({"name": "tmux: server"}, (), False),
        ({"name": "bash", "terminal": 34818, "sid": 4000}, (), False),
    ],
    ids=["agent", "restarted", "service", "shell"],
)
def test_a_parent_that_has_done_nothing_yet(ending: Ending, agent: Any, new: Any, named: bool) -> None:
    """It may start it anew in a second, or never: that it is there is all that can be said."""
    parent = process(4000, **{"name": "agent.py", **agent})
    seen = survey("login", processes=(parent, process(5000, ppid=4000)))
    done, asked = ending(seen, *new, named=True)
    assert asked == [5000] and [one.process.pid for one in done.parents] == ([4000] if named else [])
    assert bool(done.agents) == bool(new) and bool(done.left) == bool(new)
