"""`handwash cost` through the front door: a table of command lines and what each costs; nothing of them is ever run."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_front_door import HANDWASH, NAME, World, shape
from tests.contract.test_front_door import world as world
from tests.testbed.driver.fake import GIB, FakeDriver

COST = {
    "schema": (int,),
    "verdict": (str,),
    "gpus": (int, float, type(None)),
    "limit_s": (int, type(None)),
    "max_gpu_hours": (int, float, type(None)),
    "why": (list,),
    "unknown": (list,),
}
CODES = {"no": 0, "if-used-here": 1, "yes": 1, "unknown": 3}
# Two nodes with four GPUs each, cut into shards, and four without; a partition of whole nodes; one without a limit.
SINFO = (
    "main*|2:00:00|1-00:00:00|NO|2|gpu:a100:4(S:0-1),shard:a100:16(S:0-1)|g[1-2]\x1e\n"
    "main*|2:00:00|1-00:00:00|NO|4|(null)|c[1-4]\x1e\n"
    "whole|n/a|12:00:00|EXCLUSIVE|2|gpu:8|h[1-2]\x1e\n"
    "ascend|n/a|1:00:00|NO|2|npu:ascend910:8|a[1-2]\x1e\n"
    "strange|n/a|1:00:00|EXCLUSIVE|2|card:8|b[1-2]\x1e\n"
    "free|n/a|infinite|NO|3|gpu:1,mps:100|f[1-3]\x1e\n"
    "cpu|n/a|10:00|NO|4|(null)|c[1-4]\x1e\n"
).replace("|", "\x1f")
H = 3600
STARTERS = ("srun", "sbatch", "salloc", "safe-srun")


@pytest.fixture
def cluster(world: World, fake_driver: FakeDriver) -> World:
    """A login node of a cluster whose sinfo answers, and on which everything else that is started leaves a mark.

    Its driver has no GPU: this machine's own may have some, or the device files of somebody's test cluster.
    """
    world.env.update(fake_driver.gpus(0).env())
    (world.folder / "sinfo").write_text(SINFO)
    world.script("sinfo", f"exec /bin/cat {world.folder}/sinfo")
    for name in ("scancel", "python", "env", "nohup", "mine", *STARTERS):
        world.script(name, f"echo {name} >>{world.folder}/started")
    for name in ("torchrun", "make"):
        (world.bin / name).write_text("#!/usr/bin/python3\n")
        (world.bin / name).chmod(0o755)
    return world


def ask(world: World, *words: str, env: dict[str, str | None] | None = None, **options: Any) -> dict[str, Any]:
    """The object; its exit code is that of its verdict, and nothing has been started."""
    code, out, err = world.run("cost", "--json", *words, env={"SLURM_JOB_ID": None, **(env or {})}, **options)
    assert out, err
    answer: dict[str, Any] = json.loads(out)
    shape(answer, COST)
    assert answer["verdict"] in CODES and code == CODES[answer["verdict"]], answer
    assert answer["why"] or answer["unknown"]
    assert all(isinstance(reason, str) and reason for reason in answer["why"] + answer["unknown"])
    assert not (world.folder / "started").exists()
    return answer


# Verdict, GPUs, limit in seconds, GPU-hours at most.
NOTHING = ("no", 0, None, 0)
JOBS = {
    # srun
    "srun --gres=gpu:2 -t 8:00:00 --pty bash": ("yes", 2, 8 * H, 16),
    "srun -p main --gres gpu -t60 python train.py": ("yes", 1, H, 1),
    "srun --gres=gpu:a100:3 -t1-0 a": ("yes", 3, 24 * H, 72),
    "srun -G4 -N2 -t 0:30 a": ("yes", 4, 60, 4 / 60),
    "srun --gpus=a100:2,v100:1 -t 1:0:0 a": ("yes", 3, H, 3),
    "srun -N2 --gpus-per-node=2 -t 1:0:0 a": ("yes", 4, H, 4),
    "srun -p free -N1-2 --gpus-per-node=1 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -n3 --gpus-per-task=1 -t 1:0:0 a": ("yes", 3, H, 3),
    "srun -N2 --ntasks-per-node=3 --gpus-per-task=a100:1 -t 1:0:0 a": ("yes", 6, H, 6),
    "srun -n3 --tres-per-task=cpu:2,gres/gpu:2 -t 1:0:0 a": ("yes", 6, H, 6),
    "srun -N2 --gpus-per-socket=1 --sockets-per-node=2 -t 1:0:0 a": ("yes", 4, H, 4),
    "srun -n8 --ntasks-per-gpu=2 -t 1:0:0 a": ("yes", 4, H, 4),
    "srun -p free -n2 --gres=gpu:1 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -n4 -N1 --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun -N2 -n1 --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun -n4 --ntasks-per-node=2 --gres=gpu:1 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -n20 --gres=gpu:1 -t 1:0:0 a": ("yes", 2, H, 2),  # no more nodes than have GPUs
    "srun --gpus-per-t 1 -n2 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun --time-min=5 --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun --gres=gpu:1 a --gres=gpu:9": ("yes", 1, 2 * H, 2),
    "srun --gres=gpu:1 -- a": ("yes", 1, 2 * H, 2),
    "srun -p free --gres=gpu:1 a": ("yes", 1, None, None),
    "srun -p whole,free --gres=gpu:1 -t 1:0:0 a": ("yes", 8, H, 8),
    "srun --gres=gpu:1 -t UNLIMITED a": ("yes", 1, None, None),
    "srun --gres=gpu:1 -t 0 a": ("yes", 1, None, None),
    "srun --gres=gpu:1 -t 2-0 a": ("yes", 1, 48 * H, 48),
    "srun -N2 --exclusive --gres=gpu:1 -t 1:0:0 a": ("yes", 8, H, 8),
    "srun --exclusive -w g1 -t 1:0:0 a": ("yes", 4, H, 4),
    "srun --exclusive -w c1 -t 1:0:0 a": NOTHING,
    "srun --exclusive=user --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun --exclusive -s --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun -p whole -t 1:0:0 hostname": ("yes", 8, H, 8),
    "srun -p whole -N2 --gres=gpu:1 a": ("yes", 16, 12 * H, 192),
    "srun --gres=shard:2 -t 1:0:0 a": ("yes", 0.5, H, 0.5),
    "srun -p free --gres=mps:50 -t 1:0:0 a": ("yes", 0.5, H, 0.5),
    "srun --gres=gpu:1 -t 1:0:0 a : --gres=gpu:2 -t 2:0:0 b": ("yes", 3, 2 * H, 5),
    "srun -n1 a : -G1 -t 2:0:0 b": ("yes", 1, 2 * H, 2),
    "srun hostname": NOTHING,
    "srun --gres=none a": NOTHING,
    "srun --gres=tmpdisk:10 a": NOTHING,
    "srun --gres=gpu:0 a": NOTHING,
    "srun --gres=help": NOTHING,
    "srun --gres=gpu:8 --help": NOTHING,
    "srun --gres=gpu:8 -V": NOTHING,
    "srun --gres=gpu:8 --test-only a": NOTHING,
    "srun --jobid=7 --gres=gpu:8 a": NOTHING,
    "srun -n1 sbatch --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, H, 1),
    "srun --container-image img --gres=gpu:2 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun --gres=gpu:2 -t 1:0:0 bash -c 'for i in 1 2; do a; done'": ("yes", 2, H, 2),
    "safe-srun --gres=gpu:1 -t 1:0:0 --pty bash": ("yes", 1, H, 1),
    "safe-srun --local srun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    # salloc
    "salloc -G2 -t 30": ("yes", 2, H // 2, 1),
    "salloc --gres=gpu:1 -K TERM": ("yes", 1, 2 * H, 2),
    "salloc -N2 --gres=gpu:1 : --gpus=1 -t 1:0:0": ("yes", 3, 2 * H, 5),
    "salloc -n1 srun --gres=gpu:4 a": NOTHING,
    "salloc -G1 -t 1:0:0 bash -c 'for i in 1 2; do srun a; done'": ("yes", 1, H, 1),
    "salloc -G1 -t 1:0:0 bash -c 'for i in 1 2; do sbatch a; done'": ("yes", None, None, None),
    "salloc": NOTHING,
    # sbatch
    "sbatch --gres=gpu:1 -t 1:0:0 --wrap 'a; b'": ("yes", 1, H, 1),
    "sbatch -a 0-9%2,20 --gres=gpu:2 -t 1:0:0 --wrap a": ("yes", 22, H, 22),
    "sbatch -W --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, H, 1),
    "sbatch -H --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 1, H, 1),
    "sbatch --wrap 'python train.py'": NOTHING,
    # around them
    "FOO=1 nohup nice -n 5 timeout -s KILL 10 setsid srun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "env -u X A=1 time -p stdbuf -oL taskset -c 0-3 srun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "exec -a x command srun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "sudo -u bob srun --gres=gpu:1 -t 1:0:0 a": ("yes", 1, H, 1),
    "bash -lc 'cd /tmp && srun --gres=gpu:1 -t 1:0:0 a | tee log; sbatch -G2 -t 1:0:0 --wrap b'": ("yes", 3, H, 3),
    "eval 'srun --gres=gpu:1 -t 1:0:0' a": ("yes", 1, H, 1),
    "'srun --gres=gpu:1 -t 1:0:0 ./a.out | tee log.txt; ls'": ("yes", 1, H, 1),
    "bash -c 'export SBATCH_GPUS=2; sbatch -t 1:0:0 --wrap a'": ("yes", 2, H, 2),
    "bash -c 'srun --gres=gpu:1 -t 1:0:0 a; ssh x'": ("yes", None, None, None),
    # here, on a login node without a GPU
    "ls -l": NOTHING,
    "vim train.py": NOTHING,
    "scancel 12": NOTHING,
    "squeue --me": NOTHING,
    "scontrol show job 5": NOTHING,
    "nvidia-smi -L": NOTHING,
    "python train.py": NOTHING,
    "torchrun --nproc-per-node 8 train.py": NOTHING,
    "git push": NOTHING,
    "git commit -m 'sbatch with two GPUs'": NOTHING,
    "man sbatch": NOTHING,
    "which srun": NOTHING,
    "alias t='srun --gres=gpu:1 a'": NOTHING,
    "bash -c 'for i in 1 2; do python x.py; done'": NOTHING,
    "srun -n1 bash -c 'for i in 1 2; do a; done'": NOTHING,
    "srun --gres=gpu:1,tmpdisk:10 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun -p ascend -N2 --gres=npu:4 -t 1:0:0 a": ("yes", 8, H, 8),
    "srun -p ascend -N2 --exclusive -t 1:0:0 a": ("yes", 16, H, 16),
    "sbatch --gres=dcu:Z100:4,dcu:2 -t 1:0:0 --wrap a": ("yes", 6, H, 6),
    "srun --gres=gpu:1,foo:2 -t 1:0:0 a": ("yes", None, H, None),
    # Not too little, where the number of tasks or nodes follows from something else.
    "sbatch -p free -B 2:2 --gpus-per-task=1 -t 1:0:0 --wrap a": ("yes", 4, H, 4),
    "sbatch -p free -B 2:1 --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 2, H, 2),
    "srun -p free -N1 -B 2:*:1 --gpus-per-socket=1 -t 1:0:0 a": ("yes", 2, H, 2),
    "sbatch -N2 -B 1-2:3 --gpus-per-task=1 -t 1:0:0 --wrap a": ("yes", 6, H, 6),
    "sbatch -N2 --ntasks-per-gpu=2 --cores-per-socket=4 -t 1:0:0 --wrap a": ("yes", 4, H, 4),
    "srun -N1-2 --ntasks-per-gpu=2 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -N2 --ntasks-per-gpu=2 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -p free --spread-job --ntasks-per-gpu=3 --gres=gpu:1 -t 1:0:0 a": ("yes", 3, H, 3),
    "srun -O --gpus=1 --sockets-per-node=2 --gpus-per-socket=1 -t 1:0:0 a": ("yes", 2, H, 2),
    "srun -p free -n3 -G1 --gpus-per-node=1 -t 1:0:0 a": ("yes", 1, H, 1),
    "srun -G4 --gpus-per-node=2 -t 1:0:0 a": ("yes", 4, H, 4),
    "sbatch -w g1,g1,g2 -m arbitrary --gpus-per-task=1 -t 1:0:0 --wrap a": ("yes", 3, H, 3),
    "sbatch -N2 -w g1 -m arbitrary --gres=gpu:1 -t 1:0:0 --wrap a": ("yes", 2, H, 2),
    "grep srun history": NOTHING,
    "A=1": NOTHING,
    "command -v srun": NOTHING,
    "bash": NOTHING,
    "bash -c 'ls; python x.py >log 2>&1 &'": NOTHING,
    "safe-srun --local -- python x.py": NOTHING,
}  # fmt: skip
UNKNOWN = [
    "sbatch --gres=gpu:1",
    "sbatch --gres=gpu:1 nowhere.sh",
    "sbatch --wrap 'sbatch --gres=gpu:1 next.sh'",
    "srun --gres=gpu:1 --time=soon a",
    "srun --gpu 2 a",
    "srun --no-such-option 2 a",
    "srun -N 4-2 --gres=gpu:1 a",
    "srun -F hosts --gres=gpu:1 a",
    "srun --gpus-per-socket=1 a",
    "srun -m arbitrary --gres=gpu:1 a",
    "srun -p nowhere hostname",
    "srun -M a,b hostname",
    "ssh n1 python train.py",
    "xargs -n1 sbatch",
    "tmux new srun --gres=gpu:1 a",
    "watch srun --gres=gpu:1 a",
    "python submit.py sbatch job.sh",
    "make RUN='srun --gres=gpu:1'",
    "find . -name '*.sh' -exec sbatch {} ;",
    "bash -c 'for f in *; do sbatch $f; done'",
    "bash -c '$CMD x'",
    "bash -c 'srun $OPTIONS a'",
    "bash -c 'sbatch $(ls)'",
    "bash -c 'echo a | bash'",
    "env -S 'srun a'",
    "scontrol release 12",
    "scontrol update JobId=5 TimeLimit=9:00:00",
    "qsub job.sh",
    # No program at all.
    "trian",
    "''",
    "./a.out",
    "/tmp",
    "bash -c 'trian x'",
    # Words behind harmless programs that run them.
    "trap 'sbatch job.sh' EXIT",
    "git bisect run sbatch job.sh",
    "vim -c '!sbatch job.sh'",
    "rsync -e 'srun --gres=gpu:1' a b",
    "split --filter='sbatch job.sh' x",
    "man -P 'sbatch job.sh' ls",
    "bash -c \"alias python='srun --gres=gpu:1 x'; python x\"",
    "bash -c 'for i in 1 2; do ssh n1 x; done'",
    "bash -c 'for i in 1 2; do $RUN x; done'",
    "python -c 'import submitit'",
    "snakemake --jobs 4",
    "python train.py -m hydra/launcher=submitit_slurm",
    "bash --rcfile x",
    "bash -c 'cd / && ./a.out'",
    "bash -c 'ls > >(sbatch job.sh)'",
    # Within a job that has no GPU.
    "srun --prolog=/bin/sbatch -n1 a",
    "srun -n1 qsub job.sh",
    "srun -n1 bash -c '$SUBMIT job.sh'",
    "sbatch --wrap '/usr/bin/sbatch next.sh'",
    "sbatch --wrap 'unset SLURM_JOB_ID SLURM_JOBID; srun --gres=gpu:2 a'",
    "sbatch --wrap 'env -u SLURM_JOB_ID srun --gres=gpu:2 a'",
    "sbatch --wrap 'bash nowhere.sh'",
    # Resources and nodes that are not known.
    "srun --gres=foo:2 a",
    "srun -p strange a",
    "srun -w ./hosts --gres=gpu:1 a",
    "srun -w ./hosts -N2 -m arbitrary --gpus-per-task=1 a",
    "env SLURM_HOSTFILE=hosts srun --gres=gpu:1 a",
]


def split(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


@pytest.mark.parametrize("line", JOBS)
def test_what_it_costs(cluster: World, line: str) -> None:
    verdict, gpus, limit, hours = JOBS[line]
    answer = ask(cluster, "--", *split(line))
    assert (answer["verdict"], answer["gpus"], answer["limit_s"]) == (verdict, gpus, limit), answer
    assert answer["max_gpu_hours"] == (hours if hours is None else pytest.approx(hours, abs=1e-5)), answer


@pytest.mark.parametrize("line", UNKNOWN)
def test_what_cannot_be_told(cluster: World, line: str) -> None:
    """Never a wrong no."""
    answer = ask(cluster, "--", *split(line))
    assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("unknown", None, None), answer
    assert answer["unknown"]


def batch(world: World, *lines: str, name: str = "job.sh") -> str:
    path = world.folder / name
    path.write_text("\n".join(("#!/bin/bash", *lines, "")))
    return str(path)


def test_a_batch_script(cluster: World) -> None:
    """By its name alone, or behind sbatch; the command line wins over the environment, and that over the script."""
    path = batch(
        cluster, "#SBATCH --gres=gpu:2 -t 12:00:00 # half a day", "", "python train.py", "#SBATCH --gres=gpu:9"
    )
    for words in ((path,), ("--", "sbatch", path), ("--", "sbatch", path, "--gres=gpu:9")):
        answer = ask(cluster, *words)
        assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("yes", 2, 24), words
    code, answer = cluster.json("cost", path)
    assert (code, answer["max_gpu_hours"]) == (1, 24)
    env: dict[str, str | None] = {"SBATCH_TIMELIMIT": "1:00:00", "SBATCH_GRES": "gpu:3"}
    assert ask(cluster, path, env=env)["max_gpu_hours"] == 3
    assert ask(cluster, "--", "sbatch", "--gres=gpu:1", path, env=env)["max_gpu_hours"] == 1
    assert ask(cluster, "--", "env", "-u", "SBATCH_GRES", "sbatch", path, env=env)["max_gpu_hours"] == 2
    # As sbatch finds it: in --chdir, in this folder, along the PATH.
    assert ask(cluster, "--", "sbatch", "-D", str(cluster.folder), "job.sh")["gpus"] == 2
    assert ask(cluster, "--", "sbatch", "-D", str(cluster.folder), "./job.sh")["verdict"] == "unknown"
    assert ask(cluster, "--", "sbatch", "job.sh", cwd=cluster.folder)["gpus"] == 2
    assert ask(cluster, "job.sh", cwd=cluster.folder)["gpus"] == 2
    batch(cluster, "#SBATCH -G5", name="bin/on-path.sh")
    assert ask(cluster, "--", "sbatch", "on-path.sh")["gpus"] == 5
    assert ask(cluster, "--", "bash", "-c", "cd /; sbatch job.sh", cwd=cluster.folder)["verdict"] == "unknown"


def test_what_stands_behind_a_script_is_its_own(cluster: World) -> None:
    """Options, colons and all."""
    path = batch(cluster, "#SBATCH -t 60", "a")
    for line in (": --help", ": --test-only", ": --wrap x", ": --no-such-option", ": --gres=gpu:9", "--help"):
        answer = ask(cluster, "--", "sbatch", "--gres=gpu:1", path, *line.split())
        assert (answer["verdict"], answer["max_gpu_hours"]) == ("yes", 1), line
    assert ask(cluster, "--", "sbatch", "--gres=gpu:1", ":", "--help")["verdict"] == "no"


SUBMITTERS = {
    "loop.sh": "for n in 1 2; do sbatch --gres=gpu:2 job.sh; done",
    "echo.sh": 'echo "part #1"; sbatch job.sh',
    "path.sh": "if true; then /usr/bin/sbatch job.sh; fi",
    "again.sh": 'sbatch "$0"',
    "nested.sh": "if true; then bash loop.sh; fi",
    "submit.py": "import subprocess\nsubprocess.run(['sbatch', 'job.sh'])",
    "calls.sh": "python submit.py",
    "forgets.sh": "unset SLURM_JOB_ID; bash steps.sh",
    "trap.sh": "trap ./loop.sh EXIT; for n in 1 2; do git bisect run ./loop.sh; done",
    "requeue.sh": "scontrol requeue $SLURM_JOB_ID",
}


@pytest.mark.parametrize("name", SUBMITTERS)
def test_a_script_that_submits(cluster: World, name: str) -> None:
    """Alone, within a job, and as a batch script: never a no, and no upper bound."""
    for one, text in {**SUBMITTERS, "steps.sh": "for n in 1 2; do srun --gres=gpu:2 a; done"}.items():
        (cluster.folder / one).write_text(f"#!/bin/bash\n# not sbatch\n{text}\n")
        (cluster.folder / one).chmod(0o755)
    here: dict[str, Any] = {"cwd": cluster.folder}
    run = ["python", name] if name.endswith(".py") else ["bash", name]
    for line in (run, [f"./{name}"], [str(cluster.folder / name)], ["torchrun", *run], ["timeout", "5", *run]):
        if name != "requeue.sh":
            assert ask(cluster, "--", *line, **here)["verdict"] == "unknown", line
        (cluster.folder / "list").write_text(f"0 true\n1 {' '.join(run)}\n")
        assert ask(cluster, "--", "srun", "-n2", "--multi-prog", "list", **here)["verdict"] == "unknown"
        for starter in (["srun", "-n1"], ["salloc", "-n1"], ["srun", "-n1", "nice"]):
            assert ask(cluster, "--", *starter, *line, **here)["verdict"] == "unknown", (starter, line)
        answer = ask(cluster, "--", "srun", "-G1", "-t", "60", *line, **here)
        assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("yes", None, None), line
    assert ask(cluster, "--", "sbatch", f"./{name}", **here)["verdict"] == "unknown"
    assert ask(cluster, "--", "sbatch", "--wrap", " ".join(run), **here)["verdict"] == "unknown"
    answer = ask(cluster, "--", "sbatch", "-G1", "-t", "60", f"./{name}", **here)
    assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("yes", None, None)
    # Along the PATH, and in the home folder.
    (cluster.folder / name).rename(cluster.bin / "sweep")
    assert ask(cluster, "--", "sweep", **here)["verdict"] == "unknown" or name == "requeue.sh"
    (cluster.bin / "sweep").rename(cluster.home / "sweep")
    assert ask(cluster, "--", "bash", "-c", "~/sweep", **here)["verdict"] == "unknown" or name == "requeue.sh"


def test_scripts_without_a_sign_stay_a_no(cluster: World) -> None:
    """Comments are no sign, nor are the names of files; that it was not seen whether they submit is said."""
    here: dict[str, Any] = {"cwd": cluster.folder}
    text = "# sbatch this\nfor n in 1 2; do\n  python job.sbatch --sbatch >sbatch.log 2>$SLURM_JOB_ID.err\ndone"
    path = batch(cluster, text, name="clean.sh")
    (cluster.folder / "clean.sh").chmod(0o755)
    (cluster.folder / "train.py").write_text("import os\nprint(os.environ['SLURM_JOB_ID'])\n")
    (cluster.home / "clean.sh").write_text(f"#!/bin/sh\n{text}\n")
    (cluster.home / "clean.sh").chmod(0o755)
    for line in (
        ["bash", path],
        ["./clean.sh"],
        ["bash", "-c", "~/clean.sh; bash ~/clean.sh"],
        ["python", "train.py"],
        ["python", "nowhere.py"],
        ["make", "all"],
    ):
        answer = ask(cluster, "--", *line, **here)
        assert answer["verdict"] == "no" and "unless" in " ".join(answer["why"]), line
    script = ["#SBATCH -G1 -t 60", 'echo "SLURM_JOB_ID=$SLURM_JOB_ID"', "source ~/env/activate", "srun python train.py"]
    answer = ask(cluster, batch(cluster, *script), **here)
    assert answer["max_gpu_hours"] == 1 and "~/env/activate" in " ".join(answer["why"])
    (cluster.folder / "Makefile").write_text("all:\n\tsbatch job.sh\n")
    assert ask(cluster, "--", "make", "all", **here)["verdict"] == "unknown"
    # A batch script by its bare name, of which there is no program.
    answer = ask(cluster, "--", "job.sh", **here)
    assert answer["verdict"] == "unknown" and "handwash cost job.sh" in answer["unknown"][1]


def test_scripts_of_every_kind(cluster: World) -> None:
    het = batch(cluster, "#SBATCH -G1 -t 1:00:00", "#SBATCH hetjob", "#SBATCH -G2 -t 2:00:00")
    answer = ask(cluster, het)
    assert (answer["gpus"], answer["limit_s"], answer["max_gpu_hours"]) == (3, 2 * H, 5)
    assert ask(cluster, "--", "sbatch", "-t", "30", het)["max_gpu_hours"] == 1.5
    assert ask(cluster, batch(cluster, "#SBATCH -a 1-4", "#SBATCH -G1 -t 30"))["max_gpu_hours"] == 2
    assert ask(cluster, batch(cluster, "hostname"))["verdict"] == "no"
    (cluster.folder / "bytes").write_bytes(b"#!/bin/sh\n#SBATCH -J \xff\xfe -G1 -t60\n# \xe4\n")
    assert ask(cluster, str(cluster.folder / "bytes"))["max_gpu_hours"] == 1
    for lines in (
        ["sbatch next.sh"],
        ["#PBS -l nodes=1:gpus=1"],
        ["#SBATCH -t x"],
        ["#SBATCH gpu:1"],
        ["#SBATCH --foo"],
    ):
        assert ask(cluster, batch(cluster, *lines))["verdict"] == "unknown", lines
    foreign = batch(cluster, "#PBS -l walltime=1")
    assert ask(cluster, "--", "sbatch", "--ignore-pbs", foreign)["verdict"] == "no"
    assert ask(cluster, "--", "sbatch", foreign, env={"SBATCH_IGNORE_PBS": "1"})["verdict"] == "no"
    assert "no #SBATCH line" in ask(cluster, batch(cluster, "ls"))["why"][0]
    assert ask(cluster, batch(cluster, "", "ls", "#SBATCH -G1"))["why"][0].startswith("Line 4 of ")
    plain = cluster.folder / "plain"
    plain.write_text("#SBATCH -G1\n")
    assert ask(cluster, str(plain))["verdict"] == "unknown"
    # Run by a shell its #SBATCH lines are comments, and its commands count.
    path = batch(cluster, "#SBATCH --gres=gpu:4", "ls")
    for words in (["bash", path], ["sh", "-x", path], ["source", path], ["nohup", path]):
        answer = ask(cluster, "--", *words)
        assert answer["verdict"] == "no" and "#SBATCH" in answer["why"][0], words
    assert ask(cluster, "--", batch(cluster, "srun -G1 -t 60 a"))["max_gpu_hours"] == 1
    assert ask(cluster, "--", "sh", batch(cluster, "while true; do srun a; done"))["verdict"] == "unknown"


def test_the_environment_of_srun_and_salloc(cluster: World) -> None:
    env: dict[str, str | None] = {
        "SLURM_GPUS": "2",
        "SLURM_TIMELIMIT": "1:00:00",
        "SALLOC_GPUS": "3",
        "SBATCH_GPUS": "4",
    }
    for command, gpus in (("srun a", 2), ("salloc", 3), ("sbatch --wrap a", 4)):
        assert ask(cluster, "--", *split(command), env=env)["gpus"] == gpus
    assert ask(cluster, "--", "srun", "a", env=env)["max_gpu_hours"] == 2
    assert ask(cluster, "--", "SLURM_GPUS=5", "srun", "a", env=env)["gpus"] == 5
    assert ask(cluster, "--", "srun", "-G", "1", "a", env=env)["gpus"] == 1


def test_inside_an_allocation(cluster: World) -> None:
    """A step adds nothing, and the job's own rate is named; a new job costs, wherever it is made."""
    cluster.jobs()
    env: dict[str, str | None] = {"SLURM_JOB_ID": "123"}
    for line in ("srun --gres=gpu:8 a", "srun a", "safe-srun --pty bash", "bash -c 'srun -n4 a; srun b'"):
        answer = ask(cluster, "--", *split(line), env=env)
        assert (answer["verdict"], answer["max_gpu_hours"]) == ("no", 0), line
        assert "holds 2 GPUs and is billed 2 GPU-hours each hour" in " ".join(answer["why"]), line
    for line in (
        "sbatch -G1 -t 60 --wrap a",
        "salloc -G1 -t 60",
        "env -u SLURM_JOB_ID srun -G1 -t 60 a",
        "sudo srun -G1 -t 60 a",
    ):
        assert ask(cluster, "--", *split(line), env=env)["max_gpu_hours"] == 1, line
    path = cluster.folder / "answer"
    path.write_text(path.read_text().replace("gres:gpu:2", "N/A"))
    idle = ask(cluster, "--", "srun", "a", env=env)
    assert "holds no GPU and costs no GPU-hours" in idle["why"][1]
    # srun reads the older name no more: it makes a job of its own.
    assert ask(cluster, "--", "srun", "-G1", "-t", "60", "a", env={"SLURM_JOBID": "123"})["max_gpu_hours"] == 1
    gone = ask(cluster, "--", "srun", "-G1", "a", env={"SLURM_JOB_ID": "99"})
    assert gone["why"][1].endswith("unset SLURM_JOB_ID SLURM_JOBID")
    assert gone["verdict"] == "no" and "not in your queue" in gone["why"][0]
    cluster.script("squeue", "echo down >&2; exit 1")
    down = ask(cluster, "--", "srun", "-G1", "a", env=env)
    assert down["verdict"] == "no" and "down" in down["unknown"][0]


def test_the_partition_could_not_be_asked(cluster: World) -> None:
    """What the words say holds; what they leave open is not made up; the deadline is kept."""
    cluster.script("sinfo", f"echo 'sinfo: error {NAME!r}' >&2; exit 1")
    answer = ask(cluster, "--", "srun", "-G2", "-t", "60", "a")
    # The partition may give whole nodes.
    assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("yes", None, None) and answer["unknown"]
    assert answer["limit_s"] == 3600 and "whole nodes" in answer["why"][0]
    assert "(at least 2 GPUs × 1:00:00)" in cluster.run("cost", "--", "srun", "-G2", "-t", "60", "a")[1]
    answer = ask(cluster, "--", "srun", "-G2", "a")
    assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("yes", None, None)
    assert cluster.run("cost", "--", "srun", "-G2", "a")[1].startswith(
        "yes: it costs GPU-hours, how many could not be told"
    )
    assert ask(cluster, "--", "srun", "--exclusive", "a")["verdict"] == "unknown"
    assert ask(cluster, "--", "srun", "a")["verdict"] == "unknown"
    cluster.script("sinfo", f"exec /bin/cat {cluster.folder}/sinfo")
    answer = ask(cluster, "--", "srun", "-p", "mian", "-G1", "-t", "60", "a")
    assert (answer["gpus"], answer["max_gpu_hours"]) == (None, None) and "mian" in answer["unknown"][0]
    cluster.script("sinfo", "/bin/sleep 60; /bin/sleep 60")
    answer = ask(cluster, "--", "srun", "-G1", "a", env={"HANDWASH_DEADLINE": "1"})
    assert "in time" in answer["unknown"][0]
    (cluster.bin / "sinfo").unlink()
    assert "PATH" in ask(cluster, "--", "srun", "-G1", "a")["unknown"][0]


def test_slurm_is_asked_no_more_than_it_takes(cluster: World) -> None:
    """One question for a new job, one for a step, none for anything else."""
    for name in ("sinfo", "squeue", "scontrol"):
        cluster.script(name, f"echo {name} >>{cluster.folder}/asked; /bin/cat {cluster.folder}/sinfo; exit 0")

    def asked(line: str, **env: str | None) -> str:
        mark = cluster.folder / "asked"
        mark.unlink(missing_ok=True)
        cluster.run("cost", "--", *split(line), env={"SLURM_JOB_ID": None, **env})
        return mark.read_text() if mark.exists() else ""

    assert asked("srun -G1 a : -G1 b") == "sinfo\n"
    cluster.script("sinfo", f'echo "$3" >>{cluster.folder}/asked; /bin/cat {cluster.folder}/sinfo')
    assert asked("srun -M far -G1 a") == "--clusters=far\n"
    cluster.script("sinfo", f"echo sinfo >>{cluster.folder}/asked; /bin/cat {cluster.folder}/sinfo")
    assert asked("bash -c 'srun -G1 a; sbatch -G1 --wrap b'") == "sinfo\n"
    assert asked("srun -G1 a", SLURM_JOB_ID="5") == "squeue\n"
    for line in ("ls", "scancel 3", "nvidia-smi", "srun --help", "ssh n1", "srun -t soon a", "python x.py"):
        assert asked(line) == "", line


# Programs that run here

PYTHON = ("--", "python", "train.py")


def test_on_a_node_with_gpus(cluster: World, fake_driver: FakeDriver) -> None:
    """Where a program can reach a GPU, it is occupied once CUDA is initialised; not where the variable hides them all."""
    fake_driver.gpus(2, memory_total=40 * GIB)
    env: dict[str, str | None] = {**fake_driver.env()}
    answer = ask(cluster, *PYTHON, env=env)
    assert (answer["verdict"], answer["gpus"], answer["max_gpu_hours"]) == ("if-used-here", 2, None)
    assert "CUDA context" in " ".join(answer["why"])
    for value in ("", "NoDevFiles", "-1", "7"):
        answer = ask(cluster, *PYTHON, env={**env, "CUDA_VISIBLE_DEVICES": value})
        assert answer["verdict"] == "no" and "hides every GPU" in answer["why"][0], value
        assert ask(cluster, "--", f"CUDA_VISIBLE_DEVICES={value}", *PYTHON[1:], env=env)["verdict"] == "no"
    assert ask(cluster, *PYTHON, env={**env, "CUDA_VISIBLE_DEVICES": "1"})["gpus"] == 1
    for line in ("ls", "nvidia-smi", "srun a", "bash"):
        assert ask(cluster, "--", line.split()[0], *line.split()[1:], env=env)["verdict"] == "no", line
    for line in ("nohup torchrun x.py", "bash -c 'ls; python x.py'", "safe-srun --local a", "timeout 5 ./a.out"):
        assert ask(cluster, "--", *split(line), env=env)["verdict"] == "if-used-here", line


def test_inside_a_job(cluster: World, fake_driver: FakeDriver) -> None:
    """Nothing more than the job costs already; a job without a GPU may occupy another's."""
    fake_driver.gpus(2, memory_total=40 * GIB)
    cluster.jobs()
    env: dict[str, str | None] = {**fake_driver.env(), "SLURM_JOB_ID": "123", "SLURMD_NODENAME": "n1"}
    answer = ask(cluster, *PYTHON, env=env)
    assert answer["verdict"] == "no" and "holds 2 GPUs" in answer["why"][1]
    path = cluster.folder / "answer"
    path.write_text(path.read_text().replace("gres:gpu:2", "N/A"))
    assert ask(cluster, *PYTHON, env=env)["verdict"] == "if-used-here"
    assert ask(cluster, *PYTHON, env={**env, "CUDA_VISIBLE_DEVICES": "NoDevFiles"})["verdict"] == "no"


def test_in_the_shell_of_an_allocation(cluster: World) -> None:
    cluster.jobs()
    answer = ask(cluster, *PYTHON, env={"SLURM_JOB_ID": "123"})
    assert answer["verdict"] == "no" and "billed meanwhile" in answer["why"][1]


def test_the_driver_does_not_answer(cluster: World, fake_driver: FakeDriver) -> None:
    """A node with GPUs of which nothing can be told: not a no."""
    fake_driver.gpus(1).delay("nvmlInitWithFlags", "forever")
    answer = ask(cluster, *PYTHON, env={**fake_driver.env(), "HANDWASH_DEADLINE": "1"})
    assert answer["verdict"] in ("unknown", "if-used-here")


# For people


def test_what_a_person_reads(cluster: World) -> None:
    def said(*words: str, **options: Any) -> str:
        return cluster.run("cost", *words, **options)[1]

    shown = said("--", "srun", "--gres=gpu:2", "-t", "8:00:00", "--pty", "bash").splitlines()
    assert shown[0] == "yes: at most 16 GPU-hours (2 GPUs × 8:00:00)"
    assert shown[-1] == "To give it back before that: exit" and any(
        "whether they are used or not" in line for line in shown
    )
    shown = said("--", "sbatch", "-a1-10", "-G1", "-t60", "--wrap", "a").splitlines()
    assert shown[0] == "yes: at most 10 GPU-hours (10 × 1 GPU × 1:00:00)" and "scancel" in shown[-1]
    assert said("--", "srun", "-G1", "-t5", "a").startswith("yes: at most 0.084 GPU-hours (1 GPU × 0:05:00)\n")
    assert said("--", "srun", "-p", "free", "-G1", "a").startswith(
        "yes: GPU-hours without a limit, for as long as it runs"
    )
    assert said("--", "ls").startswith("no: it costs no GPU-hours\n")
    assert said("--", "ssh", "x").startswith("could not tell whether it costs GPU-hours\n")
    assert said("--", "srun", "-G2", "-t", "60", "a", env={"HANDWASH_LANG": "zh_CN"}).startswith("会：最多 2 卡时")


def test_foreign_text_stays_harmless(cluster: World) -> None:
    words = [NAME.replace("\n", "").replace(" ", ""), f"/tmp/{NAME}", "srun", f"--time={NAME}"]
    for line in (
        [words[0]],
        [words[1], "x"],
        ["srun", words[3], "a"],
        ["sbatch", words[0]],
        ["srun", "-p", NAME, "a"],
        ["ssh", NAME],
    ):
        _code, out, err = cluster.run("cost", "--", *line)
        assert "\x1b" not in out + err and "\u202e" not in out + err and (out or err), line


def test_wrong_usage(cluster: World) -> None:
    assert cluster.run("cost", "srun -G1 -t60 ./a.out")[1].startswith("yes: at most 1 GPU-hour (")
    for words in ([], ["--"], ["--json"], ["--jason", "--", "ls"], ["nowhere.sh"], ["./nowhere"]):
        code, out, err = cluster.run("cost", *words)
        assert (code, out) == (2, "") and err, words
    assert "no regular file" in cluster.run("cost", str(cluster.folder))[2]
    # Without the dashes too, where no file is meant.
    assert cluster.run("cost", "srun", "-G1", "-t60", "a", "--json")[1].startswith("yes: at most 1 GPU-hour (")
    assert cluster.run("--json", "cost", "--", "ls")[1].startswith("{")
    assert "SCRIPT" in cluster.run("cost", "--help")[1]


def test_a_pipe_in_the_place_of_a_script_does_not_hold_it_up(cluster: World) -> None:
    import os

    path = cluster.folder / "pipe"
    os.mkfifo(path)
    for line in (["sbatch"], ["bash"], ["python"], []):
        answer = ask(cluster, "--", *line, str(path))
        assert answer["verdict"] == "unknown" and str(path) in answer["unknown"][0], line
    assert "no regular file" in answer["unknown"][0]


def test_one_deadline_for_all_of_it(cluster: World) -> None:
    """However much hangs."""
    for name in ("sinfo", "squeue"):
        cluster.script(name, "/bin/sleep 60")
    line = "; ".join(["srun -M far -G1 a", "srun -G1 a", "srun --jobid=5 a", "python x.py", "srun -M away -G1 a"])
    begun = time.monotonic()
    answer = ask(cluster, "--", "bash", "-c", line, env={"HANDWASH_DEADLINE": "1.5", "SLURM_JOB_ID": None})
    assert time.monotonic() - begun < 3 and answer["max_gpu_hours"] is None


def test_it_is_started_from_anywhere(cluster: World, tmp_path: Path) -> None:
    """In a folder that is gone, too."""
    gone = tmp_path / "gone"
    gone.mkdir()
    line = ["/bin/sh", "-c", 'cd "$1" && /bin/rmdir "$1" && shift && exec "$@"', "sh", str(gone), *HANDWASH]
    done = subprocess.run(
        [*line, "cost", "--", "srun", "-G1", "-t60", "a"], env=cluster.env, capture_output=True, text=True, timeout=30
    )
    assert done.stdout.startswith("yes: "), done
