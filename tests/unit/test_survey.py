"""The looks at this machine, compared with psutil, and the reading of what they bring home."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import left_behind, patience, run, schedulers, survey, world
from handwash.frozen import replace
from handwash.model import Gpu, GpuUse, Job, Judged, Node, Process, Site, Survey, Unknown, Verdict
from handwash.schedulers import pbs_adapter, slurm, slurm_adapter
from handwash.survey import jobs, node, processes, procfs


def until(condition, seconds=10.0):
    """Polls `condition` until it is true; its value, or a failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def start():
    """Starts programs and ends every one of them afterwards, by its own handle."""
    started = []

    def begin(*argv: str, **options):
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **options)
        started.append(child)
        return child

    yield begin
    for child in started:
        child.kill()
        child.wait()


def look() -> dict[int, dict]:
    """The look at the processes as handwash takes it, from a child of ours: what is below handwash itself is left out."""
    rows = run.looks({"handwash": lambda: run.looks({"p": processes.look}, 20)["p"]}, 20)["handwash"]
    assert not isinstance(rows, Unknown), rows
    return {row["pid"]: row for row in rows}


# Processes


def test_the_same_as_psutil(start) -> None:
    """Every process of ours that lives through the look is as psutil has it."""
    start("sleep", "60")
    before = {p.pid: p for p in psutil.process_iter() if p.pid != os.getpid()}
    rows = look()
    compared = 0
    for pid, row in rows.items():
        reference = before.get(pid)
        try:
            if reference is None or reference.status() == psutil.STATUS_ZOMBIE:
                continue
            with reference.oneshot():
                assert row["ppid"] == reference.ppid()
                assert row["uid"] == reference.uids().real == os.getuid()
                assert row["user"] == reference.username()
                assert abs(row["started"] - reference.create_time()) < 2
                times = reference.cpu_times()
                assert row["cpu_s"] <= times.user + times.system + 0.02
                assert row["sid"] == os.getsid(pid) and row["pgid"] == os.getpgid(pid)
                assert (row["terminal"] != 0) == (reference.terminal() is not None)
            compared += 1
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    assert compared >= 1
    ours = {
        p.pid for p in before.values() if p.is_running() and p.uids().real == os.getuid() and p.ppid() not in (0, 2)
    }
    assert {pid for pid in ours if psutil.pid_exists(pid)} <= {*rows, 2}


def test_memory_and_children(start) -> None:
    """RSS is that of psutil; the parents' pids make the same tree."""
    code = "import os, signal; x = bytearray(50 << 20); os.write(1, b'ready'); signal.alarm(60); signal.pause()"
    child = start(sys.executable, "-c", code, stdout=subprocess.PIPE)
    with child.stdout:
        assert child.stdout.read(5) == b"ready"
    row = look()[child.pid]
    assert row["rss"] > 50 << 20
    assert abs(row["rss"] - psutil.Process(child.pid).memory_info().rss) <= 1 << 20
    assert row["ppid"] == os.getpid() and child.pid in {one.pid for one in psutil.Process().children()}


def test_one_that_hangs_in_the_kernel(start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a process that a driver holds cannot be read, for ever: it is told without, and so are all others."""
    stuck, other, second = start("sleep", "60"), start("sleep", "61"), start("sleep", "62")
    arguments, environment = procfs.arguments, procfs.environment
    forever = lambda pid: pid in (stuck.pid, second.pid) and time.sleep(100)  # noqa: E731
    monkeypatch.setattr(procfs, "arguments", lambda pid: forever(pid) or arguments(pid))
    monkeypatch.setattr(procfs, "environment", lambda pid, names: forever(pid) or environment(pid, names))
    began = time.monotonic()
    rows = look()
    assert time.monotonic() - began < 10
    for child in (stuck, second):
        assert (rows[child.pid]["command"], rows[child.pid]["unread"]) == ("[sleep]", True)
    assert (rows[other.pid]["command"], rows[other.pid]["unread"]) == ("sleep 61", False)


def test_a_slow_answer_is_waited_for() -> None:
    """What hangs is one that brings nothing; many that are slow together are not."""
    slow = lambda item: (time.sleep(0.02), item)[1]  # noqa: E731
    assert patience.each(range(20), slow, lambda item: -1) == list(range(20))
    assert patience.each((), slow, lambda item: -1) == []
    with pytest.raises(ZeroDivisionError):
        patience.each((1, 0), lambda item: 1 // item, lambda item: -1)


def test_the_looks_are_not_in_the_list(start) -> None:
    """Neither the look itself nor those beside it nor the programs that they have started."""
    me = os.getpid()

    def busy() -> int:
        return run.run(["sh", "-c", "sleep 0.5; :"], timeout=20).code or 0

    answers = run.looks({"p": processes.look, "other": busy, "idle": os.getpid}, 20)
    assert not [row for row in answers["p"] if row["ppid"] == me and row["name"] not in ("sleep",)]
    assert not [row for row in answers["p"] if row["command"].startswith("sh -c sleep 0.5")]


@pytest.mark.parametrize("name", ["a) b (c", "new\nline", "x" * 15, ") R 1 1", "名字", "tab\tand\x1b[31m"])
def test_odd_program_names(start, tmp_path: Path, name: str) -> None:
    """A name with brackets, blanks or line ends shifts no field."""
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    child = start(str(program), "60")
    until(lambda: Path(f"/proc/{child.pid}/comm").read_bytes() != Path("/proc/self/comm").read_bytes())
    comm, fields = procfs.stat_fields(child.pid)
    assert comm == Path(f"/proc/{child.pid}/comm").read_bytes()[:-1].decode("utf-8", "replace")
    assert fields[0] in (b"S", b"R", b"D") and int(fields[1]) == os.getpid()
    row = look()[child.pid]
    assert row["ppid"] == os.getpid() and row["command"] == f"{program} 60"


def test_a_huge_command_line_and_environment(start) -> None:
    """Megabytes of arguments neither slow the look down nor crowd the others out."""
    words = ["x" * 100_000] * 10
    child = start("sh", "-c", "exec sleep 60", *words, env={**os.environ, "BIG": "y" * 100_000, "SLURM_JOB_ID": "77"})
    big = start("sh", "-c", "sleep 60; :", *words)
    until(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "sleep\n")
    rows = look()
    assert rows[child.pid]["job"] == "77"
    assert len(rows[big.pid]["command"]) <= 4096
    assert procfs.environment(child.pid, (b"NONE",)) == {}


def test_a_zombie_has_no_command_line(start) -> None:
    """Told apart by its state; its name stands in brackets."""
    child = start("true")
    until(lambda: procfs.stat_fields(child.pid)[1][0] == b"Z")
    row = look()[child.pid]
    assert (row["state"], row["command"], row["name"]) == ("Z", "[true]", "true")


def test_one_that_becomes_another_program_all_the_time(start, tmp_path: Path) -> None:
    """In between it has neither words nor variables: it is in its job all the same."""
    again = tmp_path / "again"
    # With an end of its own, within a minute or two.
    again.write_text(f'#!/bin/sh\n[ "$1" -gt 0 ] && exec "{again}" $(($1 - 1))\n')
    again.chmod(0o755)
    pid = start(str(again), "60000", env={"SLURM_JOB_ID": "42", "PATH": os.defpath}).pid
    assert all(procfs.environment(pid, (b"SLURM_JOB_ID",)) == {"SLURM_JOB_ID": "42"} for _ in range(20000))
    slurm = schedulers.of("slurm")
    rows = [processes.describe(pid, os.getuid(), 0.0, slurm) for _ in range(500)]
    assert {row["job"] for row in rows if row is not None} == {"42"} and None not in rows


@pytest.mark.parametrize(
    ("env", "by"),
    [
        ({"PBS_JOBID": "7.vm", "PBS_ENVIRONMENT": "PBS_BATCH"}, "other-scheduler"),
        ({"PBS_JOBID": "7.vm"}, None),
        ({"PBS_JOBID": "7.vm", "PBS_ENVIRONMENT": "PBS_BATCH", "SLURM_JOB_ID": "42"}, "allocation"),
    ],
)
def test_a_job_of_a_scheduler_that_is_not_asked(start, env: dict[str, str], by: str | None) -> None:
    """A node may belong to two clusters: what the other one started is not in no job."""
    child = start("sleep", "60", env=env)
    row = processes.describe(child.pid, os.getuid(), 0.0, schedulers.of("slurm"))
    assert row is not None and row["attributed_by"] == by


@pytest.mark.parametrize("name", ["tmux: server", "screen", "SCREEN", "bash"])
def test_the_terminal_of_a_job_s_shell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that a pane has."""
    monkeypatch.setattr(procfs, "ancestors", lambda _pid: [(3, "handwash"), (2, "bash"), (1, name)])
    monkeypatch.setattr(procfs, "own_terminal", lambda: ("/dev/pts/7", 34823))
    assert processes._jobs_terminal() == (("/dev/pts/7", 34823) if name == "bash" else None)


def test_one_that_has_no_variables(start) -> None:
    child = start("sleep", "60", env={})
    assert procfs.environment(child.pid, (b"SLURM_JOB_ID",)) == {}
    row = processes.describe(child.pid, os.getuid(), 0.0, schedulers.of("slurm"))
    assert row is not None and row["job"] is None


def test_processes_that_vanish() -> None:
    """Gone between the listing and the reading: None, empty, never an error."""
    child = subprocess.Popen(["true"])
    child.wait()
    gone = child.pid
    assert procfs.stat_fields(gone) is None and procfs.arguments(gone) == [] and procfs.owner(gone) is None
    assert procfs.environment(gone, (b"A",)) == {} and procfs.groups(gone) is None
    assert procfs.ancestors(gone) == [] and processes.describe(gone, os.getuid(), 0.0, schedulers.here()) is None


def test_a_crowd_that_comes_and_goes(start) -> None:
    """While processes start and end all the time every look comes home."""
    start("sh", "-c", "while :; do /bin/true; done")
    for _ in range(5):
        assert os.getpid() in look()


def test_of_another_person_only_what_everybody_sees() -> None:
    """Process 1 asked about as somebody else's: no environment, no open files, no error."""
    row = processes.describe(1, os.getuid() + 1, 0.0, schedulers.here())
    assert row is not None and row["session"] is None and row["devices"] == ()


@pytest.mark.parametrize(
    ("comm", "words", "name"),
    [
        ("python3", ["python3", "train.py", "--secret", "x"], "train.py"),
        ("python3.11", ["/usr/bin/python3.11", "-u", "/a/b/train.py"], "train.py"),
        ("python", ["python", "-m", "torch.distributed.run", "x"], "torch.distributed.run"),
        ("python", ["python", "-c", "import secret"], "python"),
        ("python", ["python", "-m"], "python"),
        ("bash", ["bash", "-lc", "export TOKEN=secret; run"], "bash"),
        ("bash", ["-bash"], "bash"),
        ("bash", ["bash", "/a/run.sh"], "run.sh"),
        ("sleep", ["sleep", "60"], "sleep"),
        ("tmux: server", ["tmux", "new", "-d"], "tmux: server"),
        ("sshd", ["sshd: alice@pts/0"], "sshd"),
        ("sshd-session", ["sshd-session: alice [priv]"], "sshd-session"),
        ("kworker/0:1", [], "kworker/0:1"),
        ("x", [""], "x"),
        ("x", ["/"], "x"),
        ("jupyter-lab", ["/usr/bin/python3", "/usr/bin/jupyter-lab", "--no-browser"], "jupyter-lab"),
        ("(sd-pam)", ["(sd-pam)"], "(sd-pam)"),
    ],
)
def test_what_a_person_calls_it(comm: str, words: list[str], name: str) -> None:
    """The script's name, the program's, never an argument that can carry a secret."""
    assert processes.program_name(comm, words) == name


@given(st.text(max_size=15), st.lists(st.text(max_size=10), max_size=4))
def test_any_command_line_has_a_name(comm: str, words: list[str]) -> None:
    """Whatever is in it."""
    assert processes.program_name(comm, words) or not comm


def rows_of(*rows: tuple[int, int, str | None, str | None]) -> dict[int, dict]:
    return {
        pid: {"pid": pid, "ppid": ppid, "job": job, "session": session, "step": None,
              "attributed_by": "environment" if job or session else None}
        for pid, ppid, job, session in rows
    }  # fmt: skip


def test_ancestry() -> None:
    """What has lost its environment belongs to the nearest ancestor's job; a loop of pids ends."""
    rows = rows_of((10, 1, "42", None), (11, 10, None, None), (12, 11, None, None), (13, 1, None, None),
                   (20, 21, None, None), (21, 20, None, None), (30, 10, "43", None))  # fmt: skip
    processes._by_ancestry(rows)
    assert {pid: row["job"] for pid, row in rows.items()} == {
        10: "42", 11: "42", 12: "42", 13: None, 20: None, 21: None, 30: "43"}  # fmt: skip
    assert rows[12]["attributed_by"] == "ancestry"
    rows = rows_of((10, 1, "42", None), (11, 10, None, None), (12, 11, None, None))
    rows[10]["attributed_by"] = "allocation"
    processes._by_ancestry(rows)
    assert {row["attributed_by"] for row in rows.values()} == {"allocation"}


# Control groups


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", ("42", "0")),
        ("0::/system.slice/n1_slurmstepd.scope/job_42/step_batch/user/task_0\n", ("42", "batch")),
        ("6:freezer:/slurm_n1/uid_1009/job_40022/step_extern\n5:memory:/\n", ("40022", "extern")),
        ("6:freezer:/slurm/uid_0/job_7\n", ("7", None)),
        ("0::/user.slice/user-1000.slice\n", (None, None)),
        ("0::/docker/job_x/step_0\n", (None, None)),
        ("0::/system.slice/slurmstepd.scope/job_s26ABCDEF/step_0\n", (None, None)),
        ("0::/a/job_\n", (None, None)),
        ("", (None, None)),
        ("garbage with /job_1 in it", (None, None)),
        ("0::/a:b/job_42/step_1", ("42", "1")),
    ],
)
def test_the_control_group_of_a_job(text: str, found: tuple) -> None:
    """Both versions, every kind of step; a folder that is no job is none."""
    assert slurm.job_in_groups(text.encode()) == found


@given(st.binary(max_size=200))
def test_any_control_group(data: bytes) -> None:
    """Any bytes give a job of digits, or none."""
    job, _step = slurm.job_in_groups(b"0::/job_" + data)
    assert job is None or job.isdigit()


@given(st.binary(max_size=100), st.binary(max_size=20))
def test_any_stat(name: bytes, _rest: bytes) -> None:
    """Any name in /proc/PID/stat."""
    fields = b" S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procfs, "slurp", lambda _path: b"77 (" + name + b")" + fields)
        found, values = procfs.stat_fields(77)
        assert found == name.decode("utf-8", "replace") and values[:2] == [b"S", b"1"] and values[19] == b"19"


# Where am I

EVIDENCE = {
    "host": "login1",
    "env_job": None,
    "env_node": None,
    "env_gpus": None,
    "cgroup_job": None,
    "cgroup_step": None,
    "ancestors": ["handwash", "bash", "sshd"],
    "container": None,
    "client": True,
    "configured": False,
    "controller": False,
    "slurmd": None,
}
LIVING = (Job("42", "42", "RUNNING", "x", "main", ("n1",), 1, 5, None, True),)
UNKNOWN = Unknown("no answer")


def node_of(evidence: dict, queue) -> Node:
    """What is read out of Slurm's evidence, as `node.look` finds it."""
    return node.read({**{name: evidence[name] for name in ("host", "container")}, "scheduler": evidence}, queue)


@pytest.mark.parametrize(
    ("changes", "queue", "kind", "job"),
    [
        ({}, (), "login", None),
        ({"client": False, "configured": None}, (), "workstation", None),
        ({"client": False, "configured": True}, (), "compute", None),
        ({"configured": True}, (), "compute", None),
        ({"configured": None, "slurmd": "/run/slurmd.pid"}, (), "compute", None),
        # A dynamic node (slurmd -Z) is in no slurm.conf.
        ({"configured": False, "slurmd": "/run/slurmd.pid"}, (), "compute", None),
        ({"configured": None}, (), "login", None),
        ({"cgroup_job": "42"}, LIVING, "compute", "42"),
        ({"cgroup_job": "42", "env_job": "7"}, UNKNOWN, "compute", "42"),
        ({"env_job": "42", "ancestors": ["bash", "slurmstepd"]}, LIVING, "compute", "42"),
        ({"env_job": "42", "env_node": "n1"}, LIVING, "compute", "42"),
        ({"env_job": "42", "env_node": "n1"}, UNKNOWN, "compute", "42"),
        ({"env_job": "42"}, LIVING, "allocation-shell", "42"),
        ({"env_job": "42"}, UNKNOWN, "allocation-shell", "42"),
        # A tmux started inside a job that is over.
        ({"env_job": "41"}, LIVING, "login", None),
        ({"env_job": "41", "env_node": "n1"}, (), "login", None),
        ({"env_job": "41", "env_node": "n1", "configured": True}, (), "compute", None),
        ({"env_job": "42", "client": False, "configured": None}, UNKNOWN, "allocation-shell", "42"),
    ],
)
def test_where(changes: dict, queue, kind: str, job: str | None) -> None:
    """The kind, the job, and at least one piece of evidence."""
    found = node_of({**EVIDENCE, **changes}, queue)
    assert (found.kind, found.job) == (kind, job) and found.why
    stale = changes.get("env_job") == "41"
    assert any("stale" in why for why in found.why) == stale


def test_gpus_that_pbs_has_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's names in what MOM has set, where the cgroup hook sets it: what is not here is none of them."""
    monkeypatch.setattr(schedulers, "here", pbs_adapter.Pbs)
    evidence = {
        "host": "n1", "env_job": "12.vm", "cgroup_job": "12.vm", "ancestors": ["bash", "pbs_mom"], "config": "/etc/pbs.conf",
        "mom": True, "server": False, "container": None, "gpus": "GPU-b,GPU-gone,GPU-c",
    }  # fmt: skip
    gpus = tuple(
        Gpu(index, uuid, "A100", 0, 1, 0.0, False, minor=index + 4)
        for index, uuid in enumerate(["GPU-a", "GPU-b", "GPU-c"])
    )

    def held(**changes: object) -> tuple[int, ...]:
        seen = {**evidence, **changes}
        plain = {name: seen[name] for name in ("host", "container")}
        return node.read({**plain, "scheduler": seen}, (), gpus=gpus).gpus

    assert held() == (5, 6)
    assert held(gpus="") == held(gpus="0,1") == ()
    # Without the hook the variable may have come with qsub -V from wherever the job was submitted.
    assert held(cgroup_job=None) == ()


def test_the_gpus_that_mom_has_set() -> None:
    """In what MOM itself has started, whatever the person's shells say since."""
    with subprocess.Popen(["/bin/sleep", "60"], env={"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}) as first:
        try:
            chain = [(os.getpid(), "handwash"), (first.pid, "bash"), (1, "pbs_mom"), (1, "pbs_mom")]
            until(lambda: procfs.arguments(first.pid)[:1] == ["/bin/sleep"])
            assert pbs_adapter._given_gpus(chain) == "GPU-a,GPU-b"
            assert pbs_adapter._given_gpus(chain[:2]) == pbs_adapter._given_gpus([(first.pid, "tmux")]) == ""
        finally:
            first.kill()


def test_in_a_container() -> None:
    """Beside the kind, not instead of it."""
    found = node_of({**EVIDENCE, "container": "/.dockerenv"}, ())
    assert found.container and found.kind == "login" and "/.dockerenv" in found.why[0]


def test_configuration_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node names through includes, a file that includes itself, and one that is not there."""
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=x\nSlurmctldHost=n0(10.0.0.1)\ninclude nodes.conf\ninclude slurm.conf\ninclude {tmp_path}/none\n"
    )
    (tmp_path / "nodes.conf").write_text(f"NodeName={world.host()},n[1-2]\n")
    monkeypatch.setattr(world, "env", {"SLURM_CONF": str(tmp_path / "slurm.conf")})
    assert slurm_adapter._in_config() == {"configured": True, "controller": False}
    (tmp_path / "nodes.conf").write_text(f"NodeName=n[1-2]\nSlurmctldHost={world.host()}\n")
    assert slurm_adapter._in_config() == {"configured": False, "controller": True}
    monkeypatch.setattr(world, "env", {"SLURM_CONF": str(tmp_path / "none")})
    assert slurm_adapter._in_config() == {"configured": None, "controller": None}


# The queue


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """squeue and scontrol as scripts, alone on the PATH, with a state folder."""

    def make(squeue: str | None = None, scontrol: str | None = None, **env: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in (("squeue", squeue), ("scontrol", scontrol)):
            if text is not None:
                (folder / name).write_text("#!/bin/sh\n" + text)
                (folder / name).chmod(0o755)
        (tmp_path / "slurm.conf").touch()
        paths = {
            "PATH": str(folder),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "SLURM_CONF": str(tmp_path / "slurm.conf"),
        }
        monkeypatch.setattr(world, "env", {**paths, **env})

    return make


def queue():
    seen = run.looks({"jobs": jobs.look}, 2)["jobs"]
    return seen if isinstance(seen, Unknown) else jobs.read(seen)


@pytest.mark.parametrize(
    ("squeue", "said"),
    [
        ("/bin/sleep 60", "squeue did not answer|No answer within 2"),
        ("/bin/sleep 60 & wait", "squeue did not answer|No answer within 2"),
        ("exit 1", "exit code 1"),
        ("echo 'slurm_load_jobs error: Invalid user' >&2", "Invalid user"),
        ("echo 'error: nothing'", "breaks off"),
        ("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", "more than can be read|within 2"),
        ("exec /usr/bin/head -c 100000000 /dev/zero", "more than can be read"),
        ("exec /usr/bin/head -c 100000000 /dev/zero >&2", "more than can be read"),
        ("exec /usr/bin/head -c 1000 /dev/urandom", "squeue"),
        ("kill -11 $$", "-11"),
        ("exec /nonexistent", "exit code"),
    ],
)
def test_a_squeue_that_lies(cluster, squeue: str, said: str) -> None:
    """Could not tell, with the reason, within the deadline."""
    cluster(squeue)
    started = time.monotonic()
    found = queue()
    assert time.monotonic() - started < 2 + 1.5
    assert isinstance(found, Unknown)
    assert any(word in found.why for word in said.split("|")), found.why


def test_a_controller_that_is_slow_for_scontrol_only(cluster) -> None:
    """The jobs are known even where the site's process tracking is not."""
    cluster("exit 0", "/bin/sleep 60")
    seen = run.looks({"jobs": jobs.look}, 5)["jobs"]
    assert seen["said"]["proctrack"] is None and jobs.read(seen) == ()


def test_no_squeue(cluster) -> None:
    """On a cluster that is "could not tell", on a machine without one it is no jobs."""
    cluster()
    assert "squeue is not on" in queue().why
    cluster(SLURM_CONF="/nonexistent")
    assert queue() == ()
    cluster(SLURM_CONF="/nonexistent", SLURM_JOB_ID="42")
    assert isinstance(queue(), Unknown)


def test_process_tracking_is_remembered(cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked once; anew when the configuration changed or a day has gone; a damaged or unwritable memory costs a question."""
    asked = tmp_path / "asked"
    cluster("exit 0", f"echo x >>{asked}; echo 'ProctrackType = proctrack/cgroup'")
    count = lambda: len(asked.read_text().split())  # noqa: E731
    assert [slurm_adapter._proctrack(), slurm_adapter._proctrack(), count()] == ["cgroup", "cgroup", 1]
    os.utime(tmp_path / "slurm.conf", (1, 1))
    assert [slurm_adapter._proctrack(), count()] == ["cgroup", 2]
    memory = tmp_path / "state" / "handwash" / "site"
    for damage in (b"", b"\xff", b"x\ny\n", b"a\nb\nc\n", b"x" * 10000):
        memory.write_bytes(damage)
        assert slurm_adapter._proctrack() == "cgroup"
    assert count() == 7
    monkeypatch.setattr(world, "now", lambda: time.time() + 2 * 86400)
    assert [slurm_adapter._proctrack(), count()] == ["cgroup", 8]
    (tmp_path / "blocked").touch()
    cluster("exit 0", XDG_STATE_HOME=str(tmp_path / "blocked"))
    assert [slurm_adapter._proctrack(), count()] == ["cgroup", 9]


# Who is on a GPU


@pytest.mark.parametrize(("host", "by_driver"), [(True, (0, 1)), (False, (1,))])
def test_the_drivers_numbers(host: bool, by_driver: tuple[int, ...]) -> None:
    """In a container they are the host's: whoever has the same number here is not taken for the one on the GPU."""
    used = Gpu(
        0, "a", "x", 1, 2, 0.0, False, 0, (GpuUse(50, 1, "compute"), GpuUse(51, 1, "compute")), True, "/dev/nvidia0"
    )
    held = Gpu(1, "b", "x", 1, 2, 0.0, False, 1, (), True, "/dev/nvidia1")
    rows = [{"pid": 50, "devices": ("/dev/nvidia1",)}, {"pid": 51, "devices": ()}]
    found = survey._gpus_by_pid(rows, (used, held), host)
    assert found[50] == {"gpus": by_driver} and (51 in found) == host


# The whole


def test_a_survey_of_this_machine() -> None:
    """Each answer is known or says why not; who asks is in the chain."""
    seen = survey.take(20)
    assert os.getpid() in seen.chain and 1 not in seen.chain
    for answer in (seen.node, seen.jobs, seen.gpus, seen.processes):
        assert not isinstance(answer, Unknown) or answer.why
    assert not isinstance(seen.processes, Unknown)
    assert all(process.uid == os.getuid() or process.gpus for process in seen.processes)


def test_process_2_of_a_container(tmp_path: Path) -> None:
    """It is the kernel's on a machine, anybody there: what it has started is seen. The kernel's own threads are not."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs root and a namespace of processes")
    ask = (
        "from handwash import run; from handwash.survey import processes\n"
        "print(*(row['ppid'] for row in run.looks({'p': processes.look}, 20)['p'] if row['command'] == 'sleep 77.7'))"
    )
    script = (
        'sh -c "sleep 77.7 & exec sleep 78.8" & '
        'until read -r name </proc/3/comm && [ "$name" = sleep ]; do :; done 2>/dev/null; "$@"'
    )
    argv = [*unshare, "sh", "-c", script, "sh", sys.executable, "-c", ask]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2"], done
    # The kernel's own have no command line, so that they are named in brackets.
    assert not [row for row in look().values() if 2 in (row["pid"], row["ppid"]) and row["command"].startswith("[")]


def test_what_was_not_asked_is_unknown() -> None:
    """Never an empty answer."""
    seen = survey.take(20, only=("node",))
    assert isinstance(seen.jobs, Unknown) and isinstance(seen.gpus, Unknown) and isinstance(seen.processes, Unknown)


# What was left behind


def verdict_on(pid: int, start_ticks: int, name: str) -> tuple[Verdict, Survey]:
    process = Process(pid, 1, start_ticks, 0.0, os.getuid(), "me", name, name, "S", 0.0, 0, 0, pid, pid)
    seen = Survey(Node("compute", "n1", None, False, ()), (), (), (process,), Site())
    return Verdict("leftover", (Judged(process, "no-job", "survives", True, ""),), ()), seen


def test_a_note_for_the_next_banner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told once, and only what is still the same process; kept while nobody can tell; harmless on the terminal."""
    monkeypatch.setattr(world, "env", {"XDG_STATE_HOME": str(tmp_path)})
    verdict, seen = verdict_on(4242, 99, "evil\x1b[31m name\nnext")
    assert left_behind.collect(seen, verdict) == []
    left_behind.note(verdict)
    assert left_behind.collect(replace(seen, processes=Unknown("w")), verdict) == []
    (sentence,) = left_behind.collect(seen, verdict)
    assert "4242 evil\\x1b[31m name\\x0anext" in sentence
    assert left_behind.collect(seen, verdict) == []
    left_behind.note(verdict)
    assert left_behind.collect(*reversed(verdict_on(4242, 100, "another"))) == []


@pytest.mark.parametrize("content", [b"", b"\xff\n\n", b"a b c\n", b"boot x y name\n" * 3, b"boot 1 2 \xff"])
def test_a_damaged_note(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing and goes."""
    monkeypatch.setattr(world, "env", {"XDG_STATE_HOME": str(tmp_path)})
    (tmp_path / "handwash").mkdir()
    (tmp_path / "handwash" / f"left-behind.{world.host()}").write_bytes(content)
    assert left_behind.collect(*reversed(verdict_on(1, 2, "x"))) == []
    assert os.listdir(tmp_path / "handwash") == []


def test_a_note_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs the note."""
    (tmp_path / "handwash").touch()
    monkeypatch.setattr(world, "env", {"XDG_STATE_HOME": str(tmp_path)})
    left_behind.note(verdict_on(1, 2, "x")[0])


def test_the_request_is_one_request() -> None:
    """A look at the queue is one squeue of one user: administrators count them."""
    assert slurm.squeue_argv(7)[0] == "squeue" and len([w for w in slurm.squeue_argv(7) if "user" in w]) == 1


def test_the_gpus_of_a_heterogeneous_job() -> None:
    """Of all components; not told where one of them does not tell."""
    (one,) = LIVING
    rows = (
        replace(one, id="42+0"),
        replace(one, id="42+1", number="43", gpus=2),
        replace(one, id="421+0", number="421"),
    )
    salloc = {**EVIDENCE, "env_job": "42"}
    assert node_of(salloc, rows).held == 3
    assert node_of(salloc, (*rows, replace(one, id="42+2", number="44", gpus=None))).held is None
    assert node_of(salloc, UNKNOWN).held is None and node_of(EVIDENCE, rows).held is None


def test_the_gpus_of_a_job_by_the_numbers_of_the_node() -> None:
    """As Slurm names them; outside a job, or unreadable, none."""
    inside = {**EVIDENCE, "env_job": "42", "env_node": "n1", "env_gpus": "2,3"}
    assert node_of(inside, LIVING).gpus == (2, 3)
    assert node_of({**inside, "env_gpus": "gpu:a,²"}, LIVING).gpus == ()
    assert node_of({**EVIDENCE, "env_gpus": "2"}, ()).gpus == ()
