"""The test cluster itself: if it is not what it should be, no other test on it means anything."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.testbed import machine, processes
from tests.testbed.cluster import Cluster, stop_orphans
from tests.testbed.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_both_nodes_are_idle(cluster: Cluster) -> None:
    """sinfo shows two idle nodes with two GPUs each."""
    done = cluster.run(["sinfo", "-h", "-N", "-o", "%N %T %G"], user="alice")
    assert done.stdout.splitlines() == ["n1 idle gpu:a100:2", "n2 idle gpu:a100:2"]


def test_a_job_runs_as_its_user(cluster: Cluster) -> None:
    """Each of the two users is itself on the node, at home."""
    for user in cluster.users:
        done = cluster.run(["srun", "bash", "-c", "id -un; pwd"], user=user, check=True)
        assert done.stdout.split() == [user, str(cluster.home(user))]


def test_gpus_are_given_out(cluster: Cluster) -> None:
    """A job sees its GPUs in CUDA_VISIBLE_DEVICES, and none without --gres."""
    show = ["bash", "-c", 'echo "$SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES-unset}"']
    done = cluster.run(["srun", "-N2", "--gres=gpu:2", *show], user="alice", check=True)
    assert sorted(done.stdout.splitlines()) == ["n1 0,1", "n2 0,1"]
    assert cluster.run(["srun", *show], user="alice", check=True).stdout == "n1 unset\n"


def test_many_tasks_fit(any_cluster: Cluster) -> None:
    """A step of 64 tasks runs on this machine, however few CPUs it has."""
    done = any_cluster.run(["srun", "-n64", "--overcommit", "echo", "here"], user="bob", check=True)
    assert done.stdout == "here\n" * 64


def test_a_user_holds_a_gpu(any_cluster: Cluster) -> None:
    """The fake device files can be opened by a user and are seen in /proc."""
    holder = any_cluster.popen(
        ["hold_gpu.py", "/dev/nvidia1"],
        user="alice",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    with holder:
        try:
            assert holder.stdout.readline() == f"ready {holder.pid}\n"
            assert "/dev/nvidia1" in processes.open_files(holder.pid)
        finally:
            holder.terminate()


def test_a_job_outlives_the_daemons(any_cluster: Cluster) -> None:
    """slurmctld and a slurmd can be stopped and started while a job runs."""
    with any_cluster.popen(["srun", "-w", "n1", "sleep", "60"], user="alice", stderr=subprocess.DEVNULL):
        try:
            assert wait_until(lambda: [job.state for job in any_cluster.jobs()] == ["RUNNING"], 10)
            any_cluster.stop_controller()
            assert not any_cluster.daemon("slurmctld")
            any_cluster.start_controller()
            any_cluster.restart_slurmd("n1")
            assert [(job.state, job.name) for job in any_cluster.jobs()] == [("RUNNING", "sleep")]
        finally:
            any_cluster.clear()
    assert any_cluster.run(["srun", "-w", "n1", "true"], user="bob").returncode == 0


def test_handwash_is_installed_for_the_users(any_cluster: Cluster, handwash_venv: Path) -> None:
    """A user finds both commands in the environment made from the wheel, and can run its interpreter."""
    found = any_cluster.run(["bash", "-c", "command -v handwash safe-srun python"], user="alice", check=True)
    assert found.stdout.split() == [f"{handwash_venv}/bin/{name}" for name in ("handwash", "safe-srun", "python")]
    where = any_cluster.run(["python", "-c", "import handwash; print(handwash.__file__)"], user="alice", check=True)
    assert where.stdout.startswith(f"{handwash_venv}/lib/")


@pytest.mark.parametrize(("proctrack", "survivors"), [("linuxproc", 5), ("pgid", 3), ("cgroup", 0)])
def test_what_plain_srun_leaves(proctrack: str, survivors: int, request: pytest.FixtureRequest) -> None:
    """Of five escapees so many are alive a while after the script's end, as measured before handwash was built."""
    cluster: Cluster = request.getfixturevalue(f"cluster_{proctrack}")
    with cluster.popen(
        ["srun", "--gres=gpu:1", "leaky.sh", "7"],
        user="alice",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as srun:
        assert srun.stdout is not None
        pids = [int(srun.stdout.readline().split()[1]) for _ in range(5)]
        try:
            script_is_over = wait_until(lambda: not _runs(cluster, "leaky.sh"), 5)
            assert script_is_over
            if proctrack == "linuxproc":
                # The job stays for a minute. A few seconds show that it does not go as with the other two.
                assert not cluster.wait_no_jobs(4)
            else:
                assert cluster.wait_no_jobs(10)
                assert srun.wait(5) == 7
            assert len([pid for pid in pids if processes.identity(pid)]) == survivors
        finally:
            cluster.clear()


def _runs(cluster: Cluster, script: str) -> bool:
    return any(
        words[1:2] and words[1].endswith(script)
        for pid in cluster.processes("alice")
        for words in [processes.arguments(pid)]
        if words and not words[0].endswith("srun")
    )


@pytest.mark.parametrize("proctrack", ["linuxproc", "cgroup"])
def test_nothing_is_left_after_stop(proctrack: str) -> None:
    """With jobs running and escapees about, stop leaves no process, user, cgroup, folder or entry."""
    cluster = Cluster(proctrack)
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        cluster.start()
    except machine.Unavailable as missing:
        pytest.skip(str(missing))
    directory, slot, users, uids = cluster.directory, cluster.slot, cluster.users, set(cluster.uids.values())
    try:
        steps = [
            cluster.popen(["srun", "bash", "-c", "leaky.sh; exec sleep 60"], user=user, **silent) for user in users
        ]
        assert wait_until(lambda: all(len(cluster.processes(user)) >= 6 for user in users), 10)
        work = [who for user in users for pid in cluster.processes(user) if (who := processes.identity(pid))]
    finally:
        cluster.stop()
    assert [step.wait(5) for step in steps] == [-signal.SIGKILL, -signal.SIGKILL]
    assert not directory.exists()
    assert not [who for who in work if processes.running(who)]
    assert not [pid for pid in processes.pids() if any(str(directory) in word for word in processes.arguments(pid))]
    with machine.register() as content:
        assert str(directory) not in content.holders
        # A cluster that somebody else has started since may have the same slot, and the names and uids that go with it.
        if slot not in content.slots():
            assert not [name for name in users if machine.account(name)]
            assert not [path for uid in uids for path in Path("/sys/fs/cgroup").glob(f"freezer/slurm*/uid_{uid}")]


def test_the_cluster_of_a_killed_process_is_stopped_by_the_next_start() -> None:
    """Where nobody could clean up, whoever comes next does."""
    if os.geteuid():
        pytest.skip("the test cluster needs root")
    code = "from tests.testbed.cluster import Cluster; c = Cluster().start(); print(c.directory, flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    directory = child.stdout.readline().strip()
    child.kill()
    error = child.communicate()[1]
    if "Unavailable" in error:
        pytest.skip(error.splitlines()[-1])
    assert directory, error
    stop_orphans()
    # Another test run's start may have been quicker and be at it.
    assert wait_until(lambda: not Path(directory).exists(), 20)
    assert not [pid for pid in processes.pids() if any(directory in word for word in processes.arguments(pid))]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that ordinary users can pass through, as pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="handwash-test-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def test_run_gives_the_exit_code_and_leaves_nothing(place: Path) -> None:
    """The command line: start, run as a user, stop; the code is the command's."""
    folder = place / "cluster"
    done = _command("run", "--dir", folder, "--user", "bob", "--", "bash", "-c", "srun id -un; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{_name(done.stdout, 'hwbob')}\n"), done.stderr
    assert not folder.exists()


def test_start_shell_environment_and_stop(place: Path) -> None:
    """The command line: what start has started is there for other programs until stop."""
    folder = place / "cluster"
    done = _command("start", "--dir", folder, "--proctrack", "pgid")
    assert done.returncode == 0, done.stderr
    try:
        lines = _command("env", folder, "--user", "alice").stdout
        assert f"export SLURM_CONF={folder}/slurm.conf\n" in lines
        shell = _command("shell", folder, "--user", "alice", input="cd; pwd; sinfo -h -o %T; exit 3\n")
        assert (shell.returncode, shell.stdout) == (3, f"{folder}/home/{_name(shell.stdout, 'hwalice')}\nidle\n")
        assert "proctrack/pgid" in _command("status", folder).stdout
    finally:
        done = _command("stop", folder)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert _command("stop", folder).returncode == 1


def test_a_terminated_run_stops_its_cluster(place: Path) -> None:
    """TERM to the command line ends the command and the cluster."""
    folder = place / "cluster"
    with subprocess.Popen(
        [
            sys.executable,
            ROOT / "tests/testbed/cluster.py",
            "run",
            "--dir",
            folder,
            "--",
            "sh",
            "-c",
            "echo up; sleep 60",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        if child.stdout.readline() != "up\n":
            pytest.skip(child.communicate()[1])
        child.terminate()
        assert child.wait(30) == 130
    assert not folder.exists()
    assert not [pid for pid in processes.pids() if any(str(folder) in word for word in processes.arguments(pid))]


def _command(*words: str | Path, input: str = "") -> subprocess.CompletedProcess[str]:
    script = ROOT / "tests/testbed/cluster.py"
    done = subprocess.run([sys.executable, script, *words], input=input, capture_output=True, text=True, timeout=60)
    if "the test cluster needs" in done.stderr or "is not installed" in done.stderr:
        pytest.skip(done.stderr)
    return done


def _name(text: str, kind: str) -> str:
    found = re.search(rf"{kind}\d*", text)
    assert found, text
    return found[0]
