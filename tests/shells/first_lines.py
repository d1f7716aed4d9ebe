"""What the hook's first line says, from what the shell itself knows: the same in every shell."""

from __future__ import annotations

# What MOM sets in every process of a PBS job; a subjob of an array has brackets in its id.
IN_PBS = {"PBS_JOBID": "12[3].vm", "PBS_ENVIRONMENT": "PBS_INTERACTIVE"}

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
    (IN_PBS, "handwash: HOST: in job 12[3].vm, on its compute node HOST"),
    (
        {"PBS_JOBID": f"1234567.{'pbs.' * 15}edu", "PBS_ENVIRONMENT": "PBS_BATCH"},
        f"handwash: HOST: in job 1234567.{'pbs.' * 15}edu, on its compute node HOST",
    ),
    (
        {**IN_PBS, "CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2", "HANDWASH_LANG": "zh"},
        "handwash：HOST：作业 12[3].vm，在它的计算节点 HOST 上；CUDA_VISIBLE_DEVICES=GPU-a1,GPU-b2",
    ),
    # What is left of another scheduler names no job.
    (
        {**IN_PBS, "SLURM_JOB_ID": "", "SLURMD_NODENAME": "n1", "SLURM_GPUS": "2"},
        "handwash: HOST: in job 12[3].vm, on its compute node HOST",
    ),
    ({**IN_PBS, "SLURM_JOB_ID": "42"}, "handwash: HOST: allocation shell of job 42, still on this machine"),
    ({"PBS_JOBID": "12.vm"}, "handwash: HOST: no job in this shell"),
    ({"PBS_JOBID": "12.vm", "PBS_ENVIRONMENT": ""}, "handwash: HOST: no job in this shell"),
    ({"PBS_ENVIRONMENT": "PBS_BATCH"}, "handwash: HOST: no job in this shell"),
    ({"LC_ALL": "zh_CN.GB18030"}, "handwash: HOST: no job in this shell"),
]
