"""`clean` where it is hard: crowds, agents, zombies, the uninterruptible, MPS, other nodes, jobs without anybody."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.slurm.bystanders import bystanders
from tests.slurm.test_check import ask, leftovers
from tests.testbed import configuration, processes
from tests.testbed.cluster import Cluster
from tests.testbed.driver.fake import GIB, FakeDriver
from tests.testbed.processes import Identity, identity, running, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

DEVICES = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]


@contextlib.contextmanager
def left(cluster: Cluster, *words: str, launcher: tuple[str, ...] = ("srun",)) -> Iterator[list[Identity]]:
    """What crowd.py or another program has left of a job that is over, as the pids that it has printed."""
    out = cluster.home("alice") / "crowd.out"
    line = f"setsid -f {' '.join(words)} </dev/null >{out} 2>/dev/null; until [ -s {out} ]; do :; done"
    cluster.run([*launcher, "bash", "-c", line], user="alice", check=True)
    pids = [int(pid) for pid in out.read_text().split()]
    try:
        if "workers" in words:
            # The main process that has forked them ends at once.
            assert wait_until(lambda: identity(pids[0]) is None, 10)
        yield [who for who in map(identity, pids) if who]
    finally:
        out.unlink()
        # All of one session here: what an agent has started since too.
        sessions = {*pids, *(pid for pid in cluster.processes("alice") if processes.arguments(pid)[1:2] == [words[1]])}
        processes.end_all(lambda: list(sessions & set(cluster.processes("alice"))))


def crowd(cluster: Cluster, *words: str) -> tuple[str, ...]:
    return ("/usr/bin/python3", str(cluster.programs / "crowd.py"), *words)


def seeing_all(cluster: Cluster, *words: str) -> list[str]:
    """The command as alice with a /proc of its own that shows other people's processes, however this machine's is mounted."""
    entry = cluster.account("alice")
    person = f"setpriv --reuid={entry.pw_uid} --regid={entry.pw_gid} --init-groups"
    script = f'mount -t proc -o hidepid=0 proc /proc && cd {entry.pw_dir} && exec {person} "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]


@pytest.fixture
def driver(fake_driver: FakeDriver) -> FakeDriver:
    return fake_driver.gpus(4, name="NVIDIA A100-SXM4-40GB", memory_total=40 * GIB)


def test_126_workers(cluster_linuxproc: Cluster, driver: FakeDriver) -> None:
    """Every device file held, the driver names the dead main process alone: one line, one sweep, the memory comes back."""
    cluster = cluster_linuxproc
    with bystanders(cluster), left(cluster, *crowd(cluster, "workers", "126", *DEVICES)) as workers:
        out = (cluster.home("alice") / "crowd.out").read_text().split()
        main = int(out[0])
        assert len(workers) == 126 and main not in [who.pid for who in workers]
        for index in range(4):
            driver.process(index, main, 20 * GIB, ghost=True)

        def watch() -> None:
            # A real driver frees a dead process's memory once nobody has its files open any more.
            if wait_until(lambda: not any(running(who) for who in workers), 60):
                driver.forget(main)

        watcher = threading.Thread(target=watch)
        env = driver.env()
        code, answer = ask(cluster, "handwash", "check", env=env)
        assert code == 1 and set(leftovers(answer)) == {who.pid for who in workers}
        shown = cluster.run(["handwash", "clean", "--dry-run"], user="alice", env=env).stdout
        assert (
            len([line for line in shown.splitlines() if "crowd.py" in line and "126 ×" in line and "0,1,2,3" in line])
            == 1
        )
        assert shown.count("comes free") == 4 and "126 processes would be ended." in shown
        code, answer = ask(cluster, "handwash", "clean", "--dry-run", env=env)
        assert [len(group["pids"]) for group in answer["groups"]] == [126] and answer["frees"] == [0, 1, 2, 3]
        watcher.start()
        try:
            done = cluster.run(["handwash", "clean", "--yes"], user="alice", env=env)
        finally:
            watcher.join()
        assert done.returncode == 0 and "126 processes ended" in done.stdout, done
        assert done.stdout.count("went from 20.0 GiB to 0 MiB.") == 4
        assert not any(running(who) for who in workers)


def test_memory_that_does_not_come_back(cluster_linuxproc: Cluster, driver: FakeDriver) -> None:
    """The processes are gone, the driver still counts their memory: said, with exit code 1; a driver that hangs: 3."""
    cluster = cluster_linuxproc
    for hang in (False, True):
        with left(cluster, *crowd(cluster, "workers", "2", *DEVICES[:1], "/dev/nvidia-uvm")) as workers:
            driver.process(0, workers[0].pid, 20 * GIB, ghost=True)

            def watch(pair: list[Identity] = workers) -> None:
                if wait_until(lambda: not any(running(who) for who in pair), 60):
                    driver.delay("nvmlInitWithFlags", "forever")

            wait = threading.Thread(target=watch)
            if hang:
                wait.start()
            code, answer = ask(cluster, "handwash", "clean", "--yes", env={**driver.env(), "HANDWASH_DEADLINE": "2"})
            if hang:
                wait.join()
                driver.heal()
            assert sorted(answer["ended"]) == sorted(who.pid for who in workers) and answer["left"] == []
            assert (code, answer["returned"]) in ([(1, False)] if not hang else [(3, None), (1, False)]), answer
            driver.forget(workers[0].pid)


def test_a_driver_that_never_answered(cluster_linuxproc: Cluster, driver: FakeDriver) -> None:
    """The device files show who is on the GPU; they are ended, and that their memory came back is not claimed."""
    cluster = cluster_linuxproc
    driver.delay("nvmlInitWithFlags", "forever")
    env = {**driver.env(), "HANDWASH_DEADLINE": "2"}
    with left(cluster, *crowd(cluster, "workers", "2", *DEVICES[:1], "/dev/nvidia-uvm")) as workers:
        code, answer = ask(cluster, "handwash", "clean", "--yes", env=env)
        assert (code, answer["returned"]) == (3, None) and len(answer["ended"]) == 2
        assert not any(running(who) for who in workers)


def test_an_agent_that_restarts_its_workers(cluster_linuxproc: Cluster) -> None:
    """Killed one by one they would come back for ever: one sweep takes both."""
    cluster = cluster_linuxproc
    with left(cluster, *crowd(cluster, "agent")) as (agent,):
        assert wait_until(lambda: len(cluster.processes("alice")) == 2, 10)
        code, answer = ask(cluster, "handwash", "clean", "--yes", env={"HANDWASH_GRACE": "2"})
        assert code == 0 and agent.pid in answer["ended"] and len(answer["ended"]) >= 2, answer
        assert not cluster.processes("alice")


def test_the_agent_of_a_worker_that_was_named(cluster_linuxproc: Cluster) -> None:
    """It has started another one: 1, and said which agent that is; ended only when it is asked for, with its worker."""
    cluster = cluster_linuxproc
    with left(cluster, *crowd(cluster, "agent")) as (agent,):
        assert wait_until(lambda: len(cluster.processes("alice")) == 2, 10)
        (worker,) = set(cluster.processes("alice")) - {agent.pid}
        done = cluster.run(["handwash", "clean", "--yes", str(worker)], user="alice")
        (new,) = set(cluster.processes("alice")) - {agent.pid}
        assert done.returncode == 1 and new != worker and running(agent), done
        assert f"Still there: {new} crowd.py, started anew by {agent.pid} crowd.py." in done.stdout
        code, answer = ask(cluster, "handwash", "clean", "--yes", str(agent.pid), env={"HANDWASH_GRACE": "2"})
        assert code == 0 and {agent.pid, new} <= set(answer["ended"]) and not cluster.processes("alice")


def test_the_whole_tree_of_a_named_process(cluster_linuxproc: Cluster) -> None:
    """Its children go with it, never what it was started from, nor another program with the same words in its command."""
    cluster = cluster_linuxproc
    tree = 'bash -c "sleep 103.1 & sleep 103.2 & wait" & echo $!'
    script = f"exec -a launcher bash -c '{tree}; exec -a editor-train.py sleep 103.9'"
    with cluster.popen(["bash", "-c", script], user="alice", stdout=subprocess.PIPE, text=True) as launcher:
        try:
            assert launcher.stdout
            main = int(launcher.stdout.readline())
            assert wait_until(lambda: len(cluster.processes("alice")) == 4, 10)
            code, answer = ask(cluster, "handwash", "clean", "--yes", str(main))
            assert code == 0 and len(answer["ended"]) == 3
            assert launcher.poll() is None and len(cluster.processes("alice")) == 1
        finally:
            launcher.kill()


def test_zombies(cluster_linuxproc: Cluster) -> None:
    """They are no leftovers and hold nothing; the parent is named; asked for by number it says so."""
    cluster = cluster_linuxproc
    out = cluster.home("alice") / "zombies"
    with cluster.popen(crowd(cluster, "zombies", "30"), user="alice", stdout=out.open("w")) as parent:
        try:
            assert wait_until(lambda: out.read_text().endswith("\n"), 10)
            first = int(out.read_text().split()[1])
            shown = cluster.run(["handwash", "clean"], user="alice")
            assert (
                shown.returncode == 0
                and f"30 processes have ended already and hold no GPU; their parent, {parent.pid}" in shown.stdout
            )
            done = cluster.run(["handwash", "clean", "--yes", str(first)], user="alice")
            assert done.returncode == 1 and str(parent.pid) in done.stderr and parent.poll() is None
        finally:
            parent.kill()
            out.unlink()


def test_one_that_cannot_be_killed(cluster_linuxproc: Cluster) -> None:
    """In state D (a frozen control group, as a driver that hangs would leave it): a bounded wait, and the text to send."""
    freezer = configuration.freezer()
    if freezer is None:
        pytest.skip("no freezer of cgroup v1 to hold a process in state D with")
    cluster = cluster_linuxproc
    group = freezer / f"handwash-test-{os.getpid()}"
    group.mkdir()
    try:
        with left(cluster, *crowd(cluster, "workers", "1", "/dev/nvidia0", "/dev/nvidia-uvm")) as (worker,):
            (group / "cgroup.procs").write_text(str(worker.pid))
            (group / "freezer.state").write_text("FROZEN")
            assert wait_until(
                lambda: Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "D", 10
            )
            try:
                done = cluster.run(
                    ["handwash", "clean", "--yes"], user="alice", env={"HANDWASH_GRACE": "0.5"}, timeout=30
                )
                assert done.returncode == 1 and running(worker), done
                said = done.stdout
                assert (
                    f"process {worker.pid} (crowd.py, started" in said and "state D" in said and "/dev/nvidia0" in said
                )
                code, answer = ask(cluster, "handwash", "clean", "--yes", env={"HANDWASH_GRACE": "0.5"})
                assert code == 1 and answer["left"][0]["why"].startswith("uninterruptible")
            finally:
                (group / "freezer.state").write_text("THAWED")
            assert wait_until(lambda: not running(worker), 10)
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 10)
        group.rmdir()


def test_clients_of_the_multi_process_service(cluster_linuxproc: Cluster, driver: FakeDriver) -> None:
    """Another client shares the GPU: not ended by --yes alone, explained; ended when named. A lone client is."""
    cluster = cluster_linuxproc
    clean = seeing_all(cluster, "handwash", "clean", "--yes")
    env = {**cluster.env("alice"), **driver.env()}
    with cluster.popen(["sleep", "100"], user="bob") as other:
        try:
            with left(cluster, *crowd(cluster, "workers", "1", *DEVICES[:1], "/dev/nvidia-uvm")) as (client,):
                driver.process(0, client.pid, GIB, kind="mps")
                driver.process(0, other.pid, GIB, kind="mps")
                done = cluster.run(clean, env=env)
                assert done.returncode == 1 and "MPS" in done.stdout and str(other.pid) in done.stdout, done
                assert running(client)
                code, answer = ask(cluster, *clean, user=None, env=env)
                assert code == 1 and answer["held_back"] == [{"pid": client.pid, "why": "mps"}] and running(client)
                # At a terminal it is asked about, after a no it lives.
                shell = pexpect.spawn(clean[0], clean[1:-1], env=env, encoding="utf-8", timeout=30)
                shell.expect(r"End the MPS client too\? \[y/N\] ")
                assert str(other.pid) in shell.before
                shell.sendline("n")
                shell.expect(pexpect.EOF)
                shell.close()
                assert shell.exitstatus == 1 and running(client)
                done = cluster.run([*clean, str(client.pid)], env=env)
                assert done.returncode == 0 and not running(client) and other.poll() is None, done
                assert "(MPS)" in done.stdout
            driver.forget(other.pid)
            with left(cluster, *crowd(cluster, "workers", "1", *DEVICES[:1], "/dev/nvidia-uvm")) as (client,):
                driver.process(0, client.pid, GIB, kind="mps")
                assert ask(cluster, *clean, user=None, env=env)[0] == 0 and not running(client)
        finally:
            other.kill()


def test_other_peoples_and_services_stay(cluster_linuxproc: Cluster, driver: FakeDriver) -> None:
    """The GPU stays in use by bob, whose process is named with his name; a tmux below a named process stays."""
    cluster = cluster_linuxproc
    clean = seeing_all(cluster, "handwash", "clean", "--yes")
    env = {**cluster.env("alice"), **driver.env()}
    driver.holders(GIB)
    hold = ["/usr/bin/python3", str(cluster.programs / "hold_gpu.py")]
    with cluster.popen(hold, user="bob", stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline().startswith("ready")
            driver.process(0, other.pid, 2 * GIB)
            with left(cluster, *crowd(cluster, "workers", "1", *DEVICES[:2], "/dev/nvidia-uvm")) as (worker,):
                shown = cluster.run(clean, env=env)
                assert shown.returncode == 0 and not running(worker) and other.poll() is None, shown
                assert "GPU 1 comes free." in shown.stdout
                bob = cluster.account("bob").pw_name
                assert f"GPU 0 stays in use: {other.pid} hold_gpu.py ({bob})." in shown.stdout
                done = cluster.run([*clean, str(other.pid)], env=env)
                assert done.returncode == 1 and bob in done.stderr and other.poll() is None
        finally:
            other.kill()


def test_a_service_below_a_named_process_stays(cluster_linuxproc: Cluster) -> None:
    """The person has named what is above it: that goes, the service waits for its own name."""
    cluster = cluster_linuxproc
    name = "bash -c 'exec -a jupyter-lab sleep 102.3' & echo $!; exec sleep 102.4"
    with cluster.popen(["bash", "-c", name], user="alice", stdout=subprocess.PIPE, text=True) as top:
        try:
            assert top.stdout
            service = identity(int(top.stdout.readline()))
            assert service and wait_until(lambda: processes.arguments(service.pid)[:1] == ["jupyter-lab"], 10)
            _code, answer = ask(cluster, "handwash", "clean", "--yes", str(top.pid))
            assert answer["held_back"] == [{"pid": service.pid, "why": "service"}] and answer["ended"] == [top.pid]
            assert running(service)
            assert ask(cluster, "handwash", "clean", "--yes", str(service.pid))[0] == 0 and not running(service)
        finally:
            top.kill()


def test_on_the_other_nodes_of_the_job(cluster_linuxproc: Cluster) -> None:
    """What an ended step of this job has left on another node: named as not looked at, then found and ended from here."""
    cluster = cluster_linuxproc
    salloc = ["salloc", "-Q", "-N2", "--gres=gpu:1"]
    nap = (
        "setsid -f bash -c 'exec -a rank sleep 101.7' </dev/null >/dev/null 2>&1; "
        "until pgrep -f '^rank 101.7' >/dev/null; do :; done"
    )
    # The step's own processes end; what it leaves is orphaned within a living job.
    script = (
        f'srun -N1 -n1 -w n2 --gres=none bash -c "{nap.replace(chr(34), chr(92) + chr(34))}; kill -9 \\$PPID" 2>/dev/null;'
        " srun -N1 -n1 -w n1 --overlap bash -c 'handwash check; handwash clean --all-nodes --dry-run --json;"
        " handwash clean --all-nodes --yes'"
    )
    done = cluster.run([*salloc, "bash", "-c", script], user="alice", timeout=90)
    assert "Not looked at: n2" in done.stdout, done
    assert '"node": "n2"' in done.stdout and "rank 101.7" in done.stdout, done
    assert not [pid for pid in cluster.processes("alice") if processes.arguments(pid)[:1] == ["rank"]]


def test_on_the_other_component_of_a_heterogeneous_job(cluster_linuxproc: Cluster) -> None:
    """What an ended step has left there is found and ended through that component; a living step of it stays."""
    cluster = cluster_linuxproc
    nap = (
        "setsid -f bash -c 'exec -a rank sleep 101.8' </dev/null >/dev/null 2>&1; "
        "until pgrep -f '^rank 101.8' >/dev/null; do :; done; kill -9 $PPID"
    )
    script = (
        f"srun --het-group=1 bash -c {shlex.quote(nap)} 2>/dev/null; "
        "srun --het-group=1 sleep 101.9 & until pgrep -f '^[^ ]*sleep 101.9' >/dev/null; do :; done; "
        "handwash check; handwash clean --all-nodes --yes; pgrep -f '^[^ ]*sleep 101.9' >/dev/null && echo the other lives; "
        "kill %1; wait"
    )
    salloc = ["salloc", "-Q", "-n1", "-w", "n1", ":", "-n1", "-w", "n2", "bash", "-c", script]
    done = cluster.run(salloc, user="alice", timeout=90)
    assert "Not looked at: n1, n2, of the same job" in done.stdout, done
    # Both nodes are this host: all three looks find it.
    assert "On n1: 1 process ended." in done.stdout and "On n2: 1 process ended." in done.stdout, done
    assert "the other lives" in done.stdout
    assert not [pid for pid in cluster.processes("alice") if processes.arguments(pid)[:1] == ["rank"]]


def test_a_step_that_begins_while_the_nodes_are_looked_at(cluster_linuxproc: Cluster) -> None:
    """Its processes are there when the other node looks, and it was on no list when the steps were asked for: it lives."""
    cluster = cluster_linuxproc
    folder = cluster.home("alice") / "first"
    folder.mkdir()
    real = shutil.which("srun", path=cluster.env("alice")["PATH"])
    # In front of the real one: before handwash's first step begins, another has.
    (folder / "srun").write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in --jobid=*) job="$word" ;; esac; done\n'
        'case "$*" in *--job-name=handwash*--dry-run*)\n'
        f"    setsid {real} --overlap $job -N1 -n1 -w n2 bash -c 'exec -a rank sleep 101.6' </dev/null >/dev/null 2>&1 &\n"
        "    until pgrep -f '^rank 101.6' >/dev/null; do sleep 0.05; done ;;\n"
        "esac\n"
        f'exec {real} "$@"\n'
    )
    (folder / "srun").chmod(0o755)
    inner = f"PATH={folder}:$PATH; handwash clean --all-nodes --yes; pgrep -f '^rank 101.6' >/dev/null && echo it lives"
    script = f"srun -N1 -n1 -w n1 --overlap bash -c {shlex.quote(inner)}"
    try:
        done = cluster.run(["salloc", "-Q", "-N2", "bash", "-c", script], user="alice", timeout=90)
        assert "it lives" in done.stdout and "rank 101.6" not in done.stdout, done
        assert "On n2: nothing of yours is left over." in done.stdout, done
    finally:
        shutil.rmtree(folder)
        assert cluster.wait_no_jobs(30)


STEPS = "srun -N1 -n1 -w n1 sleep 101.1 & srun -N1 -n1 -w n2 sleep 101.2 & "
RUNNING = "until [ $(squeue -h -s -j $SLURM_JOB_ID -o %i | grep -c '[.][01]$') = 2 ]; do sleep 0.1; done; "


def test_a_step_that_has_lost_its_srun(cluster_linuxproc: Cluster) -> None:
    """Both of its processes killed, as `pkill -9 srun` does: the line to type, for that step alone; no finding."""
    cluster = cluster_linuxproc
    look = "handwash clean --yes; echo code $?; "
    kill = 'kill -9 $(pgrep -P $(pgrep -f "^srun .*101[.]1$" -o)) $(pgrep -f "^srun .*101[.]1$" -o); '
    done = cluster.run(
        ["salloc", "-Q", "-N2", "bash", "-c", STEPS + RUNNING + look + "echo then; " + kill + look + "kill %2; exit"],
        user="alice",
        timeout=60,
    )
    before, _then, after = done.stdout.partition("then\n")
    assert "code 0" in before and "srun that started it" not in before, done
    assert after.count("the srun that started it here is gone. To end it: scancel ") == 1 and "code 0" in after, done
    assert "(sleep) runs on" in after
    assert cluster.wait_no_jobs(30)


def test_a_step_that_has_lost_its_srun_is_cancelled_after_a_yes(cluster_linuxproc: Cluster) -> None:
    """At a terminal it is asked about; the step has ended then, what it has left is offered, the other step lives on."""
    cluster = cluster_linuxproc
    env = {**cluster.env("alice"), "TERM": "dumb"}
    shell = pexpect.spawn(
        "salloc",
        ["-Q", "-N2", "bash", "--norc"],
        env=env,
        preexec_fn=cluster.become("alice"),
        encoding="utf-8",
        timeout=30,
    )
    try:
        shell.sendline("PS1=; " + STEPS + RUNNING + 'echo "have" "both"')
        shell.expect("have both")
        kill = 'kill -9 $(pgrep -P $(pgrep -f "^srun .*101[.]1$" -o)) $(pgrep -f "^srun .*101[.]1$" -o)'
        shell.sendline(f"{kill}; handwash clean; squeue -h -s -j $SLURM_JOB_ID -o %i; echo the $? end")
        shell.expect(r"Step (\d+\.[01]) \(sleep\) runs on, .* Cancel it\? \[y/N\] ")
        step = shell.match.group(1)
        shell.sendline("y")
        shell.expect("the 0 end")
        assert f"Step {step} has ended." in shell.before
        rest = shell.before.partition("has ended.")[2].split()
        assert step not in rest and step[:-1] + str(1 - int(step[-1])) in rest, shell.before
        assert not [pid for pid in cluster.processes("alice") if processes.arguments(pid)[1:] == ["101.1"]]
    finally:
        shell.close(force=True)
        cluster.run(["scancel", "-u", cluster.users[0]], user="alice")
        assert cluster.wait_no_jobs(30)


def test_a_job_that_nobody_sits_in(cluster_linuxproc: Cluster) -> None:
    """Offered at a terminal, cancelled after a yes; what survives it is looked for; without a terminal only named."""
    cluster = cluster_linuxproc
    made = cluster.run(["salloc", "--no-shell", "--gres=gpu:1", "-w", "n1"], user="alice", check=True)
    job = made.stderr.split("job allocation ")[1].split()[0]
    with cluster.popen(["srun", "-w", "n2", "--gres=gpu:1", "sleep", "100"], user="alice") as attended:
        try:
            assert wait_until(lambda: len([row for row in cluster.jobs() if row.state == "RUNNING"]) == 2, 20)
            other = next(row.id for row in cluster.jobs() if row.id != job)
            for words in (["--yes"], ["--dry-run"], []):
                done = cluster.run(["handwash", "clean", *words], user="alice")
                assert done.returncode == 0 and (f"scancel {job}" in done.stdout) == (words != ["--dry-run"]), done
                assert f"scancel {other}" not in done.stdout
            # A rank that srun has not started, by ssh for instance: it is none of the job's steps.
            inside = {"SLURM_JOB_ID": job, "SLURMD_NODENAME": "n1"}
            rank = cluster.popen(["sleep", "100"], user="alice", env=inside)
            env = {**cluster.env("alice"), "TERM": "dumb"}
            for answer, left_in_queue in (("n", True), ("y", False)):
                shell = pexpect.spawn(
                    "handwash", ["clean"], env=env, preexec_fn=cluster.become("alice"), encoding="utf-8", timeout=30
                )
                shell.expect(rf"Job {job} .* Cancel it\? \[y/N\] ")
                shell.sendline(answer)
                if answer == "y":
                    shell.expect(r"End this process\? \[y/N\] ")
                    assert "has left the queue" in shell.before and str(rank.pid) in shell.before
                    shell.sendline("y")
                shell.expect(pexpect.EOF)
                shell.close()
                assert (job in [row.id for row in cluster.jobs()]) == left_in_queue, shell.before
            assert rank.wait(10) == -15 and other in [row.id for row in cluster.jobs()]
        finally:
            cluster.run(["scancel", "-u", cluster.users[0]], user="alice")
            attended.wait(30)
            assert cluster.wait_no_jobs(30)


def test_a_job_that_somebody_sits_in_from_another_session(cluster_linuxproc: Cluster) -> None:
    """Made by `salloc --no-shell`, worked in with `srun --jobid`: no word on it while that runs; then there is."""
    cluster = cluster_linuxproc
    made = cluster.run(["salloc", "--no-shell", "--gres=gpu:1", "-w", "n1"], user="alice", check=True)
    job = made.stderr.split("job allocation ")[1].split()[0]
    try:
        with cluster.popen(["srun", f"--jobid={job}", "--overlap", "sleep", "100"], user="alice") as sits:
            steps = ["squeue", "-h", "-s", "-j", job, "-o", "%i"]
            assert wait_until(lambda: f"{job}.0" in cluster.run(steps, user="alice").stdout, 20)
            done = cluster.run(["handwash", "clean"], user="alice")
            assert done.returncode == 0 and "scancel" not in done.stdout, done
            cluster.run(["scancel", f"{job}.0"], user="alice")
            sits.wait(30)
        assert wait_until(lambda: f"{job}.0" not in cluster.run(steps, user="alice").stdout, 20)
        done = cluster.run(["handwash", "clean"], user="alice")
        assert done.returncode == 0 and f"scancel {job}" in done.stdout, done
    finally:
        cluster.run(["scancel", "-u", cluster.users[0]], user="alice")
        assert cluster.wait_no_jobs(30)


def test_a_heterogeneous_job_that_nobody_sits_in(cluster_linuxproc: Cluster) -> None:
    """One question for all of it, with all of its GPUs; a yes ends all of it, and it says so of the whole."""
    cluster = cluster_linuxproc
    words = ["salloc", "--no-shell", "--gres=gpu:1", "-w", "n1", ":", "--gres=gpu:1", "-w", "n2"]
    made = cluster.run(words, user="alice", check=True)
    job = made.stderr.split("job allocation ")[1].split()[0]
    env = {**cluster.env("alice"), "TERM": "dumb"}
    # Of the second component, and of none of its steps.
    inside = {"SLURM_JOB_ID": str(int(job) + 1), "SLURMD_NODENAME": "n2"}
    rank = cluster.popen(["sleep", "100"], user="alice", env=inside)
    try:
        shell = pexpect.spawn(
            "handwash", ["clean"], env=env, preexec_fn=cluster.become("alice"), encoding="utf-8", timeout=30
        )
        shell.expect(rf"Job {job} \(.*\) holds 2 GPUs, .* Cancel it\? \[y/N\] ")
        assert len(cluster.jobs()) == 2
        shell.sendline("y")
        shell.expect(r"End this process\? \[y/N\] ")
        assert f"Job {job} has left the queue." in shell.before and str(rank.pid) in shell.before
        assert not cluster.jobs()
        shell.sendline("y")
        shell.expect(pexpect.EOF)
        shell.close()
        assert "Cancel it?" not in shell.before and rank.wait(10) == -15
    finally:
        rank.kill()
        rank.wait()
        cluster.run(["scancel", "-u", cluster.users[0]], user="alice")
        assert cluster.wait_no_jobs(30)
