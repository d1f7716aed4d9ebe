"""safe-srun on a real cluster: nothing of the session is left, everything else is, and srun's own behaviour is kept."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm.bystanders import bystanders
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, running, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")


@pytest.fixture(autouse=True)
def everybody_else_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test on a cluster runs beside the bystanders, unless it says that it does without."""
    name = next((name for name in ("cluster", "any_cluster") if name in request.fixturenames), None)
    if name is None or request.node.get_closest_marker("alone"):
        yield
        return
    cluster: Cluster = request.getfixturevalue(name)
    request.getfixturevalue("handwash_venv")
    with bystanders(cluster):
        yield


def safe(cluster: Cluster, *words: str, **options):
    """safe-srun to its end."""
    return cluster.run(["safe-srun", *words], user="alice", **options)


def queue(cluster: Cluster) -> list[str]:
    """alice's jobs without the bystander."""
    return [row.id for row in cluster.jobs() if row.name != "bystander"]


def receipt(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of receipt."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("handwash: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_leaky_script_leaves_nothing(cluster: Cluster) -> None:
    """All five escapees are gone, the queue too, within two seconds of the script's end; the exit code is the script's."""
    done = safe(cluster, "-w", "n1", "--gres=gpu:1", "bash", "-c", "leaky.sh 7; code=$?; date +%s.%N; exit $code")
    returned = time.time()
    assert done.returncode == 7
    *escapees, over = done.stdout.split("\n")[:6]
    pids = [int(line.split()[1]) for line in escapees]
    assert len(pids) == 5
    assert not [pid for pid in pids if identity(pid)]
    assert returned - float(over) < 2.0
    assert queue(cluster) == []
    said = receipt(done)
    assert re.match(
        r"handwash: job \d+: 5 processes ended; the job has left the queue; \d\.\d{3} GPU-hours \(1 × ", said
    )


def test_side_by_side_with_plain_srun(cluster_linuxproc: Cluster) -> None:
    """What plain srun leaves under linuxproc and safe-srun does not, on one cluster, at one time."""
    cluster = cluster_linuxproc
    with cluster.popen(
        ["srun", "-w", "n1", "leaky.sh"], user="alice", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as plain:
        assert plain.stdout is not None
        plain_pids = [int(plain.stdout.readline().split()[1]) for _ in range(5)]
        begun = time.monotonic()
        done = safe(cluster, "-w", "n2", "leaky.sh")
        safe_seconds = time.monotonic() - begun
        try:
            assert not [line for line in done.stdout.splitlines() if identity(int(line.split()[1]))]
            assert safe_seconds < 3.0
            assert len([pid for pid in plain_pids if identity(pid)]) == 5
            assert [row.state for row in cluster.jobs()] == ["RUNNING"]
            assert plain.poll() is None
            # srun waits a minute for the output that the escapees hold open (22.05, 24.11), its job RUNNING and billed.
            while plain.poll() is None and time.monotonic() - begun < 100:
                assert [row.state for row in cluster.jobs()] in (["RUNNING"], [])
                assert not wait_until(lambda: plain.poll() is not None, 1.0, 0.2) or time.monotonic() - begun > 50
            assert time.monotonic() - begun < 100
            assert wait_until(lambda: cluster.jobs() == [], 10)
            assert len([pid for pid in plain_pids if identity(pid)]) == 5
        finally:
            cluster.clear()


def test_the_environment_is_that_of_srun(any_cluster: Cluster) -> None:
    """Only the session's cookie is added, and what belongs to one run differs; a nested srun would find the person's prolog."""
    # A shell sets PWD where it is missing, and the wrapper is one; a person's environment has it.
    own = {"SLURM_PROLOG": "/bin/true", "OWN": "a b\nc", "PWD": str(any_cluster.home("alice"))}
    words = ["-w", "n1", "env", "-0"]

    def variables(program: str) -> dict[str, str]:
        done = any_cluster.run([program, *words], user="alice", env=own, check=True)
        return dict(entry.partition("=")[::2] for entry in done.stdout.split("\0") if entry)

    plain, supervised = variables("srun"), variables("safe-srun")
    assert re.fullmatch(r"[\w-]+", supervised.pop("HANDWASH_SESSION"))
    per_run = {name for name in plain if re.search(r"JOB_?ID$|PORT$|TASK_PID$|^_$", name)}
    assert {name: value for name, value in plain.items() if name not in per_run} == {
        name: value for name, value in supervised.items() if name not in per_run
    }
    assert set(plain) == set(supervised)


def test_closed_standard_streams(any_cluster: Cluster) -> None:
    """As some daemons start programs: no pipe of ours takes the number of a standard stream."""
    for closed in ("<&-", "<&- >&-"):
        done = any_cluster.run(["bash", "-c", f"safe-srun --gres=gpu:1 bash -c 'exit 4' {closed}"], user="alice")
        assert done.returncode == 4
        assert re.search(r"has left the queue; \d\.\d{3} GPU-hours \(1 × ", receipt(done))


def test_what_cannot_be_supervised_still_runs(any_cluster: Cluster) -> None:
    """Each with a line that says so, and the queue confirmed."""
    home = any_cluster.home("alice")
    copied = (f"--bcast={home}/copy", "--send-libs=no")
    done = safe(any_cluster, *copied, "/bin/echo", "copied", check=True)
    assert done.stdout == "copied\n"
    assert "not supervised with --bcast" in done.stderr
    (home / "copy").unlink()
    # In a task that is not supervised our prolog is still in the environment: not chained to itself.
    (home / "nested").write_text("#!/bin/sh\nexec safe-srun -n1 --overlap echo nested\n")
    (home / "nested").chmod(0o755)
    done = safe(any_cluster, *copied, "./nested", check=True)
    assert done.stdout == "nested\n"
    for name in ("nested", "copy"):
        (home / name).unlink()
    done = safe(any_cluster, "--async", "true")
    assert done.returncode == 125 and "--async" in done.stderr


def test_a_node_without_our_interpreter_runs_the_command(any_cluster: Cluster, handwash_venv: Path) -> None:
    """One line of warning, the command's own exit code, and no claim about its processes."""
    home = any_cluster.home("alice")
    # The interpreter is there for safe-srun and not for the task: a stand-in removes itself once safe-srun runs.
    link = home / "python-link"
    entry = next(handwash_venv.glob("lib/*/site-packages/handwash/srun/entry.py"))
    link.symlink_to(f"{handwash_venv}/bin/python")
    program = (
        "import os, runpy, sys; os.unlink(sys.executable); sys.argv[:] = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = any_cluster.run(
        [str(link), "-I", "-S", "-c", program, str(entry), "bash", "-c", "echo here; exit 9"], user="alice"
    )
    assert (done.returncode, done.stdout) == (9, "here\n")
    assert "running without supervision" in done.stderr
    assert "no word from 1 node, so its processes were not confirmed" in done.stderr
    sessions = json.loads(any_cluster.run(["handwash", "sessions", "--json"], user="alice").stdout)["items"]
    assert sessions[0]["outcome"] == "unconfirmed"


def test_disabled_it_is_plain_srun(any_cluster: Cluster) -> None:
    done = safe(any_cluster, "bash", "-c", "echo ${HANDWASH_SESSION-none}", env={"HANDWASH_DISABLE": "1"}, check=True)
    assert (done.stdout, done.stderr) == ("none\n", "")


def test_quiet_says_nothing_when_all_is_well(any_cluster: Cluster) -> None:
    assert safe(any_cluster, "-Q", "leaky.sh", check=True).stderr == ""


def test_sessions_are_recorded(any_cluster: Cluster) -> None:
    """What ran, where, and how it ended; names only, never a whole command line."""
    safe(any_cluster, "-w", "n1", "bash", "-c", "leaky.sh 0 --password=secret", check=True)
    sessions = json.loads(any_cluster.run(["handwash", "sessions", "--json"], user="alice").stdout)["items"]
    newest = sessions[0]
    assert (newest["command"], newest["nodes"], newest["outcome"]) == ("bash", ["n1"], "clean")
    assert newest["job"] and newest["step"] == "0" and newest["ended"]
    assert newest["processes"] >= 6 and newest["killed"] == 0 and newest["left"] == []
    folder = any_cluster.home("alice") / ".local/state/handwash/sessions"
    assert folder.stat().st_mode & 0o777 == 0o700
    # Sessions of other tests that could not be confirmed keep more files.
    own = [path for path in folder.iterdir() if path.name.startswith(newest["id"])]
    assert own
    for path in own:
        assert path.stat().st_mode & 0o777 == 0o600
        assert b"secret" not in path.read_bytes()
        assert path.suffix == ".ended"


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_signal_to_safe_srun_ends_the_session(cluster: Cluster, name: str) -> None:
    """As with srun the step ends by force; nothing of it stays, and the exit code is srun's."""
    child = cluster.popen(
        ["safe-srun", "-w", "n1", "bash", "-c", "leaky.sh; sleep 100"], user="alice", stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    pids = [int(child.stdout.readline().split()[1]) for _ in range(5)]
    child.send_signal(getattr(signal, f"SIG{name}"))
    _out, err = child.communicate(timeout=30)
    assert child.returncode == 137
    assert wait_until(lambda: not [pid for pid in pids if identity(pid)], 10)
    assert "the job has left the queue" in err
    assert queue(cluster) == []


def test_srun_killed_in_an_allocation(any_cluster: Cluster) -> None:
    """With all of srun's own processes, so that nobody else ends the step: its ranks do not run on, the step is cancelled and
    seen to have ended; the allocation and another step in it stay."""
    script = (
        "srun -n1 --overlap sleep 109.5 & "
        "safe-srun -n1 --overlap bash -c 'leaky.sh; exec sleep 103.9'; echo code $?; "
        "squeue -hs -j $SLURM_JOB_ID -o %j; squeue -h -j $SLURM_JOB_ID -o %T; kill %1; wait"
    )
    child = any_cluster.popen(
        ["salloc", "-Q", "-w", "n1", "-n2", "--overcommit", "bash", "-c", script], user="alice", stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ranks() -> list[int]:
        naps = [(pid, processes.arguments(pid)[1:]) for pid in any_cluster.processes("alice")]
        return [pid for pid, nap in naps if nap == ["103.9"] or (nap[:1] and nap[0].startswith("110."))]

    assert wait_until(lambda: len(ranks()) == 6, 20)
    command = "leaky.sh; exec sleep 103.9"
    found = [
        pid
        for pid in any_cluster.processes("alice")
        if processes.program(pid) == "srun" and command in processes.arguments(pid)
    ]
    # Its own child first, which would give the step back. Not stopped: safe-srun would stop with srun.
    assert len(found) == 2, found
    for pid in sorted(found, key=lambda pid: processes.stat(pid).parent in found, reverse=True):
        os.kill(pid, signal.SIGKILL)
    out, err = child.communicate(timeout=60)
    assert not ranks()
    assert re.search(r"handwash: step \d+\.1: .*the step was cancelled and has ended", err), err
    assert out.partition("code 137\n")[2] == "sleep\nRUNNING\n"


def test_usr1_reaches_the_command_once(cluster: Cluster) -> None:
    """A signal that Slurm sends to the step arrives at the command as often as with plain srun: once."""
    script = "trap 'echo got' USR1; echo ready; for _ in $(seq 8); do sleep 0.1 & wait $!; done; wait"
    counts = {}
    for program in ("srun", "safe-srun"):
        child = cluster.popen(
            [program, "-w", "n1", "-J", "signalled", "bash", "-c", script], user="alice", stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        number = next(row.id for row in cluster.jobs() if row.name == "signalled")
        cluster.run(["scancel", "-s", "USR1", f"{number}.0"], user="alice", check=True)
        out, _err = child.communicate(timeout=30)
        counts[program] = out.count("got")
    assert counts == {"srun": 1, "safe-srun": 1}


def test_a_job_named_by_the_old_variable_alone(any_cluster: Cluster) -> None:
    """srun passes over SLURM_JOBID (since 19.05) and makes a job of its own: that one is confirmed to be gone."""
    done = safe(any_cluster, "bash", "-c", "echo $SLURM_JOB_ID", env={"SLURM_JOBID": "999999"}, check=True)
    assert f"handwash: job {done.stdout.strip()}: " in done.stderr and "has left the queue" in done.stderr


def test_local_needs_no_scheduler(any_cluster: Cluster) -> None:
    """The same teardown and exit codes without srun, in an environment that has no Slurm."""
    env = {"SLURM_CONF": "/nonexistent", "PATH": f"{any_cluster.shared_venv}/bin:/usr/bin:/bin:{any_cluster.programs}"}
    done = any_cluster.run(["safe-srun", "--local", "leaky.sh", "7"], user="alice", env=env)
    assert done.returncode == 7
    assert not [line for line in done.stdout.splitlines() if identity(int(line.split()[1]))]
    assert done.stderr == "handwash: 5 processes ended\n"
    for words, code in ((["nothing-of-this-name"], 2), (["/etc/passwd"], 13), (["bash", "-c", "kill -KILL $$"], -9)):
        assert any_cluster.run(["safe-srun", "--local", *words], user="alice", env=env).returncode == code


def test_the_keeper_and_the_guardian_leave_with_the_session(cluster: Cluster) -> None:
    """No process of handwash stays, and none of its pipes."""
    before = pipes()
    safe(cluster, "-N2", "true", check=True)
    assert wait_until(lambda: not [pid for pid in cluster.processes("alice") if is_ours(pid)], 5)
    assert pipes() <= before


def pipes() -> set[Path]:
    return set(Path("/tmp").glob("handwash-pipe-*/report"))


def is_ours(pid: int) -> bool:
    who = identity(pid)
    return bool(who and running(who) and any("/handwash/srun/" in word for word in processes.arguments(pid)))
