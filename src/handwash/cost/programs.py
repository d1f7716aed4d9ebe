"""Programs that are known: those that run another command, and those that hold no GPU by themselves. Data only."""

from __future__ import annotations

import re

from handwash.frozen import frozen
from handwash.messages import N_

# Slurm's commands that start something, by its own names, and the name that counts.
STARTERS = {"srun": "srun", "safe-srun": "srun", "salloc": "salloc", "sbatch": "sbatch"}
# Of other schedulers, of other machines, and those that run commands later or many times: not read here.
ELSEWHERE = frozenset(
    "at batch bsub clush condor_submit crontab dsub jsub mosh msub parallel pbs_rsub pdsh pjsub qlogin qrsh rsh screen "
    "scrontab slogin ssh tmux xargs zellij "
    # Of workflows, which submit jobs by themselves.
    "airflow balsam cylc dask dask-scheduler flux jube luigi maestro makeflow merlin nextflow parsl pegasus-run qlaunch "
    "reframe rlaunch sky snakemake submitit toil".split()
)
SHELLS = frozenset("ash bash dash ksh mksh sh zsh".split())


@frozen
class Prefix:
    """A program that runs the command behind its own words. `short`: letters of options that take a value.

    `long`: long options that take the next word as their value. `words`: how many words of its own come before the command.
    """

    short: str = ""
    long: tuple[str, ...] = ()
    words: int = 0


# From the manual pages of coreutils 9, util-linux 2.38, bash 5.2, sudo 1.9, numactl 2.0.
PREFIXES = {
    "builtin": Prefix(),
    "chrt": Prefix(short="TPD", long=("sched-runtime", "sched-period", "sched-deadline"), words=1),
    "command": Prefix(),
    "exec": Prefix(short="a"),
    "ionice": Prefix(short="cnpPu", long=("class", "classdata")),
    "nice": Prefix(short="n", long=("adjustment",)),
    "nohup": Prefix(),
    "numactl": Prefix(
        short="iNCmpP",
        long=(
            "interleave",
            "cpunodebind",
            "physcpubind",
            "membind",
            "preferred",
            "preferred-many",
            "cpubind",
        ),
    ),
    "setsid": Prefix(),
    "stdbuf": Prefix(short="ioe", long=("input", "output", "error")),
    "sudo": Prefix(
        short="CDghpRrTtUu",
        long=(
            "user",
            "group",
            "chdir",
            "host",
            "prompt",
            "role",
            "type",
            "close-from",
            "command-timeout",
            "other-user",
        ),
    ),
    "taskset": Prefix(words=1),
    "time": Prefix(short="fo", long=("format", "output")),
    "timeout": Prefix(short="ks", long=("kill-after", "signal"), words=1),
    "unbuffer": Prefix(),
    "watch": Prefix(short="nq", long=("interval", "equexit")),
}

_ASKS = N_("{program} asks the scheduler and holds nothing.")
_HOLDS_BACK = N_("{program} makes jobs wait: it holds no GPU.")
_ENDS = N_("{program} ends jobs or steps: it gives GPUs back.")
_LOOKS = N_("{program} looks at the GPUs and holds none.")
_HANDWASH = N_("{program} looks around and cleans up; it holds no GPU.")
_LEAVES = N_("{program} leaves this shell; the allocation that a shell of srun or salloc holds is given back with it.")
_FILES = N_("{program} runs on the CPU alone.")

# Interpreters: what counts is their script (`cost.signs`), not they themselves.
INTERPRETER = re.compile(r"(?:i?python|pypy|perl|ruby|lua|julia|node|Rscript|php|tclsh)[\d.]*", re.ASCII)
# Of the harmless ones, those that run a command which stands among their words; the rest never does.
RUNS_WORDS = frozenset(
    "ed emacs info less more nano nvim pico rsync scp sed sftp sort split strigger svn tar vi view vim zip".split()
)
# git does too, but not behind these of its words: what follows them is text for people.
GIT_TEXT = frozenset("add branch commit log mv rm status tag".split())

# Each program with its reason; Slurm's by its own names.
HARMLESS: dict[str, str] = {
    **dict.fromkeys(
        "sacct sattach sbcast sdiag seff sgather sinfo smap sprio squeue sreport sshare sstat strigger sview "
        "pbs_rstat pbsnodes qmsg qselect qstat tracejob".split(),
        _ASKS,
    ),
    **dict.fromkeys("pbs_rdel pbs_release_nodes qdel scancel".split(), _ENDS),
    "qhold": _HOLDS_BACK,
    **dict.fromkeys(
        "amd-smi gpustat hy-smi ixsmi mthreads-gmi mx-smi npu-smi nvidia-smi nvitop nvtop rocm-smi".split(), _LOOKS
    ),
    "handwash": _HANDWASH,
    **dict.fromkeys(("exit", "logout"), _LEAVES),
    **dict.fromkeys(
        ": [ alias basename bg bind break bzip2 cal cat cd chgrp chmod chown clear cmp comm compgen complete continue "
        "cp curl cut date dd declare df diff dirname dirs disown du echo ed egrep emacs enable export expr false fg "
        "fgrep file fold free getent getopts git grep groups gunzip gzip hash head help history host hostname htop id "
        "info jobs join kill last less let ln local locale ls lscpu lsof man mapfile md5sum mkdir mktemp ml module "
        "more mv nano nl nproc nvim od paste pgrep pico popd printenv printf ps pushd pwd read readarray readlink "
        "realpath rehash reset return rm rmdir rsync scp sed seq set sftp sha256sum shift shopt sleep sort split stat "
        "stty sum suspend svn sync tac tail tar tee test times top touch tput tr trap tree true tty type typeset "
        "ulimit umask unalias uname uniq unlink unset unxz unzip uptime vi view vim vmstat w wait wc wget whatis "
        "whereis which who whoami xz yes zcat zip zstd".split(),
        _FILES,
    ),
}
# scontrol's words that only ask, or that hold jobs back (scontrol(1)); the rest changes jobs and can start them.
SCONTROL_ASKS = frozenset(
    "all abort completing details errnumstr getaddrs help hold exit hide listjobs listpids liststeps local oneliner "
    "pidinfo ping quiet quit show suspend token uhold verbose version wait_job write".split()
)
# PBS's commands that change jobs or queues, and can let jobs start or run longer (pbs.8B).
CHANGES = frozenset("pbs_ralter qalter qmgr qmove qorder qrerun qrls qrun qsig".split())
