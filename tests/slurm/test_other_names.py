"""A real cluster on which Slurm's programs have the names of Tianhe systems, and its own ones are nowhere on PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.slurm.person import QUESTION, alive, person
from tests.slurm.test_check import ask
from tests.slurm.test_safe_srun import receipt
from tests.testbed import other_names, processes
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

ROOT = Path(__file__).resolve().parents[2]
# Slurm's own names where handwash speaks of a program.
OWN = re.compile(r"(?<![\w/-])(?:srun|sbatch|salloc|squeue|sinfo|scancel|scontrol|sacct)(?![\w-])")


class Site:
    """The cluster with its other names."""

    def __init__(self, cluster: Cluster, venv: Path) -> None:
        self.cluster = cluster
        self.bin = other_names.links(cluster.directory / "tianhe")
        self.env = {"PATH": f"{venv}/bin:{self.bin}:{cluster.programs}", "HANDWASH_GRACE": "1"}
        for program in other_names.SLURM:
            assert shutil.which(program, path=self.env["PATH"]) is None

    def run(self, *words: Any, **env: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(words, user="alice", env={**self.env, **env})

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As a shell starts it, by its bare name."""
        return self.run("bash", "-c", 'exec "$@"', "bash", *words)

    def ask(self, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
        return ask(self.cluster, *words, env={**self.env, **env})

    def first(self, name: str, script: str | None = None) -> dict[str, str]:
        """An environment with a folder before all others, in which a link to safe-srun or a script has this name."""
        folder = self.cluster.home("alice") / "first"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if script is None:
            (folder / name).symlink_to(str(shutil.which("safe-srun", path=self.env["PATH"])))
        else:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{self.env['PATH']}"}


@pytest.fixture(scope="module")
def site(cluster_linuxproc: Cluster, handwash_venv: Path) -> Iterator[Site]:
    found = Site(cluster_linuxproc, handwash_venv)
    yield found
    shutil.rmtree(found.bin)
    shutil.rmtree(cluster_linuxproc.home("alice") / "first", ignore_errors=True)


def test_where_one_is_and_what_one_holds(site: Site) -> None:
    """On the login node, in a job, in an allocation's shell; the queue is read; what to type is there to be typed."""
    cluster = site.cluster
    code, answer = site.ask("handwash", "where")
    assert (code, answer["kind"]) == (0, "login")
    assert site.ask("yhrun", "-w", "n1", "handwash", "where")[1]["kind"] == "compute"
    assert site.ask("yhalloc", "-Q", "-w", "n1", "handwash", "where")[1]["kind"] == "allocation-shell"
    made = site.run("yhbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:1", "--wrap", "exec sleep 109.1")
    job = made.stdout.strip()
    try:
        assert wait_until(lambda: [row.state for row in cluster.jobs()] == ["RUNNING"], 20)
        code, answer = site.ask("handwash", "check")
        assert [(row["id"], row["gpus"]) for row in answer["jobs"]["items"]] == [(job, 1)], answer
        for language in ("en", "zh_CN"):
            for words in (["handwash"], ["handwash", "clean"], ["handwash", "doctor"]):
                said = site.run(*words, HANDWASH_LANG=language)
                assert not OWN.search(said.stdout + said.stderr), said
        assert f"yhcancel {job}" in site.run("handwash").stdout
        # From its first second on.
        assert wait_until(lambda: site.ask("handwash", "usage", "--since", "1h")[1]["gpus_now"] == 1, 10)
        answer = site.ask("handwash", "usage", "--since", "1h")[1]
        assert answer["source"] == "squeue" and [row["id"] for row in answer["items"]][:1] == [job], answer
        assert "yhacct" in answer["why"]
    finally:
        site.run("yhcancel", job)
        assert cluster.wait_no_jobs(20)


def test_a_person_at_a_terminal(site: Site) -> None:
    """The banner at login, a job's shell, the way out of it with something left over, the receipt."""
    with person(site.cluster, **site.env, NO_COLOR="1") as somebody:
        terminal, job = somebody.in_job("safe-srun", "--gres=gpu:1", "-w", "n1")
        greeting = somebody.opens(HANDWASH_BANNER="full").greeting
        assert re.search(rf"^  jobs +{job} RUNNING, 1 GPU", greeting.replace("\r", ""), re.MULTILINE), greeting
        # Its yhrun runs in the session that made it: somebody works in it.
        assert "nobody works" not in greeting and not OWN.search(greeting), greeting
        pid = somebody.holds_gpu(terminal)
        terminal.child.sendline("exit")
        terminal.child.expect(QUESTION)
        assert re.search(rf"{pid} .* {job} ", str(terminal.child.before)), terminal.child.before
        terminal.child.sendline("c")
        terminal.child.expect(rf"handwash: job {job}: nothing was left running; the job has left the queue")
        terminal.prompt()
        assert not alive(pid) and site.cluster.jobs() == []


def test_safe_srun_is_yhrun_and_leaves_nothing(site: Site) -> None:
    """The command's own code, every escapee ended, yhqueue asked, the GPUs known from yhcontrol."""
    done = site.run("safe-srun", "-w", "n1", "--gres=gpu:1", "leaky.sh", "7")
    pids = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert done.returncode == 7 and len(pids) == 5 and not [pid for pid in pids if identity(pid)], done
    said = receipt(done)
    assert re.search(r"5 processes ended; the job has left the queue; \d\.\d{3} GPU-hours \(1 × ", said), said
    assert site.ask("handwash", "sessions")[1]["items"][0]["outcome"] == "clean"


@pytest.mark.parametrize(
    "words",
    [["--no-such-option", "true"], ["-w", "nowhere", "true"], ["-w", "n1", "/nonexistent"], ["--help"], ["--version"]],
    ids=" ".join,
)
def test_what_yhrun_says(site: Site, words: list[str]) -> None:
    """Its own words under its own name, as without handwash."""
    plain, done = site.typed("yhrun", *words), site.run("safe-srun", *words)
    assert done.returncode == plain.returncode and done.stdout == plain.stdout

    def lines(text: str) -> list[str]:
        kept = [line for line in text.splitlines() if not line.startswith("handwash: ")]
        return [re.sub(r"\d+", "0", line) for line in kept if "execve" not in line]

    assert lines(done.stderr) == lines(plain.stderr)


def test_a_prolog_that_cannot_be_run_and_a_broadcast(site: Site) -> None:
    """In yhrun's words too; yhbcast copies, or fails."""
    plain = site.typed("yhrun", "-w", "n1", "--prolog=/nonexistent", "true")
    done = site.run("safe-srun", "-w", "n1", "--prolog=/nonexistent", "true")
    assert "yhrun: Access denied" in plain.stderr and plain.stderr.strip() in done.stderr
    target = site.cluster.home("alice") / "copy"
    for words in (["-w", "n1", f"--bcast={target}", "true"], ["-w", "n1", "--bcast=/proc/nothing/copy", "true"]):
        plain, done = site.typed("yhrun", *words), site.run("safe-srun", *words)
        assert done.returncode == plain.returncode
        assert done.stderr.replace(receipt(done) + "\n", "") == plain.stderr
        assert not OWN.search(done.stderr)
    target.unlink()
    assert site.cluster.wait_no_jobs(30)


@pytest.mark.parametrize("kind", ["link", "script"])
@pytest.mark.parametrize("name", ["yhrun", "srun"])
@pytest.mark.parametrize("typed", ["that", "safe-srun"])
def test_a_site_that_puts_safe_srun_in_its_place(site: Site, kind: str, name: str, typed: str) -> None:
    """Under either name: one session, one receipt, never round and round."""
    env = site.first(name, None if kind == "link" else 'exec safe-srun "$@"')
    done = site.run(name if typed == "that" else typed, "-w", "n1", "leaky.sh", "3", **env)
    pids = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert done.returncode == 3 and len(pids) == 5 and not [pid for pid in pids if identity(pid)], done
    assert done.stderr.count("the job has left the queue") == 1


@pytest.mark.parametrize("broken", ["package", "everything"])
def test_broken_it_becomes_yhrun(site: Site, broken: str) -> None:
    """The command runs, and one line says that it does so without supervision."""
    folder = site.cluster.directory / "broken"
    (folder / "src" / "handwash" / "srun").mkdir(parents=True)
    (folder / "wrappers").mkdir()
    shutil.copy(ROOT / "wrappers" / "safe-srun", folder / "wrappers")
    if broken == "package":
        shutil.copy(ROOT / "src" / "handwash" / "srun" / "entry.py", folder / "src" / "handwash" / "srun")
        (folder / "src" / "handwash" / "__init__.py").write_text("(")
    try:
        done = site.run(folder / "wrappers" / "safe-srun", "-w", "n1", "sh", "-c", "echo $SLURM_JOB_ID; exit 4")
        assert done.returncode == 4 and done.stdout.strip().isdigit(), done
        assert "running without supervision" in done.stderr
    finally:
        shutil.rmtree(folder)
    assert site.cluster.wait_no_jobs(20)


def test_a_killed_srun(site: Site) -> None:
    """The keeper finds the job of a yhrun that was killed before it launched anything, and cancels it; sits-in-it is seen."""
    made = "yhalloc --quiet --no-shell -J true -n1 -w n1 --overcommit; kill -KILL $$"
    done = site.run("safe-srun", "true", **site.first("yhrun", f"PATH={site.bin}\n{made}"))
    assert "yhrun ended before it had started anything; the job was cancelled and has left the queue" in done.stderr
    assert site.cluster.jobs() == []


def test_a_job_that_may_be_somebody_elses_is_left_alone(site: Site) -> None:
    """One in which a living yhrun may sit: nothing is cancelled, and the receipt says so."""
    sits = f"env -u SLURM_PROLOG {site.bin}/yhrun -J true -n1 -w n1 --overcommit sleep 60 >yhrun.log 2>&1 &"
    there = f"until {site.bin}/yhqueue -h -t R -o %j | grep -q true; do sleep 0.1; done"
    done = site.run("safe-srun", "true", **site.first("yhrun", f"{sits}\n{there}\nkill -KILL $$"))
    assert "could not tell which job this was, so nothing is confirmed; see `yhqueue --me`" in done.stderr, done
    (job,) = site.cluster.jobs()
    site.run("yhcancel", job.id)
    assert site.cluster.wait_no_jobs(20)


def test_the_sites_prolog_is_asked_for(site: Site) -> None:
    """By yhcontrol, where it is not remembered."""
    home = site.cluster.home("alice")
    (home / "prolog").write_text("#!/bin/sh\necho the prolog >&2\n")
    (home / "prolog").chmod(0o755)
    env = site.first("yhcontrol", f"printf '%s\\n' 'ProctrackType = proctrack/pgid' 'SrunProlog = {home}/prolog'")
    done = site.run("safe-srun", "-w", "n1", "true", **env, XDG_STATE_HOME=f"{home}/state")
    assert done.stderr.startswith("the prolog\n"), done
    site.run("rm", "-r", "state", "prolog")


def test_a_step_whose_daemon_is_killed(site: Site) -> None:
    """The guardian on the node gives the job back, by yhcancel."""
    cluster = site.cluster
    argv = ["safe-srun", "-w", "n1", "sleep", "109.4"]
    with cluster.popen(argv, user="alice", env=site.env, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert wait_until(lambda: _sleepers(cluster, "109.4"), 20)
            (job,) = cluster.jobs()
            for pid in processes.pids():
                if processes.program(pid).startswith("slurmstepd") and job.id in " ".join(processes.arguments(pid)):
                    os.kill(pid, 9)
            assert cluster.wait_no_jobs(15) and not _sleepers(cluster, "109.4")
        finally:
            # They would notice in half a minute, if the job is gone (22.05).
            for pid in cluster.processes("alice"):
                if processes.arguments(pid)[:1] == ["yhrun"]:
                    os.kill(pid, 9)
        assert "has left the queue" in running.communicate(timeout=60)[1]


def _sleepers(cluster: Cluster, seconds: str) -> list[int]:
    return [pid for pid in cluster.processes("alice") if processes.arguments(pid)[1:] == [seconds]]


def test_a_job_that_nobody_sits_in(site: Site) -> None:
    """Offered and cancelled after a yes, by yhcancel; while a yhrun runs in it there is no word."""
    cluster = site.cluster
    job = site.run("yhalloc", "--no-shell", "--gres=gpu:1", "-w", "n1").stderr.split("job allocation ")[1].split()[0]
    with cluster.popen(["yhrun", f"--jobid={job}", "sleep", "109.2"], user="alice", env=site.env) as running:
        try:
            assert wait_until(lambda: _sleepers(cluster, "109.2"), 20)
            said = site.run("handwash", "clean")
            assert "nobody" not in said.stdout.lower(), said
        finally:
            site.run("yhcancel", f"{job}.0")
            running.wait(20)
    said = site.run("handwash", "clean")
    assert f"end it with: yhcancel {job}" in said.stdout, said
    shell = pexpect.spawn(
        "handwash", ["clean"], env={**cluster.env("alice"), **site.env, "TERM": "dumb"}, encoding="utf-8", timeout=20,
        preexec_fn=cluster.become("alice"),
    )  # fmt: skip
    try:
        shell.expect(rf"Job {job} .* Cancel it\? \[y/N\] ")
        shell.sendline("y")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert f"Job {job} has left the queue." in shell.before and cluster.jobs() == []


def test_a_step_that_has_lost_its_srun(site: Site) -> None:
    """Named by yhrun's name, with the line to type; not while its yhrun lives."""
    script = (
        "yhrun -N1 -n1 -w n1 sleep 109.3 & until pgrep -f '^[^ ]*sleep 109.3' >/dev/null; do sleep 0.1; done; "
        "handwash clean --yes; echo then; "
        'first=$(pgrep -f "^yhrun .*109[.]3$" -o); kill -9 $(pgrep -P $first) $first; handwash clean --yes; exit'
    )
    done = site.run("yhalloc", "-Q", "-w", "n1", "bash", "-c", script)
    before, _then, after = done.stdout.partition("then\n")
    assert "that started it" not in before, done
    assert "but the yhrun that started it here is gone. To end it: yhcancel " in after, done
    assert site.cluster.wait_no_jobs(30)


def test_on_the_other_nodes(site: Site) -> None:
    """The step that looks there is yhrun's."""
    words = ["yhalloc", "-Q", "-N2", "yhrun", "-N1", "-n1", "-w", "n1", "--overlap"]
    code, answer = site.ask(*words, "handwash", "clean", "--all-nodes", "--dry-run")
    assert (code, [(one["node"], one["known"]) for one in answer["nodes"]]) == (0, [("n2", True)]), answer
    assert site.cluster.wait_no_jobs(20)


def test_the_doctors_line_and_what_it_costs(site: Site) -> None:
    """The line to type gets a GPU; cost knows what it asks for."""
    code, answer = site.ask("handwash", "doctor")
    assert code == 0 and answer["try"].startswith("yhrun --partition=main --gres=gpu:1 ")
    assert answer["unknown"] == [] and "login-node" in {one["id"] for one in answer["findings"]}
    done = site.run("bash", "-c", answer["try"].replace("--pty bash", "bash -c 'echo gpu $CUDA_VISIBLE_DEVICES'"))
    assert done.stdout == "gpu 0\n"
    code, answer = site.ask("handwash", "doctor", SLURM_JOB_ID="1")
    assert not OWN.search(" ".join(f"{one['what']} {one['remedy']}" for one in answer["findings"]))
    done = site.run("handwash", "cost", "--json", "--", "yhrun", "--gres=gpu:2", "-t", "30", "--pty", "bash")
    assert done.returncode == 1 and '"max_gpu_hours": 1' in done.stdout, done
    assert site.cluster.wait_no_jobs(20)


def test_a_site_that_has_both_and_chooses(site: Site) -> None:
    """With both sets on PATH Slurm's own names are used, unless the setting says otherwise."""
    both = {"PATH": f"{site.env['PATH']}:/usr/bin"}
    assert site.ask("handwash", "doctor", **both)[1]["try"].startswith("srun ")
    chosen = site.ask("handwash", "doctor", **both, HANDWASH_SLURM_NAMES="yh")[1]
    assert chosen["try"].startswith("yhrun ")
    done = site.run("safe-srun", "-w", "n1", "--no-such-option", "true", **both, HANDWASH_SLURM_NAMES="yh")
    assert done.stderr.startswith("yhrun: "), done
