"""What the hook's first line says, from what the shell itself knows: the same in every shell."""

from __future__ import annotations

# The variables, and the line.
FIRST_LINES: list[tuple[dict[str, str], str]] = [
    ({}, "handwash: HOST: no job in this shell"),
    ({"SLURM_JOB_ID": "42"}, "handwash: HOST: allocation shell of job 42, still on this machine"),
    (
        {"SLURM_JOB_ID": "42", "SLURM_GPUS": "a100:2", "CUDA_VISIBLE_DEVICES": "0"},
        "handwash: HOST: allocation shell of job 42, still on this machine; GPUs asked for: a100:2; CUDA_VISIBLE_DEVICES=0",
    ),
    (
        {"SLURM_JOB_ID": "7", "SLURM_GPUS": "2", "HANDWASH_LANG": "zh"},
        "handwash：HOST：作业 7 的分配 shell，仍在这台机器上；申请的算力卡：2",
    ),
    (
        {"SLURM_JOB_ID": "7", "SLURM_GPUS": "2", "SLURMD_NODENAME": "n1"},
        "handwash: HOST: in job 7, on its compute node n1",
    ),
    ({"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "n1"}, "handwash: HOST: in job 42, on its compute node n1"),
    ({"LC_ALL": "zh_CN.GB18030"}, "handwash: HOST: no job in this shell"),
]
