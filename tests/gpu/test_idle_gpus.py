"""Idle GPUs as a person in a job hears of them: real processes, real nvidia-ml-py over the fake driver, a script's queue."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tests.gpu.test_front_door_gpus import ALICE, DEVICES, Node
from tests.gpu.test_front_door_gpus import node as node
from tests.testbed.driver.fake import GIB

QUIET = ",".join(["0"] * 60)  # of ten seconds
SOME = ",".join(["0"] * 59 + ["30"])
ROW = "123|123|RUNNING|0|{elapsed}|UNLIMITED|1|1|cpu=1|N/A|gres:gpu:{gpus}|N/A|N/A|OK|main|n1|login1|4711|train\x1e\n"
ADVICE = "each hour costs 2 GPU-hours. Leave with exit, or: scancel 123"


class Shell:
    """A shell in a job that holds both GPUs for so long."""

    def __init__(self, node: Node, elapsed: str = "1:00:00", gpus: int = 2) -> None:
        self.node = node
        (node.folder / "squeue").write_text(
            f'#!/bin/sh\nwhile IFS= read -r l; do echo "$l"; done <{node.folder}/answer\n'
        )
        (node.folder / "squeue").chmod(0o755)
        state = node.folder / "state"
        state.mkdir(exist_ok=True)
        state.chmod(0o777)
        self.queue(elapsed, gpus)
        self.env = {"SLURM_JOB_ID": "123", "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0,1", "SLURM_CONF": "/dev/null"}
        node.driver.gpus(2, samples=QUIET)

    def queue(self, elapsed: str, gpus: int = 2) -> None:
        row = ROW.format(elapsed=elapsed, gpus=gpus).replace("|", "\x1f")
        (self.node.folder / "answer").write_text(row)

    def idle(self, **env: str) -> list[tuple[bool | None, str | None]]:
        return [(one["idle"], one["idle_why"]) for one in self.gpus(**env)]

    def gpus(self, **env: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.node.status(**{**self.env, **env})[1]["gpus"]["items"]
        return items

    def says(self, command: str, **env: str) -> str:
        done = self.node.run(command, **{**self.env, **env})
        return " ".join((done.stdout + done.stderr).split())

    def computes(self, code: str) -> subprocess.Popen[str]:
        """A program with the files of GPU 0 open."""
        opens = f"import os\nfor path in ('/dev/nvidia0', '/dev/nvidia-uvm'): os.open(path, 2)\nprint(1, flush=True)\n{code}"
        child = self.node.start([str(self.node.python), "-I", "-S", "-c", opens], ALICE)
        assert child.stdout and child.stdout.readline()
        self.node.driver.process(0, child.pid, 18 * GIB)
        return child


@pytest.fixture
def shell(node: Node) -> Shell:
    return Shell(node)


def test_gpus_that_do_nothing(shell: Shell) -> None:
    """Advice in all three, one line in the banner, no finding and no leftover: the exit code stays 0."""
    code, answer = shell.node.status(**shell.env)
    assert (code, answer["verdict"]) == (0, "clean")
    for one in answer["gpus"]["items"]:
        assert (one["idle"], one["idle_why"], one["not_busy_since"]) == (True, "empty", None)
        assert 9 <= one["idle_s"] <= 11
    line = "2 GPUs of job 123 (GPU 0, 1) have done nothing for the last "
    for command in ("status", "check", "banner"):
        said = shell.says(command)
        assert said.count(line) == 1 and said.count(ADVICE) == 1, said
    assert "最近" in shell.says("banner", HANDWASH_LANG="zh_CN") and "卡时" in shell.says(
        "banner", HANDWASH_LANG="zh_CN"
    )


def test_gpus_that_are_busy(shell: Shell) -> None:
    """One sample among sixty is enough; who leaves would take it from the other's work."""
    shell.node.driver.gpu(0, samples=SOME)
    assert shell.idle() == [(False, "busy"), (True, "empty")]
    said = shell.says("status")
    assert "1 GPU of job 123 (GPU 1) has done nothing" in said and "scancel" not in said
    shell.node.driver.gpu(1, samples=SOME)
    assert "nothing for the last" not in shell.says("status") and "scancel" not in shell.says("banner")
    shell.node.driver.gpus(2, samples=QUIET)
    assert shell.idle() == [(False, "busy-lately")] * 2
    assert shell.idle(HANDWASH_IDLE_AFTER="0") == [(True, "empty")] * 2


def test_what_cannot_be_told_is_not_idle(shell: Shell) -> None:
    """MIG's nought, no samples beside a program, a driver that hangs."""
    pid = shell.node.hold(*DEVICES)
    driver = shell.node.driver.process(1, pid, GIB)
    driver.fault("nvmlDeviceGetSamples", "NOT_SUPPORTED", gpu=1)
    driver.mig(0, gi=1)
    assert set(shell.idle(HANDWASH_IDLE_AFTER="0")) == {(None, "unknown")}
    for command in ("status", "banner"):
        said = shell.says(command, HANDWASH_IDLE_AFTER="0")
        assert "nothing for the last" not in said and "nobody on" not in said and "scancel" not in said
    driver.delay("nvmlInitWithFlags", "forever")
    assert set(shell.idle(HANDWASH_DEADLINE="1")) == {(None, None)}


def test_no_samples_and_nobody_there(shell: Shell) -> None:
    """Then of this moment alone."""
    shell.node.driver.fault("nvmlDeviceGetSamples", "NOT_SUPPORTED")
    assert [(one["idle"], one["idle_s"]) for one in shell.gpus()] == [(True, None)] * 2
    said = shell.says("banner")
    assert f"2 GPUs of job 123 (GPU 0, 1) have nobody on them at this moment; {ADVICE}" in said


def test_a_job_that_has_just_started(shell: Shell) -> None:
    shell.queue("9:59")
    assert shell.idle() == [(False, "job-started")] * 2
    assert "scancel" not in shell.says("banner") and "scancel" not in shell.says("status")
    assert shell.idle(HANDWASH_IDLE_AFTER="9") == [(True, "empty")] * 2
    shell.queue("INVALID")
    assert shell.idle(HANDWASH_IDLE_AFTER="9") == [(None, "unknown")] * 2


def test_memory_without_use(shell: Shell) -> None:
    """The commonest case; a program that has just started may be reading its model yet."""
    shell.computes("import time; time.sleep(100)")
    assert shell.idle() == [(False, "program-started"), (True, "empty")]
    assert shell.idle(HANDWASH_IDLE_AFTER="0") == [(True, "held"), (True, "empty")]
    said = shell.says("banner", HANDWASH_IDLE_AFTER="0")
    assert (
        "2 GPUs of job 123 (GPU 0, 1) have done nothing for the last" in said
        and "s, with 18.0 GiB held; " + ADVICE in said
    )
    # Of the same person, but left over from before: the GPUs are not why.
    assert "1 process is left over" in said


def test_a_data_loader_at_work(shell: Shell) -> None:
    """It holds memory and computes on the CPU: said as that, and nobody is sent away from it."""
    shell.computes("while True: pass")
    assert shell.idle(HANDWASH_IDLE_AFTER="0") == [(False, "cpu"), (True, "empty")]
    for command in ("status", "check"):
        said = shell.says(command, HANDWASH_IDLE_AFTER="0")
        assert "GPU 0: 18.0 GiB held, 0 % busy over the last" in said and "computes on the CPU" in said
        assert "1 GPU of job 123 (GPU 1) has done nothing" in said and "scancel" not in said
    said = shell.says("banner", HANDWASH_IDLE_AFTER="0")
    assert said.count("GPU 1) has done nothing") == 1 and "computes on the CPU" not in said


def test_since_when_it_has_not_been_seen_busy(shell: Shell) -> None:
    """By the note of earlier looks, in the state folder; readable by nobody else."""
    assert "Not seen busy since" not in shell.says("banner")
    (path,) = (shell.node.folder / "state" / "handwash").glob("idle.*")
    assert path.stat().st_mode & 0o777 == 0o600
    boot, job, gpu, busy, quiet = path.read_text().split("\n")[0].split(" ")
    earlier = [f"{boot} {job} GPU-00000000-0000-4000-8000-{n:012x} {busy} {int(quiet) - 1800}\n" for n in (0, 1)]
    path.write_text("".join(earlier))
    assert gpu.startswith("GPU-") and "Not seen busy since" in shell.says("banner")
    assert all(one["not_busy_since"].endswith("+00:00") for one in shell.gpus())
    shell.node.driver.gpu(0, samples=SOME)
    assert [one["not_busy_since"] is None for one in shell.gpus()] == [True, False]


def test_a_state_folder_that_cannot_be_written(shell: Shell) -> None:
    assert ADVICE in shell.says("banner", XDG_STATE_HOME="/proc/nowhere")


def test_outside_a_job_nothing_is_asked_and_nothing_written(shell: Shell) -> None:
    """The banner at login imports no more than it did, and starts nothing."""
    names = {}
    for place, env in (("job", shell.env), ("login", {})):
        done = shell.node.run("banner", **env, PYTHONPROFILEIMPORTTIME="1")
        names[place] = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert {"handwash.idle", "handwash.idle_looks", "handwash.tell_idle"} <= names["job"]
    assert not {name for name in names["login"] if "idle" in name} and "handwash.commands.banner" in names["login"]
    (path,) = (shell.node.folder / "state" / "handwash").glob("idle.*")
    path.unlink()
    done = shell.node.run("status", "--json")
    assert {one["idle"] for one in json.loads(done.stdout)["gpus"]["items"]} == {None}
    assert not path.exists()
