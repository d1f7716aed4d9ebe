"""Array tasks, heterogeneous components and steps: handwash inside of them, and safe-srun that is told to go there."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.slurm.test_check import batch, leftovers
from tests.slurm.test_shapes import LEAKS
from tests.testbed import processes
from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.usefixtures("handwash_venv")

# A step that leaves a sleeper of its own, and looks and cleans once all the others have one too. In files: a, b, c.
STEP = """
me=$PLACE/$1
setsid -f bash -c "exec -a $(basename $PLACE) sleep 108.$1" </dev/null >/dev/null 2>&1
until pgrep -f "^$(basename $PLACE) 108.$1" >/dev/null; do sleep 0.02; done
touch $me.up
until [ $(ls $PLACE/*.up | wc -l) = 2 ]; do sleep 0.02; done
echo $SLURM_JOB_ID $SLURM_STEP_ID >$me.ids
handwash where --json >$me.where; handwash check --json >$me.check; handwash clean --yes --json >$me.clean
pgrep -f "^$(basename $PLACE) 108" >$me.after
touch $me.done
until [ $(ls $PLACE/*.done | wc -l) = 2 ]; do sleep 0.02; done
"""


class Steps:
    """Two steps that ran STEP side by side, as 3 and 5."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "step.sh").write_text(STEP)

    def read(self, number: int, name: str) -> str:
        return (self.folder / f"{number}.{name}").read_text()

    def json(self, number: int, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read(number, name))
        return answer


@contextlib.contextmanager
def steps(cluster: Cluster) -> Iterator[Steps]:
    folder = cluster.home("alice") / f"ids-{cluster.proctrack}"
    cluster.run(["mkdir", folder], user="alice", check=True)
    try:
        yield Steps(folder)
    finally:
        processes.end_all(
            lambda: [pid for pid in cluster.processes("alice") if processes.arguments(pid)[:1] == [folder.name]]
        )
        cluster.run(["rm", "-r", folder], user="alice", check=True)


def leaks(cluster: Cluster) -> list[list[str]]:
    """What of leaky.sh runs."""
    found = map(processes.arguments, cluster.processes("alice"))
    return [words for words in found if any(word.startswith("110.") or word.endswith("/leaky.sh") for word in words)]


def test_in_the_tasks_of_an_array(cluster: Cluster) -> None:
    """Each knows its own job; what its step has left is told and ended there, the other task's stays its own; safe-srun too."""
    with steps(cluster) as found:
        script = (
            f"srun -N1 -n1 bash {found.folder}/step.sh $SLURM_ARRAY_TASK_ID; safe-srun leaky.sh $SLURM_ARRAY_TASK_ID"
        )
        words = ["sbatch", "--parsable", "--array=3,5", "-o", f"{found.folder}/%a.out", "--wrap", script]
        env = {"PLACE": str(found.folder)}
        array = cluster.run(words, user="alice", env=env, check=True).stdout.strip()
        assert cluster.wait_no_jobs(40)
        jobs = set()
        for task, other in ((3, 5), (5, 3)):
            number, step = found.read(task, "ids").split()
            jobs.add(number)
            where, check, clean = (found.json(task, name) for name in ("where", "check", "clean"))
            assert (where["kind"], where["job"]) == ("compute", number)
            ids = {job["id"]: job["state"] for job in check["jobs"]["items"]}
            assert ids.keys() == {f"{array}_3", f"{array}_5"}, ids
            mine = [
                item for item in check["processes"]["items"] if item["command"] == f"{found.folder.name} 108.{task}"
            ]
            assert [(item["job"], item["whose"], item["leftover"]) for item in mine] == [(number, "session", True)]
            left = leftovers(check)
            assert list(left) == [mine[0]["pid"]] == clean["ended"]
            others = [item for item in check["processes"]["items"] if item["command"].endswith(f" 108.{other}")]
            assert not others or {(item["whose"], item["leftover"]) for item in others} == {("living-job", False)}
            assert str(mine[0]["pid"]) not in found.read(task, "after").split()
            said = found.read(task, "out")
            assert len(LEAKS.findall(said)) == 5 and leaks(cluster) == []
            assert f"handwash: step {number}.{int(step) + 1}: 5 processes ended; the step has ended" in said
        assert len(jobs) == 2


# What one component has left, told and ended by that one alone. (In the test cluster all nodes are one machine.)
COMPONENT = """
setsid -f bash -c "exec -a component sleep 108.6" </dev/null >/dev/null 2>&1
until pgrep -f "^component 108.6" >/dev/null; do sleep 0.02; done
echo $SLURM_JOB_ID
handwash where --json; handwash check --json; handwash clean --yes --json
! pgrep -f "^component 108.6" >/dev/null
"""


def test_in_a_component_of_a_heterogeneous_job(cluster: Cluster) -> None:
    """It stands in its job, whose other component is in the queue beside it, and what its step has left is this session's."""
    argv = ["salloc", "-Q", "-n1", ":", "-n1", "srun", "--het-group=1", "bash", "-c", COMPONENT]
    try:
        done = cluster.run(argv, user="alice", env={"HANDWASH_GRACE": "1"})
        assert done.returncode == 0, done
        leader, _newline, objects = done.stdout.partition("\n")
        where, check, clean = json.loads(f"[{objects.replace(chr(10) + '}' + chr(10) + '{', '},{')}]")
        # Slurm tells a component's tasks the leader's number; its control group bears the component's own.
        own = str(int(leader) + 1) if cluster.proctrack == "cgroup" else leader
        assert (where["kind"], where["job"]) == ("compute", own)
        assert {job["id"] for job in check["jobs"]["items"]} == {f"{leader}+0", f"{leader}+1"}
        (left,) = leftovers(check).values()
        assert (left["command"], left["job"], left["whose"]) == ("component 108.6", own, "session")
        assert (clean["ended"], clean["left"]) == ([left["pid"]], [])
    finally:
        processes.end_all(
            lambda: [pid for pid in cluster.processes("alice") if processes.arguments(pid)[:1] == ["component"]]
        )
    assert cluster.wait_no_jobs(20)


def test_named_to_safe_srun(any_cluster: Cluster) -> None:
    """However a job is named with --jobid, safe-srun does what this release's srun does, and never more than the step ends."""
    with batch(any_cluster, "--array=7-8") as array, contextlib.ExitStack() as finish:
        made = ["salloc", "-Q", "--no-shell", "-J", "het", "-n1", ":", "-n1"]
        any_cluster.run(made, user="alice", check=True)
        het = next(row.id for row in any_cluster.jobs() if row.name == "het").partition("+")[0]
        finish.callback(any_cluster.run, ["scancel", het], user="alice", check=True)
        before = sorted(row[:2] for row in any_cluster.jobs())
        number = any_cluster.run(["squeue", "-h", "-j", f"{array}_7", "-O", "JobID"], user="alice").stdout.strip()
        accepted = []
        for words in (
            [f"--jobid={number}", "--overlap"],
            [f"--jobid={array}_7", "--overlap"],
            [f"--jobid={array}", "--overlap"],
            [f"--jobid={het}"],
            [f"--jobid={het}+1"],
            [f"--jobid={het}", "--het-group=1"],
            [f"--jobid={het}", "--het-group=0,1"],
        ):
            plain = any_cluster.run(["srun", *words, "bash", "-c", "exit 6"], user="alice")
            done = any_cluster.run(["safe-srun", *words, "leaky.sh", "6"], user="alice")
            assert done.returncode == plain.returncode, (words, plain, done)
            if plain.returncode == 6:
                accepted.append(words)
                pids = LEAKS.findall(done.stdout)
                assert len(pids) in (5, 10) and leaks(any_cluster) == []
                ended = rf"handwash: step \d+\.\d+: {len(pids)} processes ended; the step has ended"
                assert re.search(ended, done.stderr), done
            else:
                assert done.stderr == plain.stderr and done.stdout == ""
            assert sorted(row[:2] for row in any_cluster.jobs()) == before, words
        assert len(accepted) >= 4, accepted
    assert any_cluster.wait_no_jobs(20)
