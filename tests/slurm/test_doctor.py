"""`handwash doctor` on a real cluster: the line it gives to type works there, and each place is told for what it is."""

from __future__ import annotations

from typing import Any

import pexpect
import pytest
from tests.slurm.test_check import ask
from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.usefixtures("handwash_venv")


def found(cluster: Cluster, *words: str, **options: Any) -> dict[str, dict[str, str]]:
    """The findings by id."""
    code, answer = ask(cluster, *words, "handwash", "doctor", **options)
    assert code == (1 if any(one["severity"] == "problem" for one in answer["findings"]) else 0), answer
    return {one["id"]: one for one in answer["findings"]}


def test_the_line_to_type_works_here(cluster: Cluster) -> None:
    """Partitions and idle GPUs as they are now; that very line, typed, gives a shell in a job with one GPU."""
    code, answer = ask(cluster, "handwash", "doctor")
    assert code == 0 and {"login-node", "proctrack"} <= {one["id"] for one in answer["findings"]}, answer
    (partition,) = answer["partitions"]
    assert (partition["name"], partition["default"], partition["gpus"], partition["idle"]) == ("main", True, 4, 4)
    shown = cluster.run(["handwash", "doctor"], user="alice").stdout
    assert shown.rstrip().endswith(answer["try"])
    env = {**cluster.env("alice"), "TERM": "dumb", "PS1": "> "}
    shell = pexpect.spawn(
        "/bin/bash", ["--norc", "-c", answer["try"]], env=env, preexec_fn=cluster.become("alice"),
        encoding="utf-8", timeout=30, echo=False,
    )  # fmt: skip
    try:
        shell.sendline("echo job=$SLURM_JOB_ID gpus=$CUDA_VISIBLE_DEVICES.")
        shell.expect(r"job=(\d+) gpus=0\.")
        job = shell.match.group(1)
        assert (job, "RUNNING") in [row[:2] for row in cluster.jobs()]
        (partition,) = ask(cluster, "handwash", "doctor")[1]["partitions"]
        assert partition["idle"] == 3
        shell.sendline("exit")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert cluster.wait_no_jobs(20)


def test_each_place(any_cluster: Cluster) -> None:
    """In a job that asked for no GPU, in one with a GPU, in the shell of an allocation, with the variable set wrong."""
    cluster = any_cluster
    assert "no-gpu-requested" in found(cluster, "srun", "-w", "n1")
    inside = found(cluster, "srun", "-w", "n1", "--gres=gpu:1")
    assert not {"no-gpu-requested", "login-node", "no-job", "cuda-visible-devices-invalid"} & set(inside), inside
    assert "allocation-shell" in found(cluster, "salloc", "-Q", "--gres=gpu:1")
    empty = found(cluster, "srun", "-w", "n1", "--gres=gpu:1", "env", "CUDA_VISIBLE_DEVICES=")
    assert "cuda-visible-devices-empty" in empty


def test_what_leaving_does_here(cluster: Cluster) -> None:
    """The site's process tracking, and what it means at exit."""
    said = found(cluster)["proctrack"]
    assert said["evidence"] == f"ProctrackType=proctrack/{cluster.proctrack}"


def test_the_controller_is_down(any_cluster: Cluster) -> None:
    """Said, within the deadline; no line to type is made up."""
    any_cluster.stop_controller()
    try:
        code, answer = ask(any_cluster, "handwash", "doctor", env={"HANDWASH_DEADLINE": "1"})
        assert code == 1 and answer["try"] is None
        assert "scheduler-unreachable" in [one["id"] for one in answer["findings"]]
    finally:
        any_cluster.start_controller()
