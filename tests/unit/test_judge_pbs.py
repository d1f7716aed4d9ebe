"""What becomes of processes where the scheduler is PBS: by session, by control group, and by who keeps the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_judge import AT_WINDOW, HANDWASH, IN_42, NOW, SHELL, SID, UID, WINDOW, job, one, process, survey

from handwash import judge, remarks
from handwash.frozen import replace
from handwash.model import Site, Unknown

JOB = "42.vm"
IN = {**IN_42, "job": JOB, "step": None}
HERE = {**IN, "sid": SID}
HOLDS = {"on_terminal": True}


def at(tracking: str, *processes: Any, **changes: Any) -> Any:
    """A shell in an interactive job of PBS. Its own chain holds the terminal, as every shell does."""
    site = Site(tracking, holders=("qsub",), waits_for_terminal=True)
    seen = survey(inside=JOB, step=None, site=site, processes=processes, **changes)
    chain = tuple(replace(row, on_terminal=row.terminal != 0) for row in seen.processes if row.pid in seen.chain)
    return replace(seen, processes=(*chain, *processes))


@pytest.mark.parametrize(
    ("tracking", "what", "fate"),
    [
        # nohup with its streams elsewhere; setsid.
        ("session", HERE, "ends-with-job"),
        ("session", IN, "survives"),
        # The cgroup hook.
        ("cgroup", HERE, "ends-with-job"),
        ("cgroup", IN, "ends-with-job"),
        # `sleep &`, with the hook or without.
        ("session", {**HERE, **HOLDS}, "survives"),
        ("cgroup", {**IN, **HOLDS}, "survives"),
        # What has ended keeps nothing.
        ("session", {**HERE, **HOLDS, "state": "Z"}, "ends-with-job"),
    ],
)
def test_fate(tracking: str, what: dict[str, Any], fate: str) -> None:
    """As measured: see `judge._fate_in_job`."""
    assert one(at(tracking, process(**what)))[:2] == ("session", fate)


@pytest.mark.parametrize("tracking", ["session", "cgroup"])
def test_one_that_keeps_the_terminal_keeps_all(tracking: str) -> None:
    """PBS waits for the terminal's last holder before it ends anything of the job."""
    seen = at(tracking, process(5000, **HERE), process(5001, **IN, **HOLDS))
    assert [one(seen, pid)[1] for pid in (5000, 5001)] == ["survives"] * 2
    # Elsewhere nobody waits.
    seen = replace(seen, site=Site("cgroup"))
    assert one(seen, 5000)[1] == "ends-with-job"


def test_the_pager_of_the_answer_keeps_nothing() -> None:
    """`handwash check | less`: less holds the terminal until the person has read, and is in the question's process group."""
    pager = process(5001, name="less", ppid=SHELL, pgid=HANDWASH, **{**HERE, **HOLDS})
    seen = at("session", process(5000, **HERE), pager)
    assert one(seen, 5000)[1] == "ends-with-job"
    assert 5001 not in [judged.process.pid for judged in judge.judge(seen, UID, NOW).judged]
    editor = replace(pager, pgid=5001)
    assert one(replace(seen, processes=(*seen.processes[:-1], editor)), 5000)[1] == "survives"


ON_TWO = job(JOB, nodes=("n1", "n2"), interactive=False)
PBS = Site("session", holders=("qsub",), waits_for_terminal=True, marks_all=False)


@pytest.mark.parametrize(
    ("jobs", "site", "what", "leftover"),
    [
        # `mpirun` on n2 has started it here, on n1, by ssh.
        ((ON_TWO,), PBS, {}, False),
        (Unknown("w"), PBS, {}, False),
        # PBS may have its nodes by their long names.
        ((replace(ON_TWO, nodes=("n1.cluster.example", "n2.cluster.example")),), PBS, {}, False),
        # Nobody starts ranks by ssh for these.
        ((replace(ON_TWO, nodes=("n1",)),), PBS, {}, True),
        ((replace(ON_TWO, nodes=("n2", "n3")),), PBS, {}, True),
        ((), PBS, {}, True),
        # What this shell has started, or what was a job's that is over, is no such thing.
        ((ON_TWO,), PBS, {"ppid": SHELL}, True),
        ((ON_TWO,), PBS, {"sid": SID}, True),
        ((ON_TWO,), PBS, {"job": "7.vm", "attributed_by": "environment"}, True),
        # Slurm's srun starts them itself.
        ((ON_TWO,), replace(PBS, marks_all=True), {}, True),
    ],
)
def test_ranks_that_bear_no_sign_of_their_job(jobs: Any, site: Site, what: dict[str, Any], leftover: bool) -> None:
    """Where it may be a part of a living job it is no leftover; and nobody says clean."""
    found = one(survey(jobs=jobs, site=site, processes=(process(**what),)))
    assert found[2:] == (leftover, "leftover" if leftover else "unknown")
    if not leftover:
        assert found[:2] == ("no-job", "unknown")


def test_a_job_of_another_scheduler() -> None:
    """One that is not asked: whether it is over nobody knows."""
    found = one(survey(processes=(process(attributed_by="other-scheduler"),)))
    assert found == ("no-job", "unknown", False, "unknown")


@pytest.mark.parametrize("name", ["qsub", "qstat", "qdel"])
def test_a_client_is_no_leftover(name: str) -> None:
    """It holds a job that lives elsewhere, whatever the queue says; so do the launchers of a site's own scheduler."""
    client = process(name=name)
    assert one(survey(processes=(client,)))[2] is False
    assert one(survey(processes=(client,), jobs=Unknown("w")))[2] is False
    launcher = process(name="jsub")
    assert one(survey(processes=(launcher,)))[2] is True
    assert one(survey(processes=(launcher,), site=Site(None, holders=("jsub",))))[2] is False


def test_what_no_list_has() -> None:
    """A job that was asked for by its number and is not over: its processes are a living job's, a shell in it outlives none."""
    seen = survey(processes=(process(**{**IN, "job": "29[4].vm"}),))
    assert one(seen) == ("ended-job", "survives", True, "leftover")
    assert one(replace(seen, unlisted=("29[4].vm",))) == ("living-job", "survives", False, "clean")
    assert replace(seen, unlisted=("29[4].vm",), jobs=Unknown("w")).living is None
    inside = survey(inside=JOB, step=None, jobs=())
    assert remarks.outlived_job(inside) == JOB
    assert remarks.outlived_job(replace(inside, unlisted=(JOB,))) is None


def test_where_it_runs_could_not_be_told() -> None:
    """On a login node it would be nobody's business, in a scheduler's job that could not be asked for it would be work."""
    seen = survey(node=Unknown("w"), processes=(process(), WINDOW, process(5001, **AT_WINDOW)))
    assert one(seen) == ("no-job", "survives", False, "unknown")
    # A session's that is over, or an ended job's, is left over wherever it is.
    assert one(survey(node=Unknown("w"), processes=(process(session="s1"),)))[2] is True
    assert one(survey(node=Unknown("w"), processes=(process(**IN),)))[2] is True


def test_attended_jobs() -> None:
    """A qsub of the person's on the host where a job was submitted; the server does not tell in which session."""
    row = job(JOB, alloc_host="login1.cluster.example")
    waits = process(name="qsub", sid=7000, terminal=34816)
    site = Site("session", holders=("qsub",))
    for seen, found in (
        (survey("login", jobs=(row,), site=site), 1),
        (survey("login", jobs=(row,), site=site, processes=(waits,)), 0),
        (survey("login", jobs=(row,), site=site, processes=(replace(waits, name="srun"),)), 1),
        (survey("login", jobs=(row,), site=site, processes=(replace(waits, state="Z"),)), 1),
        # The one that qsub leaves behind for two minutes.
        (survey("login", jobs=(row,), site=site, processes=(replace(waits, terminal=0),)), 1),
        (survey("login", jobs=(replace(row, alloc_host="login2"),), site=site, processes=(waits,)), 1),
        (survey("login", jobs=(replace(row, alloc_sid=6999),), site=site, processes=(waits,)), 1),
        (survey("login", jobs=(replace(row, interactive=False),), site=site), 0),
    ):
        assert len(remarks.unattended_jobs(seen, "login1")) == found


def test_other_nodes_by_long_names() -> None:
    """PBS may name a host with its domain: that is still this one."""
    names = ("n1.cluster.example", "n2.cluster.example")
    assert remarks.other_nodes(at("session", jobs=(job(JOB, nodes=names),))) == names[1:]


def test_who_waits_for_a_job_is_not_known() -> None:
    """Then it cannot be seen that nobody does."""
    row = job(JOB, alloc_host="login1")
    assert remarks.unattended_jobs(survey("login", jobs=(row,), site=Site()), "login1") == ()


def test_a_plus_in_a_job_s_name() -> None:
    """Slurm's heterogeneous jobs have one, with numbers around it; to another scheduler it may be a letter like others."""
    rows = (job("a+b", alloc_host="x"), job("a+c", alloc_host="x"))
    found = remarks.unattended_jobs(survey("login", jobs=rows, site=Site(holders=("jsub",))), "login1")
    assert [(one.id, one.number) for one in found] == [("a+b", "a+b"), ("a+c", "a+c")]
