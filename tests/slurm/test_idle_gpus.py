"""Idle GPUs on a real cluster: which ones a job holds and for how long is Slurm's own word, what they do the driver's."""

from __future__ import annotations

import json
import re

import pytest
from tests.testbed.cluster import Cluster
from tests.testbed.driver.fake import FakeDriver

pytestmark = pytest.mark.usefixtures("handwash_venv")

QUIET = ",".join(["0"] * 60)
# Until the queue says that the job is a second old: its clock has whole seconds.
AGED = 'until [ "$(squeue -h -j $SLURM_JOB_ID -o %M)" != 0:00 ]; do sleep 0.1; done; '


def in_job(cluster: Cluster, driver: FakeDriver, script: str, *words: str, **env: str) -> str:
    argv = ["srun", "-w", "n1", *words, "sh", "-c", script]
    done = cluster.run(argv, user="alice", env={**driver.env(), "HANDWASH_LANG": "en", **env})
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def test_a_job_of_its_own(cluster: Cluster, fake_driver: FakeDriver) -> None:
    """Young it is not idle; older it is, those GPUs alone that Slurm has given it, with the way out of that very job."""
    driver = fake_driver.gpus(4, samples=QUIET)
    ask = "handwash status --json"
    answer = json.loads(in_job(cluster, driver, ask, "--gres=gpu:1"))
    assert sorted(str(one["idle_why"]) for one in answer["gpus"]["items"]) == ["None"] * 3 + ["job-started"]
    script = f"{AGED}{ask}; handwash banner; echo job=$SLURM_JOB_ID gpus=$SLURM_STEP_GPUS$SLURM_JOB_GPUS"
    text = in_job(cluster, driver, script, "--gres=gpu:1", HANDWASH_IDLE_AFTER="0.01")
    found, end = json.JSONDecoder().raw_decode(text)
    told = re.search(r"job=(\d+) gpus=(\d)", text)
    assert told, text
    idle = [one["node_index"] for one in found["gpus"]["items"] if one["idle"]]
    assert idle == [int(told.group(2))] and found["verdict"] == "clean"
    assert f"1 GPU of job {told.group(1)} (GPU {idle[0]}) has done nothing for the last " in text[end:]
    assert f"each hour costs 1 GPU-hour. Leave with exit, or: scancel {told.group(1)}\n" in text[end:]


def test_a_part_of_a_job(any_cluster: Cluster, fake_driver: FakeDriver) -> None:
    """Beside GPUs that work, or on other nodes, nobody is told to leave."""
    driver = fake_driver.gpus(2, samples=QUIET).gpu(1, samples=f"{QUIET},90")
    aged = {"HANDWASH_IDLE_AFTER": "0.01"}
    text = in_job(any_cluster, driver, f"{AGED}handwash status", "--gres=gpu:2", **aged)
    assert re.search(r"1 GPU of job \d+ \(GPU 0\) has done nothing for the last", text) and "scancel" not in text
    driver.gpus(2, samples=QUIET)
    script = f"[ $SLURM_NODEID = 1 ] && exit; {AGED}handwash status"
    argv = ["srun", "-N2", "--gres=gpu:2", "sh", "-c", script]
    env = {**driver.env(), "HANDWASH_LANG": "en", **aged}
    done = any_cluster.run(argv, user="alice", env=env)
    assert re.search(r"2 GPUs of job \d+ \(GPU 0, 1\) have done nothing", done.stdout), done
    assert "scancel" not in done.stdout
