"""The doctor's judgement, cause by cause: evidence in, the findings out, each with its evidence and the next command."""

from __future__ import annotations

from typing import Any

import pytest

from handwash import schedulers
from handwash.doctor import findings
from handwash.doctor.collect import exit_lines
from handwash.doctor.evidence import Evidence, Machine, SetUp, Smi
from handwash.frozen import replace
from handwash.limits import Excess
from handwash.model import Gpu, Job, Judged, Node, Process, Site, Survey, Unknown, Visibility
from handwash.run import CouldNotTell, Result
from handwash.schedulers import slurm_partitions
from handwash.schedulers.base import Partition, Scheduler
from handwash.schedulers.pbs_adapter import Pbs

GPU = Gpu(0, "GPU-0", "NVIDIA A100", 1 << 30, 40 << 30, 0.5, False)
JOB = Job("7", "7", "RUNNING", "x", "gpu", ("n1",), 1, 60, None, True)
PARTITIONS = (Partition("gpu", True, 8, 3, 64, 86400), Partition("big", False, 64, 0, 128, None))
CHAIN = 900
WELL = SetUp(shell="bash", terminal=True, blocks=("~/.bashrc",), shown=True, interpreter="/usr/bin/python3")
ME = Process(CHAIN, 1, 1, 0.0, 1000, "alice", "bash", "bash", "S", 0.0, 0, 5, CHAIN, CHAIN)


def evidence(kind: str = "compute", job: str | None = "7", container: bool = False, **changes: Any) -> Evidence:
    """A shell in a job with one GPU, where all is well; the changes by the field's name."""
    survey: dict[str, Any] = {
        "node": Node(kind, "n1", job, container, ("because",)),
        "jobs": (JOB,),
        "gpus": (GPU,),
        "processes": (ME,),
        "site": Site(None),
        "chain": (CHAIN,),
        "visibility": Visibility("all", "", (0,)),
    }
    survey.update({name: changes.pop(name) for name in list(changes) if name in survey})
    rest: dict[str, Any] = {
        "smi": Smi("/usr/bin/nvidia-smi", None, 0, 1, "GPU 0: NVIDIA A100"),
        "machine": Machine(("/dev/nvidia0",), True, "550.54.15", True),
        "set_up": WELL,
        "partitions": PARTITIONS,
    }
    return Evidence(Survey(**survey), **{**rest, **changes})


def machine(**changes: Any) -> dict[str, Any]:
    return {"machine": replace(Machine(("/dev/nvidia0",), True, "550.54.15", True), **changes)}


def set_up(**changes: Any) -> dict[str, Any]:
    return {"set_up": replace(WELL, **changes)}


def broken(cause: str) -> dict[str, Any]:
    return {"gpus": Unknown("The driver says no.", cause), "visibility": None}


LOGIN: dict[str, Any] = {"kind": "login", "job": None, "jobs": (), "gpus": (), "visibility": Visibility("all", "", ())}
BARE = {"machine": Machine(), "smi": Smi()}
OTHERS = (ME, replace(ME, pid=50, uid=1001, user="bob", name="train.py", gpus=(0,)))
HEAVY = replace(ME, pid=60, name="train.py", command="python train.py", cpu_s=7200.0)
FORGOTTEN = Judged(HEAVY, "login-work", "survives", True, "It keeps the login node busy.")
BUSY = Excess("cores", 3.0, 0.5, (HEAVY,))

# name: (the evidence, the findings' ids and whether each is a problem)
CASES: dict[str, tuple[dict[str, Any], dict[str, bool]]] = {
    "all is well": ({}, {}),
    # Where one is
    "login node, no nvidia-smi": ({**LOGIN, **BARE}, {"login-node": False, "nvidia-smi-missing": False}),
    "login node, nvidia-smi without a GPU": (
        {**LOGIN, "smi": Smi("/x", None, 6, 0, "No devices were found")}, {"login-node": False, "nvidia-smi-no-gpu": False}),
    "login node, module system": (
        {**LOGIN, "smi": Smi(), **machine(device_files=(), hardware=False, module_system="LMOD_CMD")},
        {"login-node": False, "nvidia-smi-missing": False, "cuda-module-not-loaded": False}),
    "login node with a shared GPU": (
        {**LOGIN, "gpus": (GPU,), "processes": OTHERS}, {"login-node": False, "other-users": False}),
    "salloc": ({"kind": "allocation-shell", "gpus": (), **BARE}, {"allocation-shell": False, "nvidia-smi-missing": False}),
    "forgotten on the login node": (
        {**LOGIN, **BARE, "left_over": (FORGOTTEN,)},
        {"login-node": False, "login-work": True, "nvidia-smi-missing": False}),
    "over the login node's limits, with somebody at it": (
        {**LOGIN, **BARE, "over_limits": (BUSY,)},
        {"login-node": False, "login-work": False, "nvidia-smi-missing": False}),
    "forgotten beside salloc": (
        {"kind": "allocation-shell", "gpus": (), **BARE, "left_over": (FORGOTTEN,), "over_limits": (BUSY,)},
        {"allocation-shell": False, "login-work": True, "nvidia-smi-missing": False}),
    "left over on a compute node": ({"left_over": (FORGOTTEN,)}, {}),
    "compute node without a job": ({"job": None}, {"no-job": True}),
    "a job that is over": (
        {"job": None, "jobs": (), "processes": (replace(ME, job="5", attributed_by="environment"),)},
        {"no-job": True, "shell-outlives-job": True}),
    "a job that asked for no GPU": ({"jobs": (replace(JOB, gpus=0),), "gpus": ()}, {"no-gpu-requested": True}),
    "NoDevFiles": (
        {"gpus": (), "visibility": Visibility("no-dev-files", "NoDevFiles", ()), **machine(cuda_visible="NoDevFiles")},
        {"no-gpu-requested": True}),
    "no GPU asked for, variable left empty": (
        {"jobs": (replace(JOB, gpus=0),), **machine(cuda_visible="")}, {"no-gpu-requested": True}),
    "container": ({"container": True, "gpus": (), **machine(device_files=())}, {"container-without-gpu": True}),
    "container with its GPUs": ({"container": True}, {}),
    "container where there is none": (
        {"container": True, "gpus": (), "jobs": (replace(JOB, gpus=None),), "machine": Machine((), False)}, {}),
    "scheduler down": ({"jobs": Unknown("squeue did not answer in time"), "partitions": None}, {"scheduler-unreachable": True}),
    # nvidia-smi and the driver
    "not on the PATH": ({"smi": Smi(None, "/opt/bin/nvidia-smi")}, {"nvidia-smi-missing": True}),
    "hangs": ({**broken("driver-hangs"), "smi": Smi("/x", timed_out=True)}, {"driver-hangs": True}),
    "crashes": (broken("driver-crashed"), {"driver-crashed": True}),
    "not loaded": (broken("driver-not-loaded"), {"driver-not-loaded": True}),
    "mismatch": ({**broken("driver-mismatch"), "smi": Smi("/x", None, 18, 0, "version mismatch")}, {"driver-mismatch": True}),
    "too old": (broken("driver-too-old"), {"driver-too-old": True}),
    "nonsense": (broken("driver-nonsense"), {"driver-broken": True}),
    "library missing": (broken("library-missing"), {"driver-library-missing": True}),
    "library broken": (broken("library-broken"), {"driver-library-broken": True}),
    "all lost": (broken("gpu-lost"), {"gpu-lost": True}),
    "no permission": (broken("no-permission"), {"driver-no-permission": True}),
    "bindings": (broken("bindings"), {"bindings-missing": True}),
    "one lost": ({"gpus": (replace(GPU, trouble=("lost",), notes=("GPU 0 is lost.",)),)}, {"gpu-lost": True}),
    "one to reset": ({"gpus": (replace(GPU, trouble=("reset",)),)}, {"gpu-lost": True}),
    "wedged": ({"gpus": (replace(GPU, trouble=("wedged",)),)}, {"gpu-wedged": True}),
    "nvidia-smi fails alone": ({"smi": Smi("/x", None, 4, 0, "no permission")}, {"nvidia-smi-fails": False}),
    # The variable
    "empty": ({"visibility": Visibility("none", "", ()), **machine(cuda_visible="")}, {"cuda-visible-devices-empty": True}),
    "empty, the driver hangs": (
        {**broken("driver-hangs"), **machine(cuda_visible=" ")}, {"driver-hangs": True, "cuda-visible-devices-empty": True}),
    "out of range": (
        {"visibility": Visibility("list", "0,7,1", (0,), "7", ("1",)), **machine(cuda_visible="0,7,1")},
        {"cuda-visible-devices-invalid": True}),
    "twice": (
        {"visibility": Visibility("repeated", "0,0", (), "0"), **machine(cuda_visible="0,0")},
        {"cuda-visible-devices-invalid": True}),
    "a list that is right": ({"visibility": Visibility("list", "0", (0,)), **machine(cuda_visible="0")}, {}),
    # CUDA
    "no module": (machine(module_system="LMOD_CMD", modules=("gcc/12",)), {"cuda-module-not-loaded": False}),
    "module loaded": (machine(module_system="LMOD_CMD", modules=("CUDA/12.2",)), {}),
    "runtime found": (machine(module_system="LMOD_CMD", runtime="/opt/cuda/lib64"), {}),
    "no module system": (machine(modules=()), {}),
    # Shared
    "MIG": ({"gpus": (replace(GPU, shared=True, sharing=("mig",)),)}, {"gpu-shared": False}),
    "others": ({"processes": OTHERS}, {"other-users": False}),
    "own ones only": ({"processes": (ME, replace(ME, pid=51, gpus=(0,)))}, {}),
    "root's": ({"processes": (ME, replace(ME, pid=51, uid=0, gpus=(0,)))}, {}),
    # The set-up
    "no hook": (set_up(blocks=(), shown=False), {"hook-inactive": False}),
    "hook not read": (set_up(shown=False), {"hook-inactive": True}),
    "hook, no terminal": (set_up(shown=False, terminal=False), {}),
    "hook, banner off": (set_up(shown=False, banner_off=True), {}),
    "switched off": (set_up(disabled="HANDWASH_DISABLE"), {"hook-inactive": False}),
    "own exit": (set_up(exit_lines=("~/.bashrc:3: alias exit=x",)), {"exit-aliased": False}),
    "interpreter": (set_up(interpreter_why="Permission denied"), {"interpreter-unusable": True}),
    "state": (set_up(state_why="No space left on device"), {"state-not-writable": True}),
    "file server ahead": (set_up(file_skew=400.0), {"clock-skew": True}),
    "file server a little behind": (set_up(file_skew=-9.0), {"clock-skew": False}),
    "clocks right": ({**set_up(file_skew=0.3), "controller_skew": 1.0}, {}),
    "controller": ({"controller_skew": -90.0}, {"clock-skew": True}),
    **{f"proctrack/{kind}": ({"site": Site(kind)}, {"proctrack": False}) for kind in ("cgroup", "linuxproc", "pgid", "lua")},
    "nothing could be looked at": (
        {name: Unknown("w") for name in ("node", "gpus", "smi", "machine", "set_up", "partitions")} | {"visibility": None}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_cause(name: str) -> None:
    changes, expected = CASES[name]
    found = findings.findings(evidence(**changes))
    assert {one.id: one.severity == "problem" for one in found} == expected
    for one in found:
        assert one.what and one.evidence and one.remedy, one


def test_an_unset_variable_hides_nothing() -> None:
    """Unset and empty are different."""
    assert findings.findings(evidence(**machine(cuda_visible=None))) == ()


def test_the_next_command() -> None:
    """On a login node it is a whole srun line; for a variable it is what sets it right."""
    assert findings.findings(evidence(**LOGIN))[0].remedy == (
        "srun --partition=gpu --gres=gpu:1 --cpus-per-task=4 --time=01:00:00 --pty bash"
    )
    (one,) = findings.findings(evidence(**CASES["out of range"][0]))
    assert one.remedy == "export CUDA_VISIBLE_DEVICES=0" and "'7'" in one.what
    assert findings.try_line(evidence(partitions=())) is None
    assert "sinfo" in findings.findings(evidence(**{**LOGIN, "partitions": ()}))[0].remedy


class Bare(Scheduler):
    """A site's own, that can do nothing yet."""

    name = "bare"


WORDS_OF_SLURM = ("srun", "sbatch", "salloc", "sinfo", "squeue", "scontrol", "scancel", "Slurm", "SLURM")
# What only Slurm does: a shell that salloc gave, and its word for no GPU.
ONLY_SLURM = ("salloc", "forgotten beside salloc", "NoDevFiles")


@pytest.mark.parametrize("scheduler", [Pbs(), Bare()], ids=["PBS", "a site's own"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in ONLY_SLURM])
def test_each_cause_under_another_scheduler(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler, name: str) -> None:
    """The same findings, each with something to do, and no word of Slurm's in them."""
    monkeypatch.setattr(schedulers, "here", lambda: scheduler)
    changes, expected = CASES[name]
    found = [one for one in findings.findings(evidence(**changes)) if one.id != "proctrack"]
    assert {one.id: one.severity == "problem" for one in found} == {
        word: problem for word, problem in expected.items() if word != "proctrack"
    }
    for one in found:
        assert one.what and one.evidence and one.remedy, one
        assert not [word for word in WORDS_OF_SLURM if word in one.remedy or word in one.what], one


@pytest.mark.parametrize(
    ("changes", "said", "not_said"),
    [
        ({"site": Site("session")}, ["in no control group", "setsid", "keeps the whole job and its GPUs"], []),
        ({"site": Site("cgroup")}, ["in a control group", "keeps the whole job and its GPUs"], ["setsid"]),
        (
            {**LOGIN, "site": Site("session")},
            ["does not show here", "where the site has no cgroup hook", "keeps the whole job"],
            [],
        ),
        # A container can hide the control group; one that is seen is there.
        ({"container": True, "site": Site("session")}, ["does not show here", "where the site has no cgroup hook"], []),
        ({"container": True, "site": Site("cgroup")}, ["in a control group"], ["setsid"]),
        ({"node": Unknown("w"), "site": Site("session")}, ["where the site has no cgroup hook"], []),
    ],
)
def test_what_leaving_does_under_pbs(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: list[str], not_said: list[str]
) -> None:
    """What ends, what goes on, and that the holder of a terminal keeps the job; of the hook no more than was seen."""
    monkeypatch.setattr(schedulers, "here", Pbs)
    (found,) = [one for one in findings.findings(evidence(**changes)) if one.id == "proctrack"]
    whole = f"{found.what} {found.evidence}"
    assert [words for words in said if words not in whole] == [] and [
        words for words in not_said if words in whole
    ] == []
    assert "handwash clean" in found.remedy and "qsub SCRIPT" in found.remedy
    # Where the server has said nothing, nothing is said of leaving.
    assert "proctrack" not in [one.id for one in findings.findings(evidence(**{**changes, "site": Site()}))]


def test_what_is_forgotten_on_a_login_node_is_shown() -> None:
    """Which process, how old, how much it has computed, over which limit; a crowd of them in few words."""
    many = {**LOGIN, "left_over": (FORGOTTEN,) * 5, "over_limits": (BUSY,), "now": 10800.0}
    (found,) = [one for one in findings.findings(evidence(**many)) if one.id == "login-work"]
    assert found.what.startswith("5 processes of yours") and found.remedy == "handwash clean"
    assert found.evidence.count("60 train.py, 3:00:00 old, 2:00:00 of CPU time: It keeps the login node busy.") == 3
    assert "… Over this login node's limits: 3.0 cores kept busy, 0.5 are allowed: 60 train.py" in found.evidence
    (found,) = [one for one in findings.findings(evidence(**LOGIN, over_limits=(BUSY,))) if one.id == "login-work"]
    assert "srun --partition=gpu" in found.remedy


def test_what_could_not_be_told() -> None:
    assert findings.unsure(evidence()) == ()
    assert len(findings.unsure(evidence(**CASES["nothing could be looked at"][0]))) == 6


# sinfo


def rows(*rows: str) -> Result:
    text = "".join(row.replace("|", "\x1f") + "\x1e\n" for row in rows)
    return Result(0, text.encode(), b"", False)


def test_partitions() -> None:
    """Idle GPUs of usable nodes alone; typed, with sockets and indices in parentheses; the default is marked."""
    found = slurm_partitions.parse_sinfo(
        rows(
            "gpu*|up|idle|2|64|gpu:a100:4(S:0-1)|gpu:a100:0(IDX:N/A)|1-00:00:00",
            "gpu*|up|mixed|1|64|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-1,3)|1-00:00:00",
            "gpu*|up|drained|1|64|gpu:a100:4|gpu:a100:0|1-00:00:00",
            "two|up|idle|1|8+|gpu:v100:1,gpu:k80:1,nvme:1|gpu:v100:0,gpu:k80:1|30:00",
            "cpu|up|idle|9|64|(null)|gpu:0|infinite",
            "off|down|idle|9|64|gpu:4|gpu:0|infinite",
            "shards|up|idle|1|64|gpu:2,shard:8|gpu:2(IDX:0-1),shard:0|infinite",
        )
    )
    assert found == (
        Partition("gpu", True, 16, 9, 64, 86400),
        Partition("two", False, 2, 1, 8, 1800),
        Partition("shards", False, 2, 0, 64, None),
    )
    assert slurm_partitions.srun_line(found[1]).split()[1:5] == [
        "--partition=two", "--gres=gpu:1", "--cpus-per-task=4", "--time=00:30:00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "result",
    [
        Result(None, b"", b"", True),
        Result(1, b"", b"sinfo: error", False),
        Result(0, b"", b"sinfo: error", False),
        Result(0, b"gpu|up\x1e", b"", False),
    ],
)
def test_partitions_that_could_not_be_told(result: Result) -> None:
    with pytest.raises(CouldNotTell):
        slurm_partitions.parse_sinfo(result)


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        (b"Configuration data as of 2026-11-30T21:00:00\nx = 1\n", "2026-11-30T21:00:00"),
        (b"", None),
        (b"Configuration data as of a moment ago\n", None),
    ],
)
def test_the_controllers_clock(text: bytes, stamp: str | None) -> None:
    assert slurm_partitions.parse_clock(Result(0, text, b"", False)) == stamp


def test_an_exit_of_ones_own(tmp_path: Any) -> None:
    """Definitions of exit and logout, not their use, nor comments."""
    path = tmp_path / "rc"
    path.write_bytes(
        b"# alias exit=x\nalias exit='echo no'\nexit 3\nfunction exit {\n}\n  logout() { :; }\nalias -g exit x\n\xff\n"
        b"[ -n x ] && exit\nalias exiting=x\n"
    )
    found = [line.split(":")[1] for line in exit_lines([str(path), str(tmp_path / "none")])]
    assert found == ["2", "4", "6", "7"]
