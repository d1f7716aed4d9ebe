"""`handwash doctor` through the front door: its object, exit codes, the outcomes of nvidia-smi, every broken driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_front_door import NAME, World, shape
from tests.contract.test_front_door import world as world
from tests.testbed.driver.fake import GIB, FakeDriver

TEXT = (str,)
DOCTOR = {"schema": (int,), "findings": (list,), "unknown": (list,), "partitions": (list,)}
FINDING = {"id": TEXT, "severity": TEXT, "what": TEXT, "evidence": TEXT, "remedy": TEXT}
SINFO = "gpu*|up|idle|2|64|gpu:a100:4|gpu:a100:1(IDX:0)|1-00:00:00\x1e\n".replace("|", "\x1f")


def ask(world: World, **options: Any) -> tuple[int, dict[str, dict[str, str]], dict[str, Any]]:
    """The exit code, the findings by id, and the whole object."""
    code, answer = world.json("doctor", **options)
    shape(answer, DOCTOR)
    for finding in answer["findings"]:
        shape(finding, FINDING)
        assert finding["severity"] in ("problem", "notice") and all(finding.values())
    problems = [one for one in answer["findings"] if one["severity"] == "problem"]
    assert code == (1 if problems else 3 if answer["unknown"] else 0)
    return code, {one["id"]: one for one in answer["findings"]}, answer


@pytest.fixture
def cluster(world: World) -> World:
    """A cluster whose sinfo shows GPUs, with the hook in place."""
    (world.folder / "sinfo").write_text(SINFO)
    world.script("sinfo", f"exec /bin/cat {world.folder}/sinfo")
    # Whatever else this machine does at the moment is within the limits.
    world.env.update(HANDWASH_LOGIN_CORES="1000", HANDWASH_LOGIN_MEMORY="4000", HANDWASH_LOGIN_THREADS="100000")
    world.script(
        "scontrol", "echo Configuration data as of $(/bin/date +%FT%T); echo ProctrackType = proctrack/linuxproc"
    )
    return world


def smi(world: World, text: str, code: int = 0) -> None:
    world.script("nvidia-smi", f"cat <<'E'\n{text}\nE\nexit {code}".replace("cat", "/bin/cat", 1))


def test_a_login_node(cluster: World) -> None:
    """Not found is normal there: a notice, and how to get a GPU here."""
    code, found, answer = ask(cluster)
    assert code == 0 and {"login-node", "nvidia-smi-missing", "proctrack"} <= set(found), found
    assert answer["nvidia_smi"] == "missing"
    assert answer["partitions"] == [{"name": "gpu", "default": True, "gpus": 8, "idle": 6, "limit_s": 86400}]
    assert answer["try"] == "srun --partition=gpu --gres=gpu:1 --cpus-per-task=4 --time=01:00:00 --pty bash"
    assert found["login-node"]["remedy"] == answer["try"]
    said = cluster.run("doctor")[1]
    assert said.rstrip().endswith(answer["try"]) and "6 of 8 GPUs idle now" in said


def test_forgotten_on_the_login_node(cluster: World) -> None:
    """What `check` calls left over there is a problem, with the process and the way to end it; within the limits it is none."""
    code = (
        "import threading, time\n"
        "for _ in range(300): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as forgotten:
        try:
            assert forgotten.stdout is not None and forgotten.stdout.readline()
            assert "login-work" not in ask(cluster)[1]
            env = {"HANDWASH_LOGIN_THREADS": "290"}
            code_, found, _answer = ask(cluster, env=env)
            assert (code_, found["login-work"]["severity"]) == (1, "problem")
            assert (
                f"{forgotten.pid} " in found["login-work"]["evidence"] and "threads" in found["login-work"]["evidence"]
            )
            assert found["login-work"]["remedy"] == "handwash clean"
            left = [one["pid"] for one in cluster.json("check", env=env)[1]["processes"]["items"] if one["leftover"]]
            assert forgotten.pid in left
            # Inside a job the same process is no matter of a login node.
            cluster.jobs()
            assert "login-work" not in ask(cluster, env={**env, **INSIDE})[1]
        finally:
            forgotten.kill()


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        ("No devices were found", 6, "no-gpu"),
        ("No devices were found", 0, "no-gpu"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\nGPU 1: NVIDIA A100 (UUID: GPU-2)", 0, "gpus"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "error"),
    ],
)
def test_the_outcomes_of_nvidia_smi(cluster: World, text: str, code: int, outcome: str) -> None:
    smi(cluster, text, code)
    assert ask(cluster)[2]["nvidia_smi"] == outcome
    assert "nvidia-smi" in cluster.run("doctor")[1].splitlines()[1]


def test_nvidia_smi_hangs(cluster: World) -> None:
    """The deadline is kept, everything else is there."""
    cluster.script("nvidia-smi", "trap '' TERM; /bin/sleep 60; /bin/sleep 60")
    started = time.monotonic()
    _code, found, answer = ask(cluster, env={"HANDWASH_DEADLINE": "1"})
    assert time.monotonic() - started < 2 * 1 + 3
    assert "login-node" in found and answer["nvidia_smi"] == "no-answer"


INSIDE = {"SLURM_JOB_ID": "123", "SLURMD_NODENAME": "n1"}


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        (lambda driver: driver.fault("nvmlInitWithFlags", "LIB_RM_VERSION_MISMATCH"), "driver-mismatch"),
        (lambda driver: driver.fault("nvmlInitWithFlags", "UNKNOWN"), "driver-broken"),
        (lambda driver: driver.fault("nvmlInitWithFlags", "NO_PERMISSION"), "driver-no-permission"),
        (lambda driver: driver.crash("nvmlInitWithFlags"), "driver-crashed"),
        (lambda driver: driver.delay("nvmlInitWithFlags", "forever"), "driver-hangs"),
        (lambda driver: driver.gpu(1, lost=1), "gpu-lost"),
        (lambda driver: driver.gpu(1, utilisation=100), "gpu-wedged"),
        (lambda driver: driver.mig(0, 1), "gpu-shared"),
    ],
)
def test_each_broken_driver(cluster: World, fake_driver: FakeDriver, fault: Any, finding: str) -> None:
    """Named, with the driver's own words, within the deadline."""
    cluster.jobs()
    smi(cluster, "GPU 0: NVIDIA A100 (UUID: GPU-1)")
    fault(fake_driver.gpus(2, memory_total=40 * GIB))
    env = {**INSIDE, **fake_driver.env(), "HANDWASH_DEADLINE": "3"}
    code, found, _answer = ask(cluster, env=env)
    assert finding in found and code == (0 if finding == "gpu-shared" else 1), found


@pytest.mark.parametrize(
    ("value", "finding"),
    [
        (None, None),
        ("0,1", None),
        ("", "cuda-visible-devices-empty"),
        ("NoDevFiles", "no-gpu-requested"),
        ("7", "cuda-visible-devices-invalid"),
        ("0,7,1", "cuda-visible-devices-invalid"),
        ("\x1b[31m", "cuda-visible-devices-invalid"),
    ],
)
def test_cuda_visible_devices(cluster: World, fake_driver: FakeDriver, value: str | None, finding: str | None) -> None:
    """Unset hides nothing; empty, out of range and NoDevFiles are three different findings."""
    cluster.jobs()
    fake_driver.gpus(2, memory_total=40 * GIB)
    env = {**INSIDE, **fake_driver.env(), "CUDA_VISIBLE_DEVICES": value}
    _code, found, _answer = ask(cluster, env=env)
    about = {"cuda-visible-devices-empty", "cuda-visible-devices-invalid", "no-gpu-requested"} & set(found)
    assert about == ({finding} if finding else set()), found
    assert "\x1b" not in cluster.run("doctor", env=env)[1]


def test_the_cuda_module(cluster: World) -> None:
    """A module system without a cuda module, unless the runtime is found all the same."""
    lmod = {"LMOD_CMD": "/usr/share/lmod/lmod", "LOADEDMODULES": "gcc/12:openmpi/4"}
    found = ask(cluster, env=lmod)[1]
    # A runtime in the loader's cache is found without a module.
    if b"libcudart" not in Path("/etc/ld.so.cache").read_bytes():
        assert "gcc/12" in found["cuda-module-not-loaded"]["evidence"]
    assert {"login-node", "nvidia-smi-missing"} <= set(found)
    assert "cuda-module-not-loaded" not in ask(cluster, env={**lmod, "LOADEDMODULES": "gcc/12:cuda/12.2"})[1]
    (cluster.folder / "lib").mkdir()
    (cluster.folder / "lib" / "libcudart.so.12").touch()
    assert "cuda-module-not-loaded" not in ask(cluster, env={**lmod, "LD_LIBRARY_PATH": f"{cluster.folder}/lib"})[1]


def test_the_scheduler_is_down(cluster: World) -> None:
    cluster.script("squeue", f"echo 'slurm_load_jobs error: {NAME!r}' >&2; exit 1")
    code, found, answer = ask(cluster)
    assert code == 1 and "scheduler-unreachable" in found and answer["try"] is None


def test_the_controllers_clock(cluster: World) -> None:
    cluster.script("scontrol", "echo Configuration data as of $(/bin/date -d '-10 min' +%FT%T)")
    code, found, _answer = ask(cluster)
    assert code == 1 and "clock-skew" in found


def test_the_set_up(cluster: World) -> None:
    """The hook is missing, then installed; an exit of one's own; a state folder that cannot be written."""
    shell = {"SHELL": "/bin/bash"}
    assert ask(cluster, env=shell)[1]["hook-inactive"]["remedy"] == "handwash install"
    assert cluster.run("install", "--shell", "bash", env=shell)[0] == 0
    with (cluster.home / ".bashrc").open("a") as file:
        file.write("alias exit='echo never'\n")
    # Below a bash, as a person types it.
    found = shell_says(cluster)
    assert "hook-inactive" not in found
    assert ".bashrc:" in found["exit-aliased"]["evidence"]
    assert "interpreter-unusable" not in found
    start_up = cluster.home / ".bashrc"
    start_up.write_text(
        start_up.read_text().replace(f"__handwash_python={sys.executable}", "__handwash_python=/gone/python")
    )
    assert "/gone/python" in shell_says(cluster)["interpreter-unusable"]["evidence"]
    state = cluster.folder / "state"
    state.touch()
    code, found, _answer = ask(cluster, env={"XDG_STATE_HOME": str(state)})
    assert code == 1 and "state-not-writable" in found


def shell_says(world: World) -> dict[str, Any]:
    import json

    code, said = world.shell("handwash doctor --json; exit $?")
    assert code in (0, 1), said
    return {one["id"]: one for one in json.loads(said)["findings"]}


def test_nothing_is_left_behind(cluster: World) -> None:
    """No file in the state folder, no process."""
    ask(cluster)
    state = cluster.home / ".local" / "state" / "handwash"
    assert [path.name for path in state.iterdir() if path.name.startswith("doctor")] == []
    done = subprocess.run(["/bin/ps", "-eo", "args"], capture_output=True, text=True)
    assert str(cluster.folder) not in done.stdout.replace(str(os.getpid()), "")
