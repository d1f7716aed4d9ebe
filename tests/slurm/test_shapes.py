"""Every shape in which srun starts something, with a program in it that leaves five processes: all are gone afterwards."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.slurm.bystanders import bystanders
from tests.testbed.cluster import Cluster
from tests.testbed.processes import identity, wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")
LEAKS = re.compile(r"\b(?:background|nohup|setsid|double-fork|double-fork-cleared) (\d+)\r?$", re.MULTILINE)


class Shape(NamedTuple):
    """A script for bash, its exit code, how often the leaky program runs in it, and how often a receipt is said."""

    script: str
    code: int = 0
    leaky: int = 1
    receipts: int = 1


SHAPES = {
    "one task": Shape("safe-srun leaky.sh 7", 7),
    "a pty": Shape("safe-srun --pty leaky.sh 3 </dev/null", 3),
    "four tasks": Shape("safe-srun -n4 -l leaky.sh 2", 2, 4),
    "two nodes": Shape("safe-srun -N2 -n4 leaky.sh", 0, 4),
    "a heterogeneous job": Shape("safe-srun -n1 leaky.sh : -n2 leaky.sh 4", 4, 3),
    "several steps at once": Shape(
        "salloc -Q -n3 bash -c 'for i in 1 2 3; do safe-srun -n1 --exact leaky.sh $i & done; wait'", 0, 3, 3
    ),
    "components of an allocation": Shape("salloc -Q -n1 : -n1 safe-srun --het-group=0,1 leaky.sh", 0, 2),
    "one component of it": Shape("salloc -Q -n1 : -n1 safe-srun --het-group=1 leaky.sh 5", 5),
    "beside another step": Shape(
        "salloc -Q bash -c 'srun --overlap sleep 109.5 & safe-srun --overlap leaky.sh 3; echo code $?; "
        "squeue -hs -j $SLURM_JOB_ID -o %j; squeue -h -j $SLURM_JOB_ID -o %T; kill %1; wait'"
    ),
    "in a batch job": Shape("sbatch -W -o out --wrap 'safe-srun leaky.sh 3; echo code $?'; cat out; rm out"),
    "several programs": Shape(
        "printf '0 leaky.sh 3\\n1-2 leaky.sh %%t\\n' >f; safe-srun -n3 --multi-prog f; code=$?; rm f; exit $code", 3, 3
    ),
    "into files": Shape("safe-srun -n2 -o o.%t -e e.%t -i none leaky.sh; cat o.*; rm o.* e.*", 0, 2),
    "from a pipe": Shape("seq 100000 | safe-srun bash -c 'wc -l; exec leaky.sh 6'", 6),
    "100 MB": Shape("safe-srun bash -c 'head -c 100000000 /dev/zero; leaky.sh >&2' | wc -c"),
    "a copy of the program": Shape("safe-srun --bcast=$PWD/copy leaky.sh 7; code=$?; rm copy; exit $code", 7),
    "a copy on two nodes": Shape(
        "export SLURM_BCAST=$PWD/copy; safe-srun -N2 -n4 leaky.sh 2; code=$?; rm copy; exit $code", 2, 4
    ),
    "a copy in an allocation": Shape(
        "salloc -Q -N2 -n3 safe-srun --compress --bcast=$PWD/copy -- leaky.sh 4; code=$?; rm copy; exit $code", 4, 3
    ),
    "at once or not at all": Shape("safe-srun -I60 leaky.sh 1", 1),
    "named from outside": Shape(
        "salloc -Q bash -c 'env -u SLURM_JOB_ID -u SLURM_JOBID safe-srun --jobid=$SLURM_JOB_ID --overlap leaky.sh 8'", 8
    ),
}
SAID = {
    "one task": "job N: 5 processes ended; the job has left the queue",
    "four tasks": "job N: 20 processes ended; the job has left the queue",
    "a heterogeneous job": "job N+N: 15 processes ended; the job has left the queue",
    "several programs": "job N: 15 processes ended; the job has left the queue",
    "several steps at once": "step N.N: 5 processes ended; the step has ended",
    "one component of it": "step N.N: 5 processes ended; the step has ended",
    "named from outside": "step N.N: 5 processes ended; the step has ended",
    "in a batch job": "step N.N: 5 processes ended; the step has ended",
    "a copy of the program": "job N: 5 processes ended; the job has left the queue",
    "a copy on two nodes": "job N: 20 processes ended; the job has left the queue",
    "a copy in an allocation": "step N.N: 15 processes ended; the step has ended",
}


def test_nothing_is_left_in_any_shape(cluster: Cluster) -> None:
    """All shapes side by side, each a bystander of the others."""
    home = cluster.home("alice")
    with bystanders(cluster):
        with ThreadPoolExecutor(6) as pool:
            runs = {name: pool.submit(run, cluster, home / f"shape-{n}", name) for n, name in enumerate(SHAPES)}
        wrong = [line for found in runs.values() for line in found.result()]
        assert not wrong, "\n".join(wrong)
        assert wait_until(lambda: [row.name for row in cluster.jobs()] == ["bystander"], 10), cluster.jobs()


def run(cluster: Cluster, folder: Path, name: str) -> list[str]:
    """One shape; what is wrong with it."""
    shape = SHAPES[name]
    cluster.run(["mkdir", folder], user="alice", check=True)
    done = cluster.run(["bash", "-c", shape.script], user="alice", cwd=folder, env={"PWD": str(folder)})
    # Straight away: srun has returned, so nothing may be alive any more.
    left = [pid for pid in LEAKS.findall(done.stdout + done.stderr) if identity(int(pid))]
    text = done.stdout + done.stderr
    said = [re.sub(r"\d+(?=[+.:])|(?<=[+.])\d+(?=:)", "N", line) for line in re.findall(r"handwash: (.*)", text)]
    wrong = [f"alive: {left}"] if left else []
    if done.returncode != shape.code or len(LEAKS.findall(text)) != 5 * shape.leaky:
        wrong.append(f"code {done.returncode} for {shape.code}, or not every leak was told")
    if len(said) != shape.receipts or any(line != SAID.get(name, line) or "could not" in line for line in said):
        wrong.append(f"said {said}")
    if name in ("beside another step", "in a batch job") and "code 3\n" not in text:
        wrong.append("the exit code")
    if name == "beside another step" and not text.partition("code 3\n")[2].startswith("sleep\nRUNNING\n"):
        wrong.append("the other step or the allocation is gone")
    cluster.run(["rm", "-r", folder], user="alice", check=True)
    return [f"{name}: {one}\n{text}" for one in wrong]


def test_what_is_not_supervised_is_not_called_clean(any_cluster: Cluster) -> None:
    """Containers, what only srun can broadcast, files of programs that cannot be rewritten: said before and after."""
    home = any_cluster.home("alice") / "shapes"
    any_cluster.run(["mkdir", home], user="alice", check=True)
    (home / "many").write_text("0 echo" + 120 * " x")
    for words, option in (
        (["--container=/nonexistent", "true"], "--container"),
        (["--multi-prog", "many"], "--multi-prog"),
        ([f"--bcast={home}/", "true"], "--bcast"),
        (["--bcast", "true"], "--bcast"),
        ([f"--bcast={home}/copy", "--send-libs", "true"], "--bcast"),
    ):
        done = any_cluster.run(["safe-srun", *words], user="alice", cwd=home)
        first, *rest = [line for line in done.stderr.splitlines() if line.startswith("handwash: ")]
        assert f"not supervised with {option};" in first
        assert "nothing was left" not in done.stderr and "processes ended" not in done.stderr
        assert not rest or "processes were not looked at" in rest[0]
    any_cluster.run(["rm", "-r", home], user="alice", check=True)


# No header is needed: what slurmd looks for in a plug-in are these names (spank(8)).
PLUGIN = """
#include <string.h>
typedef void *spank_t;
struct spank_option { char *name, *arginfo, *usage; int has_arg, val; int (*callback)(int, const char *, int); };
extern int spank_option_register(spank_t, struct spank_option *);
extern int spank_setenv(spank_t, const char *, const char *, int);
const char plugin_name[] = "plugged", plugin_type[] = "spank";
const unsigned int plugin_version = VERSION, spank_plugin_version = 1;
static char value[64] = "none";
static int given(int val, const char *text, int remote) { strncpy(value, text && *text ? text : "flag", 63); return 0; }
static struct spank_option takes = { "plugged", "WORD", "takes a word", 1, 1, given };
static struct spank_option flag = { "plugged-flag", 0, "takes none", 0, 2, given };
int slurm_spank_init(spank_t sp, int ac, char **av)
{ return spank_option_register(sp, &takes) || spank_option_register(sp, &flag); }
int slurm_spank_task_init(spank_t sp, int ac, char **av) { return spank_setenv(sp, "PLUGGED", value, 1); }
"""


def test_options_of_a_plug_in(handwash_venv: Path) -> None:
    """The command is found behind options that only srun knows, and supervised."""
    # pytest's own folders are closed to ordinary users.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "plugged.c").write_text(PLUGIN)
    (folder / "plugstack.conf").write_text(f"required {folder}/plugged.so\n")
    try:
        whole = subprocess.run(["slurmd", "-V"], capture_output=True, text=True).stdout.split()[-1].split(".")
        number = sum(int(part.split("-")[0]) << shift for part, shift in zip(whole, (16, 8, 0)))
        subprocess.run(
            ["gcc", "-shared", "-fPIC", f"-DVERSION={number}", "-o", folder / "plugged.so", folder / "plugged.c"],
            check=True,
        )
        with Cluster("linuxproc", settings=[f"PlugStackConfig={folder}/plugstack.conf"]) as cluster:
            for options, word in ((["--plugged", "a"], "a"), (["--plugged=b"], "b"), (["--plugged-flag"], "flag")):
                command = ["safe-srun", *options, "bash", "-c", "echo $PLUGGED; exec leaky.sh 3"]
                done = cluster.run(command, user="alice")
                assert (done.returncode, done.stdout.splitlines()[0]) == (3, word), done.stderr
                assert not [pid for pid in LEAKS.findall(done.stdout) if identity(int(pid))]
                assert "5 processes ended; the job has left the queue" in done.stderr
    finally:
        shutil.rmtree(folder)
