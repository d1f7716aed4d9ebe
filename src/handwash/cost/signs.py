"""Signs of a scheduler's starter in text that is not taken apart: scripts of any language, loops, words in quotes. Pure.

A sign makes an answer unknown; that there is none proves nothing, so the reasons say what was not read.
"""

from __future__ import annotations

import os
import re

from handwash import slurm_names
from handwash.frozen import frozen
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Union


def _names(*programs: str) -> str:
    """Those of Slurm's programs, under each of their names: the settings are known before this file is loaded."""
    return "|".join(re.escape(name) for program in programs for name in slurm_names.candidates(program))


# What makes jobs wherever it stands, within a job too: Slurm's two, those of other schedulers, and libraries for them.
_JOB = (
    rf"{_names('salloc', 'sbatch')}|scrontab|qsub|qlogin|qrsh|qrerun|qrls|pbs_rsub|bsub|jsub|dsub|msub|pjsub|condor_submit|"
    r"snakemake|nextflow|qlaunch|submitit\w*|dask_jobqueue|SLURMCluster|SlurmCluster|PBSCluster|drmaa|pyslurm|simple_slurm|"
    rf"(?:{_names('scontrol')})\s{{1,9}}requeue\w*"
)
_STEP = f"safe-srun|{_names('srun')}"
# `/usr/bin/sbatch` is one, `job.sbatch`, `sbatch.log`, `--sbatch` and the folder `sbatch/` are none.
_AROUND = r"(?<![\w.-])({})(?![\w.\-/])"
JOB = re.compile(_AROUND.format(_JOB))
ANY = re.compile(_AROUND.format(f"{_JOB}|{_STEP}"))
# srun makes a step within a job, but not where the number of the job is taken away before.
# All repetitions are bounded: a file may be one line of 256 KiB.
_FORGETS = re.compile(
    r"\bunset\b[^\n;]{0,200}?\bSLURM_JOB|(?:\s-u\s{0,9}|--unset[= ])SLURM_JOB|(?:^|[;&\s])SLURM_JOB_ID=(?:\"\"|'')?(?=[\s;]|$)|"
    r"\benv\s{1,9}(?:-i|-|--ignore-environment)\s|"
    rf"\bsudo\s[^\n;]{{0,200}}?\b(?:{_names('srun')})\b|"
    r"(?:pop\(\s{0,9}|\bdel\s[^\n]{0,200}?)['\"]SLURM_JOB",
    re.MULTILINE,
)
# Other machines and schedulers where a command stands, in code that is more than a list of commands.
_FIRST = r"(?:^|[;&|(`{{]|\b(?:do|then|else|exec|nohup|time|eval)\s)[ \t]{{0,200}}(?:[\w.~/+-]{{0,200}}/)?({})(?=[\s;&|)`]|$)"
_ELSEWHERE = re.compile(
    _FIRST.format(r"at|batch|clush|parallel|pdsh|rsh|screen|slogin|ssh|tmux|xargs|zellij|eval|[\"']?\$\S{1,80}"),
    re.MULTILINE,
)
_INTERPRETERS = r"(?:ba|da|k|mk|z|a|c|tc|fi)?sh|python[\d.]{0,9}|perl|Rscript|node|ruby|julia|lua|php|tclsh|expect"
_WORD = r"'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\s;|&<>()'\"`]{1,400}"
_RUN = re.compile(
    rf"(?:^|[\s;&|(`'\"/])({_INTERPRETERS})((?:[ \t]{{1,40}}-[^\s;|&]{{0,100}}){{0,9}})[ \t]{{1,40}}({_WORD})",
    re.MULTILINE,
)
_SOURCE = re.compile(
    rf"(?:^|[;&|({{`]|\b(?:do|then|else)\s)[ \t]{{0,200}}(?:source|\.)[ \t]{{1,40}}({_WORD})", re.MULTILINE
)
_PATH = re.compile(
    r"(?:^|[\s;&|(`'\"=])((?:~|\.{1,2}|\$\w{1,80}|\$\{\w{1,80}\})?/[\w./+${}-]{1,400}|"
    r"[\w+-][\w.+-]{0,200}\.(?:sh|bash|py|pl|R|slurm|sbatch|pbs|job))(?=[\s;&|)`'\"]|$)",
    re.MULTILINE,
)
_CODE_OPTION = re.compile(r"(?<![\w-])-[A-Za-z]*[ce]\b")
# How a file is met: a word that may be one, a script of some interpreter, a shell's.
_MAYBE, _SCRIPT, _SHELL = range(3)
# As many files as one text may name before the search is given up; each is read once.
_MOST_FILES = 40


@frozen
class Signs:
    """`word`: the first sign, or "". `unread`: files that the text runs and that could not be read."""

    word: str = ""
    unread: tuple[str, ...] = ()


def in_text(
    text: str,
    read: Callable[[str], Union[str, Unknown, None]],
    *,
    inside: bool,
    code: bool = False,
    seen: set[str] | None = None,
) -> Signs:
    """The signs in a text, and in the scripts that it runs, as far as their names stand in it.

    `read` gives a file's text, "" where it is no text, None where there is no such file. `inside`: in a job, where srun makes
    steps alone. `code`: shell code, where other machines' commands count too.
    """
    seen = set() if seen is None else seen
    text = _without_comments(text)
    inside = inside and not _FORGETS.search(text)
    found = (JOB if inside else ANY).search(text) or (_ELSEWHERE.search(text) if code and not inside else None)
    if found:
        return Signs(found[1])
    unread: list[str] = []
    for path, kind in _files(text):
        if path in seen:
            continue
        if len(seen) >= _MOST_FILES:
            unread.append(path)
            break
        seen.add(path)
        inner = None if "$" in path else read(path)
        if inner is None or isinstance(inner, Unknown):
            if kind == _SHELL or (kind == _SCRIPT and inner is not None):
                unread.append(path)
            continue
        deeper = in_text(inner, read, inside=inside, code=code and kind == _SHELL, seen=seen)
        if deeper.word:
            return deeper
        unread += deeper.unread
    return Signs("", tuple(dict.fromkeys(unread)))


def _without_comments(text: str) -> str:
    """Without the lines that are comments; lines that go on are joined."""
    kept = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    return "\n".join(kept).replace("\\\n", " ")


def _files(text: str) -> list[tuple[str, int]]:
    """The files that a text may run, and how."""
    found: dict[str, int] = {}

    def add(word: str, kind: int) -> None:
        word = word.strip("'\"")
        if word and not word.startswith("-"):
            found[word] = max(kind, found.get(word, kind))

    for match in _RUN.finditer(text):
        if not _CODE_OPTION.search(match[2]) and not (match[2].rstrip().endswith("-m")):
            add(match[3], _SHELL if match[1].endswith("sh") else _SCRIPT)
    for match in _SOURCE.finditer(text):
        # `source activate` finds its file along the PATH.
        add(match[1], _SHELL if "/" in match[1] or "." in match[1] else _MAYBE)
    for match in _PATH.finditer(text):
        add(match[1], _SHELL if os.path.splitext(match[1])[1] in (".sh", ".bash") else _MAYBE)
    return list(found.items())
