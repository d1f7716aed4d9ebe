"""What a shell inside a job is told of the node's GPUs: which it holds, under which numbers, and who is on them."""

from __future__ import annotations

import json

import pytest
from tests.slurm.test_check import batch
from tests.testbed.cluster import Cluster
from tests.testbed.driver.fake import GIB, FakeDriver

pytestmark = pytest.mark.usefixtures("handwash_venv")

# The job's second half begins when the program that holds the GPU has it open.
HOLD = """
exec 3< <(exec hold_gpu.py "/dev/nvidia$SLURM_STEP_GPUS" /dev/nvidia-uvm)
read -r _ pid <&3
echo "$SLURM_JOB_ID $pid"
handwash check --json
kill "$pid"
"""


def test_a_job_s_gpu_under_both_numbers_and_who_is_on_it(any_cluster: Cluster, fake_driver: FakeDriver) -> None:
    fake_driver.gpus(4).holders(GIB)
    with batch(any_cluster, "--gres=gpu:1"):  # the first GPU is somebody's: ours is the node's second
        argv = ["srun", "--gres=gpu:1", "bash", "-c", HOLD]
        out = any_cluster.run(argv, user="alice", env=fake_driver.env()).stdout
    first, rest = out.split("\n", 1)
    job, pid = first.split()
    answer = json.loads(rest)
    gpus = answer["gpus"]
    assert gpus["known"] and gpus["visible"] == {
        "kind": "list", "value": "1", "order": [1], "rejected": None, "ignored": [], "certain": True,
    }  # fmt: skip
    assert [(gpu["index"], gpu["visible_index"]) for gpu in gpus["items"]] == [(0, None), (1, 0), (2, None), (3, None)]
    (holder,) = gpus["items"][1]["holders"]
    assert (holder["pid"], holder["by"], holder["word"], holder["memory"]) == (int(pid), "both", "", GIB)
    (row,) = [one for one in answer["processes"]["items"] if one["pid"] == int(pid)]
    assert (row["gpus"], row["job"], row["whose"], row["user"]) == ([1], job, "session", holder["user"])
    assert [gpu["holders"] for gpu in gpus["items"] if gpu["index"] != 1] == [[], [], []]
