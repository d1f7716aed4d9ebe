"""The judge, situation by situation: whose work a process is, what becomes of it, and whether it counts as left over."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from handwash import judge, remarks, world
from handwash import survey as survey_package
from handwash.commands import clean, leave
from handwash.config import Config
from handwash.frozen import replace
from handwash.model import Gpu, Job, Node, Process, Site, Survey, Unknown

UID, OTHER = 1000, 1001
NOW = 1_700_000_000.0
# The chain that asks, innermost first: handwash, its shell, what that runs in.
HANDWASH, SHELL, TOP = 900, 800, 700
SID, TTY = 800, 34817


def process(pid: int = 5000, **changes: Any) -> Process:
    """A process of the person's that has nothing to do with anything."""
    plain: dict[str, Any] = {
        "ppid": 1,
        "start_ticks": pid,
        "started": NOW - 3600,
        "uid": UID,
        "user": "alice",
        "command": "python train.py",
        "name": "train.py",
        "state": "S",
        "cpu_s": 1.0,
        "rss": 1 << 20,
        "terminal": 0,
        "sid": pid,
        "pgid": pid,
    }
    return Process(pid=pid, **{**plain, **changes})


def job(number: str = "42", **changes: Any) -> Job:
    plain: dict[str, Any] = {
        "id": number,
        "state": "RUNNING",
        "name": "x",
        "partition": "main",
        "nodes": ("n1",),
        "gpus": 1,
        "elapsed_s": 60,
        "limit_s": None,
        "interactive": True,
    }
    return Job(number=number, **{**plain, **changes})


def survey(kind: str = "compute", inside: str | None = None, step: str | None = "0", **changes: Any) -> Survey:
    """What a shell sees on a node of this kind, inside this job and step; SHELL is a person's, on a terminal."""
    own = {"job": inside, "step": step if inside else None, "attributed_by": "environment"}
    chain = (
        process(TOP, name="bash", terminal=TTY, sid=TOP, pgid=TOP, **own),
        process(SHELL, name="bash", ppid=TOP, terminal=TTY, sid=SID, pgid=SHELL, **own),
        process(HANDWASH, name="handwash", ppid=SHELL, terminal=TTY, sid=SID, pgid=HANDWASH, **own),
    )
    others = changes.pop("processes", ())
    plain: dict[str, Any] = {
        "node": Node(kind, "n1", inside, False, ()),
        "jobs": (job(inside),) if inside else (),
        "gpus": (),
        "processes": others if isinstance(others, Unknown) else (*chain, *others),
        "site": Site("linuxproc", ("srun", "salloc")),
        "chain": (HANDWASH, SHELL, TOP),
    }
    return Survey(**{**plain, **changes})


def one(seen: Survey, pid: int = 5000, uid: int = UID):
    """(whose, fate, left over, the verdict) of one process in a survey."""
    verdict = judge.judge(seen, uid, NOW)
    (found,) = [judged for judged in verdict.judged if judged.process.pid == pid]
    return found.whose, found.fate, found.leftover, verdict.verdict


def on(tracking: str | None) -> dict[str, Any]:
    return {"site": Site(tracking, ("srun", "salloc"))}


COMPUTES = {"computes": True, "devices": ("/dev/nvidia0", "/dev/nvidia-uvm"), "gpus": (0,)}
MONITORS = {"devices": ("/dev/nvidia0", "/dev/nvidiactl"), "gpus": (0,)}
HEAVY = {"cpu_s": 3000.0}
IN_42 = {"job": "42", "step": "0", "attributed_by": "environment"}
IN_43 = {"job": "43", "step": "0", "attributed_by": "cgroup"}
# A shell in another window: leader of its own session, on a terminal of its own.
WINDOW = process(6000, name="bash", terminal=TTY + 1, sid=6000, pgid=6000)
AT_WINDOW = {"terminal": TTY + 1, "sid": 6000}
TWO_JOBS = {"jobs": (job("42"), job("43"))}
CHILD = {"ppid": SHELL}
S1, S2 = {"session": "s1"}, {"session": "s2"}

EDITOR = process(6100, name="node", command="/home/a/.vscode-server/bin/x/node server")

# name: (the process, the survey it is seen in, whose, fate, left over, verdict)
SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str, bool, str]] = {
    # Inside a job, on its node
    "own job, linuxproc": (IN_42, {"inside": "42"}, "session", "survives", True, "leftover"),
    "own job, cgroup": (IN_42, {"inside": "42", **on("cgroup")}, "session", "ends-with-job", True, "leftover"),
    "own job, pgid, elsewhere": (IN_42, {"inside": "42", **on("pgid")}, "session", "survives", True, "leftover"),
    "own job, pgid, group of the task": (
        {**IN_42, "pgid": TOP}, {"inside": "42", **on("pgid")}, "session", "ends-with-job", True, "leftover"),
    "own job, tracking unknown": (IN_42, {"inside": "42", **on(None)}, "session", "unknown", True, "leftover"),
    "own job, a child of the shell": ({**IN_42, **CHILD}, {"inside": "42"}, "session", "survives", True, "leftover"),
    "own job, a child in another step's clothes": (
        {"job": "42", "step": "7", **CHILD}, {"inside": "42"}, "session", "survives", True, "leftover"),
    "own job, another step": ({**IN_42, "step": "1"}, {"inside": "42"}, "living-job", "survives", False, "clean"),
    "own job, batch script, asked from an overlapping step": (
        {"job": "42", "step": None}, {"inside": "42", "step": "0", "jobs": (job("42", interactive=False),)},
        "living-job", "survives", False, "clean"),
    "own job, batch step by cgroup, asked from an overlapping step": (
        {"job": "42", "step": "batch"}, {"inside": "42", "step": "0", **on("cgroup")},
        "living-job", "survives", False, "clean"),
    "own job, adopted ssh, a step's process": (
        IN_42, {"inside": "42", "step": "extern"}, "living-job", "survives", False, "clean"),
    "own job, a zombie": ({**IN_42, "state": "Z"}, {"inside": "42"}, "session", "ends-with-job", False, "clean"),
    "own job, on the shell's terminal": (
        {**IN_42, "terminal": TTY, "sid": SID}, {"inside": "42"}, "session", "survives", True, "leftover"),
    "own job, queue unknown": (
        IN_42, {"inside": "42", "jobs": Unknown("w")}, "session", "survives", True, "leftover"),
    "own job, tmux": (
        {**IN_42, "name": "tmux: server"}, {"inside": "42"}, "service", "survives", False, "clean"),
    "own job, tmux, cgroup": (
        {**IN_42, "name": "tmux: server"}, {"inside": "42", **on("cgroup")}, "service", "ends-with-job", False, "clean"),
    "own job, srun": ({**IN_42, "name": "srun"}, {"inside": "42"}, "no-job", "survives", False, "clean"),
    "own job, yhrun": ({**IN_42, "name": "yhrun"}, {"inside": "42"}, "no-job", "survives", False, "clean"),
    "own job, yhq": ({**IN_42, "name": "yhq"}, {"inside": "42"}, "no-job", "survives", False, "clean"),
    "own job, a session that runs": (
        {**IN_42, **S1}, {"inside": "42", "session": "s1", "running_sessions": ("s1",)},
        "session", "ends-with-job", True, "leftover"),
    "own job, a session that is over": (
        {**IN_42, **S1}, {"inside": "42", "session": "s1"}, "session", "survives", True, "leftover"),
    "own job, another session": (
        {**IN_42, **S2}, {"inside": "42", "session": "s1", "running_sessions": ("s1", "s2")},
        "living-job", "survives", False, "clean"),
    # Another job of the same person on the same node: never left over
    "another living job": (IN_43, {"inside": "42", **TWO_JOBS}, "living-job", "survives", False, "clean"),
    "another living job, on a GPU": (
        {**IN_43, **COMPUTES}, {"inside": "42", **TWO_JOBS}, "living-job", "survives", False, "clean"),
    "another living job, heavy, on a login node": (
        {**IN_43, **HEAVY}, {"kind": "login", "jobs": (job("43"),)}, "living-job", "survives", False, "clean"),
    "another job, suspended": (
        IN_43, {"jobs": (job("43", state="SUSPENDED"),)}, "living-job", "survives", False, "clean"),
    "another job, completing": (
        IN_43, {"jobs": (job("43", state="COMPLETING"),)}, "living-job", "survives", False, "clean"),
    "another job, by ancestry alone": (
        {"job": "43", "attributed_by": "ancestry"}, {"inside": "42", **TWO_JOBS},
        "living-job", "survives", False, "clean"),
    "another job, queue unknown": (
        IN_43, {"inside": "42", "jobs": Unknown("w")}, "living-job", "unknown", False, "unknown"),
    "array task by its own number": (
        {"job": "44"}, {"jobs": (job("44", id="40_4"),)}, "living-job", "survives", False, "clean"),
    # A job that is over
    "ended job": (IN_43, {}, "ended-job", "survives", True, "leftover"),
    "ended job, seen from inside another": (IN_43, {"inside": "42"}, "ended-job", "survives", True, "leftover"),
    "ended job, on a login node": (IN_43, {"kind": "login"}, "ended-job", "survives", True, "leftover"),
    "ended job, in a window that somebody sits at": (
        {**IN_43, **AT_WINDOW}, {"processes": (WINDOW,)}, "ended-job", "survives", False, "clean"),
    "ended job, its window is gone": ({**IN_43, **AT_WINDOW}, {}, "ended-job", "survives", True, "leftover"),
    "ended job, tmux with a stale variable": (
        {**IN_43, "name": "tmux: server"}, {}, "service", "survives", False, "clean"),
    "ended job, GPUs unknown": (IN_43, {"gpus": Unknown("w")}, "ended-job", "survives", True, "leftover"),
    "ended job, a zombie": ({**IN_43, "state": "Z"}, {}, "no-job", "ends-with-job", False, "clean"),
    # A compute node without a job
    "no job": ({}, {}, "no-job", "survives", True, "leftover"),
    "no job, in a window": (AT_WINDOW, {"processes": (WINDOW,)}, "no-job", "survives", False, "clean"),
    "no job, the window itself": ({"name": "bash", "terminal": 9, "sid": 5000}, {}, "no-job", "survives", False, "clean"),
    "no job, on the asking terminal": ({"terminal": TTY, "sid": SID}, {}, "no-job", "survives", True, "leftover"),
    "no job, the other ssh connection": ({"name": "sshd"}, {}, "service", "survives", False, "clean"),
    "no job, vscode": (
        {"name": "node", "command": "/home/a/.vscode-server/bin/x/node server"}, {},
        "service", "survives", False, "clean"),
    "no job, jupyter": ({"name": "jupyter-lab"}, {}, "service", "survives", False, "clean"),
    "no job, a notebook's kernel": (
        {"name": "ipykernel_launcher", **COMPUTES}, {}, "no-job", "survives", True, "leftover"),
    "no job, screen": ({"name": "SCREEN"}, {}, "service", "survives", False, "clean"),
    "no job, MPS": ({"name": "nvidia-cuda-mps-server", **COMPUTES}, {}, "service", "survives", False, "clean"),
    "no job, a session that runs": (
        S2, {"running_sessions": ("s2",)}, "living-job", "survives", False, "clean"),
    "no job, a session that is over": (S2, {}, "no-job", "survives", True, "leftover"),
    "no job, node unknown": ({}, {"node": Unknown("w")}, "no-job", "survives", False, "unknown"),
    # A login node
    "login, idle": ({}, {"kind": "login"}, "login-work", "survives", False, "clean"),
    "login, heavy": (HEAVY, {"kind": "login"}, "login-work", "survives", True, "leftover"),
    "login, heavy in a window": (
        {**HEAVY, **AT_WINDOW}, {"kind": "login", "processes": (WINDOW,)}, "login-work", "survives", False, "clean"),
    "login, long ago heavy": (
        {"cpu_s": 3000.0, "started": NOW - 864000}, {"kind": "login"}, "login-work", "survives", False, "clean"),
    "login, on a GPU": (COMPUTES, {"kind": "login"}, "login-work", "survives", True, "leftover"),
    "login, a monitor": ({**MONITORS, "name": "nvitop"}, {"kind": "login"}, "login-work", "survives", False, "clean"),
    "login, tmux, heavy": (
        {**HEAVY, "name": "tmux: server"}, {"kind": "login"}, "service", "survives", False, "clean"),
    "login, srun of a job": (
        {"name": "srun", "job": "43"}, {"kind": "login"}, "login-work", "survives", False, "clean"),
    "login, much memory": ({"rss": 9 << 30}, {"kind": "login"}, "login-work", "survives", True, "leftover"),
    "login, many threads": ({"threads": 300}, {"kind": "login"}, "login-work", "survives", True, "leftover"),
    "login, many threads in a window": (
        {"threads": 300, **AT_WINDOW}, {"kind": "login", "processes": (WINDOW,)},
        "login-work", "survives", False, "clean"),
    "compute, many threads, another living job": (
        {"threads": 300, **IN_43}, {"inside": "42", **TWO_JOBS}, "living-job", "survives", False, "clean"),
    # Below an editor's server
    "login, clangd below vscode": (
        {**HEAVY, "name": "clangd", "ppid": 6100}, {"kind": "login", "processes": (EDITOR,)},
        "service", "survives", False, "clean"),
    "login, its grandchild": (
        {**HEAVY, "ppid": 6101}, {"kind": "login", "processes": (EDITOR, process(6101, ppid=6100, name="sh"))},
        "service", "survives", False, "clean"),
    "no job, clangd below vscode": (
        {"name": "clangd", "ppid": 6100}, {"processes": (EDITOR,)}, "service", "survives", False, "clean"),
    "login, in the editor's terminal": (
        {**HEAVY, "ppid": 6101, "terminal": 9, "sid": 6101},
        {"kind": "login", "processes": (EDITOR, process(6101, ppid=6100, terminal=9, sid=6101, state="Z"))},
        "login-work", "survives", True, "leftover"),
    "login, let go in the editor's terminal": (
        {**HEAVY, "ppid": 6101},
        {"kind": "login", "processes": (EDITOR, process(6101, ppid=6100, terminal=9, sid=6101))},
        "login-work", "survives", True, "leftover"),
    "no job, a kernel below vscode": (
        {"name": "ipykernel_launcher", "ppid": 6100}, {"processes": (EDITOR,)}, "no-job", "survives", True, "leftover"),
    "login, on a GPU below vscode": (
        {**COMPUTES, "ppid": 6100}, {"kind": "login", "processes": (EDITOR,)},
        "login-work", "survives", True, "leftover"),
    "login, below tmux, heavy": (
        {**HEAVY, "ppid": 6200}, {"kind": "login", "processes": (process(6200, name="tmux: server"),)},
        "login-work", "survives", True, "leftover"),
    # Steps of this job, as asked for with --all-nodes
    "own job, a step that has ended": (
        {**IN_42, "step": "3"}, {"inside": "42", "living_steps": ("0", "batch")},
        "session", "survives", True, "leftover"),
    "own job, a step that runs": (
        {**IN_42, "step": "3"}, {"inside": "42", "living_steps": ("0", "3")}, "living-job", "survives", False, "clean"),
    "own job, the batch step": (
        {**IN_42, "step": "batch"}, {"inside": "42", "living_steps": ("0",)}, "living-job", "survives", False, "clean"),
    "own job, the batch step by its number": (
        {**IN_42, "step": "4294967291"}, {"inside": "42", "living_steps": ("0",)},
        "living-job", "survives", False, "clean"),
    "own job, a step with digits of another kind": (
        {**IN_42, "step": "²"}, {"inside": "42", "living_steps": ("0",)}, "living-job", "survives", False, "clean"),
    "own job, a step with thousands of digits": (
        {**IN_42, "step": "1" * 5000}, {"inside": "42", "living_steps": ("0",)}, "living-job", "survives", False, "clean"),
    "another job's step": (
        {**IN_43, "step": "3"}, {"inside": "42", "living_steps": ("0",), **TWO_JOBS},
        "living-job", "survives", False, "clean"),
    # The shell that salloc gives
    "allocation shell, idle child": (
        {**CHILD, "job": "42"}, {"kind": "allocation-shell", "inside": "42", "step": None},
        "session", "survives", False, "clean"),
    "allocation shell, heavy child": (
        {**CHILD, **HEAVY, "job": "42"}, {"kind": "allocation-shell", "inside": "42", "step": None},
        "session", "survives", True, "leftover"),
    # What bears the variables of an allocation, and never ran inside the job
    "ended allocation, idle on the login node": (
        {"job": "43", "attributed_by": "allocation"}, {"kind": "login"}, "login-work", "survives", False, "clean"),
    "ended allocation, heavy on the login node": (
        {"job": "43", "attributed_by": "allocation", **HEAVY}, {"kind": "login"},
        "login-work", "survives", True, "leftover"),
    "ended allocation, on a compute node": (
        {"job": "43", "attributed_by": "allocation"}, {}, "no-job", "survives", True, "leftover"),
    "living allocation, seen from another shell": (
        {"job": "43", "attributed_by": "allocation", **HEAVY}, {"kind": "login", "jobs": (job("43"),)},
        "living-job", "survives", False, "clean"),
    # A workstation
    "workstation, anything": (HEAVY, {"kind": "workstation"}, "no-job", "survives", False, "clean"),
    "workstation, on a GPU": (COMPUTES, {"kind": "workstation"}, "no-job", "survives", True, "leftover"),
    "workstation, on a GPU in a window": (
        {**COMPUTES, **AT_WINDOW}, {"kind": "workstation", "processes": (WINDOW,)}, "no-job", "survives", False, "clean"),
    # Other people
    "another user": ({"uid": OTHER, "user": "bob", **COMPUTES}, {}, "other-user", "survives", False, "clean"),
    "another user with the same job's number": (
        {"uid": OTHER, "user": "bob", **IN_42}, {"inside": "42"}, "other-user", "survives", False, "clean"),
    "the system": ({"uid": 0, "user": "root"}, {}, "other-user", "survives", False, "clean"),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    """Whose, fate, left over, verdict."""
    what, where, *expected = SITUATIONS[name]
    others = where.get("processes", ())
    assert list(one(survey(**{**where, "processes": (process(**what), *others)}))) == expected


def test_there_are_enough_situations() -> None:
    """Somebody who takes situations out has to say so here."""
    assert len(SITUATIONS) >= 60


@pytest.mark.parametrize("kind", ["login", "compute", "workstation", "allocation-shell"])
@pytest.mark.parametrize("inside", [None, "42"])
def test_who_asks_is_never_in_the_list(kind: str, inside: str | None) -> None:
    """Neither handwash nor a shell above it, wherever that is."""
    seen = survey(kind, inside)
    assert judge.judge(seen, UID, NOW).judged == ()
    assert judge.judge(seen, UID, NOW).verdict == "clean"


def test_the_other_end_of_the_pipe_is_not_in_the_list() -> None:
    """`handwash check | less`: with job control the two share a process group in which no shell is."""
    pager = process(5000, name="less", ppid=SHELL, pgid=HANDWASH, terminal=TTY, sid=SID, **IN_42)
    assert judge.judge(survey(inside="42", processes=(pager,)), UID, NOW).judged == ()


def test_without_job_control_the_group_says_nothing() -> None:
    """In a script everything is in the script's group: what it left in the background is not taken for a pager."""
    seen = survey(inside="42", processes=(process(5000, pgid=SHELL, **IN_42),))
    assert not isinstance(seen.processes, Unknown)
    same = tuple(replace(p, pgid=SHELL) if p.pid == HANDWASH else p for p in seen.processes)
    assert one(replace(seen, processes=same))[2]


def test_process_one_is_nobodys_leftover() -> None:
    """In a container the person's first shell is process 1: it can neither be asked nor ended."""
    assert judge.judge(survey(processes=(process(1, name="bash"),)), UID, NOW).judged == ()


@pytest.mark.parametrize(
    ("what", "left"),
    [
        ({}, False),
        ({"job": "77", "name": "epilog.sh", "attributed_by": "environment"}, False),
        ({"job": "77", "name": "slurmstepd", "attributed_by": "cgroup"}, False),
        ({"name": "nv-hostengine", **COMPUTES}, False),
        ({"name": "nvidia-smi", **MONITORS}, False),
        ({"name": "train.py", **COMPUTES}, True),
    ],
)
def test_root_asks(what: dict[str, Any], left: bool) -> None:
    """Root's queue does not hold other people's jobs: what the system runs for them is not a leftover of root's."""
    seen = survey(processes=(process(uid=0, user="root", **what),))
    assert one(seen, uid=0)[2] is left


def test_root_does_not_judge_others() -> None:
    """Asked by root, other people's processes are other people's."""
    assert one(survey(processes=(process(**COMPUTES),)), uid=0)[:3] == ("other-user", "survives", False)


@pytest.mark.parametrize("look", ["node", "jobs", "gpus", "processes"])
def test_unknown_is_never_clean(look: str) -> None:
    """One look without an answer, and nothing found: unknown, with the reason."""
    verdict = judge.judge(survey(**{look: Unknown("the reason")}), UID, NOW)
    assert verdict.verdict == "unknown"
    assert [sentence for sentence in verdict.unknown if "the reason" in sentence] == list(verdict.unknown)


def test_found_beats_unknown() -> None:
    """Where something was found and something else could not be told, it was found."""
    verdict = judge.judge(survey(processes=(process(),), gpus=Unknown("w")), UID, NOW)
    assert verdict.verdict == "leftover" and len(verdict.unknown) == 1


def test_a_loop_of_parents_ends() -> None:
    """Pids read at different moments can name each other as parents."""
    a, b = process(5000, ppid=5001, **IN_42), process(5001, ppid=5000, **IN_42)
    assert one(survey(inside="42", step="3", processes=(a, b)))[0] == "living-job"


@pytest.mark.parametrize(
    ("rows", "inside", "expected"),
    [
        ((job("42"),), None, ["42"]),
        ((job("42"),), "42", []),
        ((job("42", interactive=False),), None, []),
        ((job("42", gpus=0),), None, []),
        ((job("42", gpus=None),), None, []),
        ((job("42", state="PENDING"),), None, []),
        ((job("42", interactive=None),), None, []),
        (Unknown("w"), None, []),
    ],
)
def test_allocations_that_nobody_may_sit_in(rows: Any, inside: str | None, expected: list[str]) -> None:
    """Running, interactive, with GPUs, and not the one that asks."""
    assert [found.id for found in remarks.unattended_jobs(survey("login", inside, jobs=rows))] == expected


def test_one_that_hangs_so_that_nothing_of_it_can_be_read() -> None:
    """It can be a living job's: never left over, and never called clean. What a record or a control group says counts."""
    hangs = process(name="python", command="[python]", state="D", unread=True, computes=True)
    assert one(survey(processes=(hangs,))) == ("no-job", "unknown", False, "unknown")
    assert one(survey("login", processes=(hangs,))) == ("no-job", "unknown", False, "unknown")
    ended = replace(hangs, job="41", attributed_by="cgroup")
    assert one(survey(processes=(ended,))) == ("ended-job", "survives", True, "leftover")
    theirs = replace(hangs, uid=OTHER)
    assert one(survey(processes=(theirs,)))[3] == "clean"


def test_a_wedged_gpu_is_not_called_clean() -> None:
    """Nobody is on it, and yet it is busy; what is left over goes before what could not be told."""
    wedged = survey(gpus=(gpu(0), gpu(1, trouble=("wedged",))))
    verdict = judge.judge(wedged, UID, NOW)
    assert verdict.verdict == "unknown" and "GPU 1" in verdict.unknown[0]
    assert judge.judge(survey(gpus=(gpu(0),)), UID, NOW).verdict == "clean"


def gpu(index: int, **changes: Any) -> Gpu:
    plain: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "name": "A100",
        "memory_used": 0,
        "memory_total": 40 << 30,
        "utilisation": 0.0,
        "shared": False,
    }
    return Gpu(index=index, **{**plain, **changes})


def test_an_ended_allocations_variables_on_the_login_node_make_no_leftover() -> None:
    """A tmux that was started in a salloc shell keeps them; what ran inside a job of that number is told apart."""
    seen = {"kind": "login", "processes": (process(job="41", attributed_by="allocation"),)}
    assert one(survey(**seen)) == ("login-work", "survives", False, "clean")
    inside = {**seen, "processes": (process(job="41", attributed_by="environment"),)}
    assert one(survey(**inside)) == ("ended-job", "survives", True, "leftover")


KERNELS = {
    "session": ({**CHILD, "job": "42"}, {"inside": "42"}),
    "ended-job": (IN_43, {}),
    "no-job": ({}, {}),
    "login-work": (HEAVY, {"kind": "login"}),
}


@pytest.mark.parametrize("whose", KERNELS)
def test_a_notebooks_kernel_is_named_wherever_it_is_left_over(whose: str) -> None:
    changes, world = KERNELS[whose]
    for name, named in (("ipykernel_launcher", True), ("train.py", False)):
        seen = survey(**{**world, "processes": (process(**{**changes, "name": name}),)})
        (found,) = judge.judge(seen, UID, NOW).judged
        assert (found.whose, found.leftover) == (whose, True)
        assert found.why.startswith("A notebook's kernel. ") is named and len(found.why) > 25


def test_a_zombies_parent_is_named() -> None:
    parent = process(6000, name="agent.py")
    seen = survey(processes=(parent, process(5000, ppid=6000, state="Z")))
    (zombie,) = [found for found in judge.judge(seen, UID, NOW).judged if found.process.pid == 5000]
    assert "6000 (agent.py)" in zombie.why and "no GPU" in zombie.why


@pytest.mark.parametrize(
    ("rows", "inside", "by", "expected"),
    [
        ((), "42", "cgroup", "42"),
        ((), "42", "environment", "42"),
        ((), "42", "allocation", None),
        ((job("42"),), "42", "cgroup", None),
    ],
)
def test_a_shell_that_outlives_its_job(rows: Any, inside: str, by: str, expected: str | None) -> None:
    """An ssh session into a node, say; what salloc gave is no shell of the job, and a living job is no question."""
    seen = survey("compute", inside, jobs=rows)
    assert not isinstance(seen.processes, Unknown)
    chain = tuple(replace(one, attributed_by=by) for one in seen.processes)
    assert remarks.outlived_job(replace(seen, processes=chain)) == expected
    assert remarks.outlived_job(replace(seen, processes=chain, jobs=Unknown("w"))) is None


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ((), ["42"]),
        ((process(name="srun", sid=77),), []),
        ((process(name="yhrun", sid=77),), []),
        ((process(name="yhalloc", sid=77),), []),
        ((process(name="salloc", sid=77),), []),
        ((process(name="bash", sid=77),), ["42"]),
        ((process(name="srun", sid=78),), ["42"]),
        ((process(name="srun", sid=77, state="Z"),), ["42"]),
        ((process(job="42", attributed_by="allocation"),), []),
    ],
)
def test_a_job_that_somebody_sits_in(others: Any, expected: list[str]) -> None:
    """Its srun or salloc runs here in the session that made it, or its shell is there; from elsewhere none can be seen."""
    row = job("42", alloc_host="login1.site", alloc_sid=77)
    seen = survey("login", jobs=(row,), processes=others)
    assert [found.id for found in remarks.unattended_jobs(seen, "login1")] == expected
    elsewhere = [found.id for found in remarks.unattended_jobs(seen, "login2")]
    assert elsewhere == ([] if any(one.attributed_by == "allocation" for one in others) else ["42"])


HET = (
    job("42", id="42+0", gpus=1, alloc_host="login1", alloc_sid=77),
    job("43", id="42+1", gpus=2, alloc_host="login1", alloc_sid=77),
    job("44", id="42+2", gpus=None, alloc_host="login1", alloc_sid=77),
)


def test_a_heterogeneous_job_that_nobody_sits_in() -> None:
    """One question for all of it, by the number that ends all of it, with all of its GPUs."""
    for rows in (HET, HET[::-1], HET[1:]):
        (found,) = remarks.unattended_jobs(survey("login", jobs=(*rows, job("99", gpus=0))), "login1")
        assert (found.id, found.number, found.gpus) == ("42", "42", 3 if "42" in [row.number for row in rows] else 2)
        assert set(remarks.numbers_of(survey(jobs=rows), found)) == {row.number for row in rows}
    assert remarks.unattended_jobs(survey("login", jobs=(replace(HET[0], state="PENDING"), HET[2])), "login1") == ()
    alone = job("45", id="40_3")
    (found,) = remarks.unattended_jobs(survey("login", jobs=(alone,)), "login1")
    assert found == alone and remarks.numbers_of(survey(jobs=(alone,)), found) == ("45",)


@pytest.mark.parametrize("inside", ["42", "43", "44"])
def test_no_component_of_this_shell_s_own_job_is_unattended(inside: str) -> None:
    """Whichever of them the shell is in: to cancel any of them is to cancel all."""
    for host in ("login1", "n1"):
        assert remarks.unattended_jobs(survey("compute", inside, jobs=HET), host) == ()


@pytest.mark.parametrize("sits", [{"name": "srun", "sid": 77}, {"job": "42", "attributed_by": "allocation"}])
def test_somebody_sits_in_one_component(sits: dict[str, Any]) -> None:
    """Then in all of them; and the steps of all are looked at."""
    seen = survey("login", jobs=HET, processes=(process(5000, **sits),))
    assert remarks.unattended_jobs(seen, "login1") == ()
    assert remarks.held_from(seen, "login1") == HET


def test_the_other_nodes_of_this_job() -> None:
    row = job("42", nodes=("n1", "n2", "n3"))
    assert remarks.other_nodes(survey("compute", "42", jobs=(row, job("43", nodes=("n9",))))) == ("n2", "n3")
    assert remarks.other_nodes(survey("allocation-shell", "42", jobs=(row,))) == ("n1", "n2", "n3")
    assert remarks.other_nodes(survey("login", jobs=(row,))) == ()


def test_the_components_of_a_heterogeneous_job() -> None:
    """Their nodes are this job's too, whichever component this shell is in, each once; a job beside it is none of them."""
    rows = (
        job("42", id="42+0", nodes=("n1", "n2")),
        job("43", id="42+1", nodes=("n2", "n3")),
        job("44", id="44", nodes=("n9",)),
        job("420", id="420+0", nodes=("n8",)),
    )
    assert remarks.other_nodes(survey("compute", "42", jobs=rows)) == ("n2", "n3")
    assert remarks.other_nodes(survey("compute", "43", jobs=rows)) == ("n2", "n3")
    assert remarks.other_nodes(survey("allocation-shell", "42", jobs=rows)) == ("n1", "n2", "n3")
    assert remarks.other_nodes(survey("compute", "44", jobs=rows)) == ("n9",)


def test_the_batch_jobs_that_run() -> None:
    """Each by the number that ends all of it; not this shell's own, not what waits or is interactive."""
    rows = (
        job("42", interactive=False),
        job("50", id="50_3", interactive=False),
        job("60", id="60+0", interactive=False),
        job("61", id="60+1", interactive=False),
        job("70", interactive=False, state="PENDING"),
        job("80"),
        job("90", interactive=None),
    )
    assert remarks.batch_jobs(survey("compute", "42", jobs=rows)) == ("50_3", "60")
    assert remarks.batch_jobs(survey("login", jobs=rows)) == ("42", "50_3", "60")
    assert remarks.batch_jobs(survey("login", jobs=Unknown("why"))) == ()


# Who keeps the job

PBS = Site("session", ("qsub",), waits_for_terminal=True)
HOLDS = {"on_terminal": True, "terminal": TTY, "sid": SID, "job": "42", "attributed_by": "environment"}


@pytest.mark.parametrize(
    ("changes", "seen", "keeps"),
    [
        (HOLDS, {"inside": "42", "site": PBS}, True),
        # In a session of its own it can hold the terminal all the same, and so can what has lost its environment.
        ({"on_terminal": True}, {"inside": "42", "site": PBS}, True),
        ({**HOLDS, "name": "tmux"}, {"inside": "42", "site": PBS}, True),
        ({**HOLDS, "on_terminal": False}, {"inside": "42", "site": PBS}, False),
        ({**HOLDS, "state": "Z"}, {"inside": "42", "site": PBS}, False),
        ({**HOLDS, "uid": OTHER}, {"inside": "42", "site": PBS}, False),
        # The pager of `handwash check | less`.
        ({**HOLDS, "pgid": HANDWASH}, {"inside": "42", "site": PBS}, False),
        (HOLDS, {"site": PBS}, False),
        (HOLDS, {"inside": "42"}, False),
        (HOLDS, {"inside": "42", "site": PBS, "node": Unknown("w")}, False),
    ],
)
def test_who_keeps_the_job(changes: dict[str, Any], seen: dict[str, Any], keeps: bool) -> None:
    """Whoever holds the terminal of a job that waits for it; what else is in the job goes on with it then."""
    other = process(5001, job="42", attributed_by="environment", sid=SID)
    found = survey(**{"step": None, **seen, "processes": (process(**changes), other)})
    assert [keeper.pid for keeper in judge.keeping(found, UID)] == ([5000] if keeps else [])
    if seen.get("site") is PBS and seen.get("inside") and "node" not in seen:
        assert one(found, 5001)[1] == ("survives" if keeps else "ends-with-job")


def test_what_is_cleaned_up_keeps_no_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With `on_exit` at clean only what stays is named: a service is no leftover, and holds the terminal all the same."""
    there = (process(**HOLDS), process(5001, **{**HOLDS, "name": "tmux"}))
    seen = survey(inside="42", site=PBS, step=None, processes=there)
    ended: list[int] = []
    monkeypatch.setattr(leave, "_outermost", lambda: True)
    monkeypatch.setattr(signal, "signal", lambda *_words: None)
    monkeypatch.setattr(survey_package, "take", lambda _deadline: seen)
    monkeypatch.setattr(world, "uid", lambda: UID)
    monkeypatch.setattr(world, "now", lambda: NOW)
    monkeypatch.setattr(
        clean, "end_all", lambda _settings, _seen, targets, _stream: ended.extend(one.process.pid for one in targets)
    )
    assert leave.leave(Config(on_exit="clean"), "exit", again=False) == 0
    said = capsys.readouterr().err
    assert ended == [5000] and "Process 5001 (tmux) holds this terminal" in said and "5000" not in said, said


def test_what_waits_for_a_job_is_no_leftover() -> None:
    """A client of the scheduler here, as srun is of Slurm; elsewhere a program of that name is anybody's."""
    waits = process(name="jobshell")
    assert one(survey(site=Site(holders=("jobshell",)), processes=(waits,)))[2] is False
    assert one(survey(processes=(waits,)))[2] is True
