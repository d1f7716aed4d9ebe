"""The catalogues: complete, equal in their parts to the English, and what a person in Chinese really gets to read."""

from __future__ import annotations

import gettext
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.catalog import Catalog

import handwash
from handwash import judge, limits, messages, render, tell, tell_clean, tell_idle, world
from handwash.cleaning import Returned
from handwash.commands import leave
from handwash.frozen import replace
from handwash.giveback import Done
from handwash.idle import Doing
from handwash.model import Gpu, GpuUse, Holder, Job, Node, Process, Site, Survey, Unknown, Verdict, Visibility
from handwash.run import Result
from handwash.schedulers import slurm_step
from handwash.schedulers.slurm_launchers import Step
from handwash.srun import confirm, receipt, stuck

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(handwash.__file__).parent
NOW = 1_800_000_000.0
GIB = 1024**3


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("handwash_messages_tool", ROOT / "tools" / "messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    yield
    messages.choose("en")


# The catalogues against the code


def test_every_message_is_translated() -> None:
    assert "zh_CN" in tool.catalogues()
    assert tool.check() == []


def test_messages_of_every_kind_are_found() -> None:
    found = tool.template()
    assert "COMMAND" in found
    assert "Could not tell who is on the GPUs: {why}" in found  # marked by N_
    assert ("{count} GPU", "{count} GPUs") in found


def faults(*changes: tuple[object, object], fuzzy: bool = False) -> list[str]:
    """The faults of a catalogue with these (English, Chinese) pairs, against a code with two messages."""
    wanted = Catalog()
    wanted.add("End {pid}: see `handwash clean`")
    wanted.add(("{count} job", "{count} jobs"))
    catalogue = Catalog(locale="zh_CN", fuzzy=False)
    right = {
        "End {pid}: see `handwash clean`": "结束 {pid}：请看 `handwash clean`",
        ("{count} job", "{count} jobs"): ("{count} 个作业",),
    }
    for english, chinese in {**right, **dict(changes)}.items():
        if chinese is not None:
            catalogue.add(english, chinese, flags=["fuzzy"] if fuzzy else [])
    return list(tool.faults_of(catalogue, wanted))


def test_a_right_catalogue_has_no_fault() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("english", "chinese", "fault"),
    [
        ("End {pid}: see `handwash clean`", None, "missing"),
        ("End {pid}: see `handwash clean`", "", "not translated"),
        ("End {pid}: see `handwash clean`", "结束：请看 `handwash clean`", "placeholders differ"),
        ("End {pid}: see `handwash clean`", "结束 {pid} {pid}：请看 `handwash clean`", "placeholders differ"),
        ("End {pid}: see `handwash clean`", "结束 {pid:>5}：请看 `handwash clean`", "placeholders differ"),
        ("End {pid}: see `handwash clean`", "结束 {pid：请看 `handwash clean`", "broken placeholder"),
        ("End {pid}: see `handwash clean`", "结束 {pid}：请看 `handwash 清理`", "backticks"),
        ("End {pid}: see `handwash clean`", "结束 {pid}：请看 `handwash clean` ", "space"),
        (("{count} job", "{count} jobs"), ("{count} 个作业", "{count} 个作业"), "plural forms"),
        (("{count} job", "{count} jobs"), ("一个作业",), "placeholders differ"),
        ("No longer there", "已不存在", "no longer in the code"),
    ],
)
def test_each_fault_is_found(english: object, chinese: object, fault: str) -> None:
    found = faults((english, chinese))
    assert len(found) == 1 and fault in found[0], found


def test_fuzzy_is_found() -> None:
    assert [fault.partition(":")[0] for fault in faults(fuzzy=True)] == ["fuzzy", "fuzzy"]


def test_the_compiled_catalogue_is_the_one_of_this_checkout() -> None:
    """hatch_build.py compiles it at each build and each editable install."""
    path = PACKAGE / "messages" / "locale" / "zh_CN" / "LC_MESSAGES" / "handwash.mo"
    assert path.is_file(), "not compiled: run `make messages`, or install again"
    with path.open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    wrong = []
    for message in tool.read(tool.catalogues()["zh_CN"], "zh_CN"):
        if message.id:
            plural = isinstance(message.id, tuple)
            got = compiled.ngettext(*message.id, 2) if plural else compiled.gettext(message.id)
            if got != (message.string[0] if plural else message.string):
                wrong.append(message.id)
    assert wrong == [], "stale: run `python tools/messages.py compile`, or install again"


def test_msgfmt_has_nothing_to_say() -> None:
    if shutil.which("msgfmt") is None:
        pytest.skip("msgfmt is not installed (Debian: apt-get install gettext)")
    done = subprocess.run(
        ["msgfmt", "--check", "--output-file=/dev/null", tool.catalogues()["zh_CN"]], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_updating_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue in the repository is as `tools/messages.py update` writes it."""
    here = tmp_path / "zh_CN" / "LC_MESSAGES"
    here.mkdir(parents=True)
    shutil.copy(tool.catalogues()["zh_CN"], here)
    before = (here / "handwash.po").read_text(encoding="utf-8")
    monkeypatch.setattr(tool, "LOCALES", str(tmp_path))
    tool.update()
    after = (here / "handwash.po").read_text(encoding="utf-8")

    def stable(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith(('"POT-Creation-Date', '"Generated-By'))]

    assert stable(after) == stable(before)


def test_a_damaged_catalogue_costs_the_translation_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "locale" / "zh_CN" / "LC_MESSAGES"
    here.mkdir(parents=True)
    (here / "handwash.mo").write_bytes(b"\xde\x12\x04\x95 and then nothing")
    monkeypatch.setattr(messages, "__file__", str(tmp_path / "__init__.py"))
    messages.choose("zh_CN")
    assert messages._("none") == "none"
    assert messages.ngettext("{count} GPU", "{count} GPUs", 2) == "{count} GPUs"


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C", "LC_ALL": "zh_CN.GB18030"}, "zh_CN"),
        ({"LC_ALL": "zh_CN.UTF-8", "HANDWASH_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "HANDWASH_LANG": "zh_CN"}, "zh_CN"),
        ({"LC_ALL": "", "LANG": "zh"}, "zh_CN"),
    ],
)
def test_the_language_is_chosen(variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "env", variables)
    assert messages.language() == language


# What a person reads

# Words of argparse's own, which has no Chinese.
ARGPARSE = ("show this help message and exit", "show program's version number and exit", "positional arguments")


def english_in(text: str) -> list[str]:
    """Runs of three English words and more: a sentence that was not translated."""
    for known in ARGPARSE:
        text = text.replace(known, "")
    return re.findall(r"(?<![\w/.-])(?:[A-Za-z][a-z']+[,;]? ){2,}[A-Za-z][a-z']+", text)


def test_english_is_recognised() -> None:
    assert english_in("3 of yours here, 2 left over") == ["of yours here"]
    assert english_in("作业 12 RUNNING：the job has left the queue") == ["the job has left the queue"]
    assert english_in("用法：handwash clean --yes，NVIDIA A100-SXM4-80GB，python  train.py") == []


def handwash_says(tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command as a hook starts it, by a person with an empty home and no scheduler."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(PACKAGE / "__main__.py"), *words],
        env={"HOME": str(tmp_path), "PATH": str(tmp_path), "LANG": "C.UTF-8", "HANDWASH_LANG": "zh_CN", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


COMMANDS = (
    "status", "where", "check", "clean", "cost", "sessions", "usage", "init", "install", "uninstall", "banner", "leave"
)  # fmt: skip


@pytest.mark.parametrize("words", [("--help",), *((command, "--help") for command in COMMANDS)], ids=" ".join)
def test_help_is_chinese(words: tuple[str, ...], tmp_path: Path) -> None:
    done = handwash_says(tmp_path, *words)
    assert done.returncode == 0
    assert re.search(r"[一-龥]", done.stdout)
    assert english_in(done.stdout) == []


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("status",),
        ("where",),
        ("check",),
        ("clean", "--dry-run"),
        ("clean", "1"),
        ("clean", "4194304"),
        ("clean", "--session", "20200101-000000-0", "--yes"),
        ("sessions",),
        ("cost",),
        ("cost", "--", "ls"),
        ("cost", "--", "srun", "-a"),
        ("cost", "--", "srun", "-N1-2", "--gres=gpu:1,shard:1", "-t60", "x"),
        ("cost", "--", "bash", "-c", "python x; for"),
        ("usage",),
        ("usage", "--since", "7d"),
        ("banner",),
        ("init", "cash"),
        ("install", "--shell", "bash"),
        ("install", "--shell", "cash"),
        ("uninstall",),
        ("wash",),
        ("safe-srun",),
        ("safe-srun", "--local"),
    ],
    ids=" ".join,
)
def test_commands_speak_chinese(words: tuple[str, ...], tmp_path: Path) -> None:
    done = handwash_says(tmp_path, *words)
    assert done.returncode != 70, done.stderr
    said = done.stdout + done.stderr
    assert re.search(r"[一-龥]", said), said
    # Command lines of the machine's own processes may hold any words: a table is not looked at here.
    assert english_in(re.sub(r"(?m)^ *\d+ .*$", "", said)) == []


def test_complaints_about_settings_are_chinese(tmp_path: Path) -> None:
    own = tmp_path / "handwash.toml"
    own.write_text('banner = "loud"\ngrace = "soon"\ncolour = 3\n')
    env = {"HANDWASH_CONFIG": str(own), "HANDWASH_DEADLINE": "soon", "HANDWASH_ON_EXIT": "perhaps"}
    done = handwash_says(tmp_path, "sessions", **env)
    assert len(done.stderr.splitlines()) == 5
    assert english_in(re.sub(r"full, line, off|ask, warn, clean, off", "", done.stderr)) == []


def a_process(pid: int, name: str, **changes: object) -> Process:
    fields: dict[str, object] = {
        "pid": pid,
        "ppid": 1,
        "start_ticks": pid,
        "started": NOW - 90,
        "uid": 1000,
        "user": "alice",
        "command": f"python {name}",
        "name": name,
        "state": "S",
        "cpu_s": 10.0,
        "rss": GIB,
        "terminal": 0,
        "sid": pid,
        "pgid": pid,
        **changes,
    }
    return Process(**fields)


PROCESSES = (
    a_process(101, "train.py", job="7", step="0", gpus=(0,), devices=("/dev/nvidia0",), computes=True),
    a_process(102, "数据加载.py", job="7", step="0"),
    a_process(103, "old.py", job="5"),
    a_process(104, "elsewhere.py", job="8"),
    a_process(105, "free.py"),
    a_process(106, "watched.py", session="20200101-000000-1"),
    a_process(107, "tmux"),
    a_process(108, "zombie.py", state="Z"),
    a_process(109, "other.py", uid=1001, user="bob", gpus=(1,)),
    a_process(110, "srun"),
)
JOBS = (
    Job("7", "7", "RUNNING", "bash", "gpu", ("n1",), 1, 3600, None, True),
    Job("8", "8", "PENDING", "array", "gpu", (), None, None, None, True),
    Job("9", "9", "RUNNING", "idle", "gpu", ("n2",), 2, 60, None, True),
)
GPUS = (
    Gpu(0, "GPU-0", "NVIDIA A100", 4 * GIB, 80 * GIB, 0.5, False, uses=(GpuUse(101, 4 * GIB, "compute"),)),
    Gpu(1, "GPU-1", "", None, None, None, True),
)
WORDS = ("", "dead", "zombie", "foreign", "hidden", "unlisted", "elsewhere", "monitor")
ODD = tuple(
    replace(
        GPUS[0],
        index=number,
        minor=number + 1,
        visible=visible,
        utilisation_over_s=20.0,
        utilisation_max=1.0,
        shared=True,
        sharing=("mig", "mps", "shard"),
        # One of each word, so that none is cut short, on a GPU of its own.
        holders=(Holder(109, GIB, kind, "driver", word, "" if word == "hidden" else "bob"),),
    )
    for number, (word, kind, visible) in enumerate(
        (word, kind, visible) for word in WORDS for kind in ("mps", "mps-server") for visible in (None, 0)
    )
)
NODE = Node("compute", "n1", "7", True, ("…",), (0,))


def a_survey(**changes: object) -> Survey:
    fields: dict[str, object] = {
        "node": NODE,
        "jobs": JOBS,
        "gpus": GPUS,
        "processes": PROCESSES,
        "site": Site("linuxproc", ("srun", "salloc")),
        **changes,
    }
    return Survey(**fields)


def told(seen: Survey) -> tuple[str, Verdict]:
    """All that `status` and `leave` say of a survey."""
    stream = io.StringIO()
    verdict = judge.judge(seen, 1000, NOW)
    render.say(tell.place(seen.node), stream)
    tell.three_looks(seen, verdict, stream)
    tell.process_table(verdict.judged, seen, NOW, stream)
    tell.summary(verdict, stream)
    for why in (*verdict.unknown, *(one.why for one in verdict.judged)):
        render.say(why, stream)
    return stream.getvalue(), verdict


@pytest.mark.parametrize("proctrack", ["linuxproc", "pgid", "cgroup", None])
@pytest.mark.parametrize("kind", ["login", "compute", "allocation-shell", "workstation"])
def test_what_is_told_is_chinese(kind: str, proctrack: str | None) -> None:
    messages.choose("zh_CN")
    job = "7" if kind in ("compute", "allocation-shell") else None
    text, _verdict = told(
        a_survey(node=Node(kind, "n1", job, False, (), held=1), site=Site(proctrack, ("srun", "salloc")))
    )
    assert english_in(text + tell.place(Node(kind, "n1", job, False, ()))) == []
    assert "GPU-hours" not in text and "卡时" in text


def test_what_is_odd_about_gpus_is_chinese() -> None:
    messages.choose("zh_CN")
    text, _verdict = told(a_survey(gpus=ODD, visibility=Visibility("list", "0", (0,))))
    assert english_in(text) == []
    for kind in ("none", "no-dev-files", "repeated", "list"):
        assert (
            english_in(told(a_survey(visibility=Visibility(kind, "7", (), "7")))[0].replace("CUDA_VISIBLE_DEVICES", ""))
            == []
        )
    because = Unknown("……", "driver-hangs")
    assert english_in(told(a_survey(gpus=because, gpus_in_part=ODD[:2]))[0]) == []


@pytest.mark.parametrize("at_work", [True, False])
@pytest.mark.parametrize("interactive", [True, False])
@pytest.mark.parametrize("word", ["empty", "held", "cpu", "disk"])
@pytest.mark.parametrize("over_s", [None, 20.0])
def test_what_is_idle_is_chinese(over_s: float | None, word: str, interactive: bool, at_work: bool) -> None:
    messages.choose("zh_CN")
    doing = (Doing(GPUS[0], word, over_s, 1.0),)
    said = "\n".join(tell_idle.say((doing, at_work), replace(JOBS[0], interactive=interactive), 1))
    assert said and english_in(said.replace("exit", "")) == []


def test_what_could_not_be_told_is_chinese() -> None:
    messages.choose("zh_CN")
    because = Unknown("……")
    text, verdict = told(a_survey(node=because, jobs=because, gpus=because, processes=because))
    assert verdict.verdict == "unknown"
    assert english_in(text) == []


def test_the_question_and_the_report_are_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    messages.choose("zh_CN")
    seen = a_survey()
    leave._warn(seen, judge.judge(seen, 1000, NOW))
    reasons = ("uninterruptible (x)", "other-user", "itself", "still", "restarted")
    (first, *_others) = judge.judge(seen, 1000, NOW).judged
    memory = tuple(Returned(index, 8 * GIB, 0, back) for index, back in enumerate((True, False, None)))
    done = Done((101,), (101,), tuple((first, why) for why in reasons), memory, seen, unchecked="……")
    tell_clean.done(done, seen)
    for agent in (first, replace(first, whose="service")):
        tell_clean.done(replace(done, left=((first, "restarted"),), agents=((101, agent),)), seen)
    tell_clean.plan((first,) * 5, seen, NOW)
    tell_clean.held_back(((first, "mps"), (first, "service")), seen)
    excesses = tuple(limits.Excess(kind, 9, 1, (first.process,)) for kind in ("cores", "memory", "threads", "gpu"))
    tell.over_limits(excesses)
    tell.outlived("7")
    tell.not_looked_at(("n2",))
    print(tell_clean.job_question(JOBS[0]), tell.job_hint(JOBS[0]))
    step = Step("7", "0", "bash", "vm", 1, None)
    print(
        tell_clean.step_question(step), tell_clean.step_hint(step), tell.batch_hint(("7",)), tell.batch_hint(("7", "8"))
    )
    said = capsys.readouterr()
    assert said.err and said.out
    assert english_in(said.out + said.err) == []


def test_receipts_are_chinese() -> None:
    messages.choose("zh_CN")
    said = [
        receipt.processes(0, 0, []),
        receipt.processes(1, 0, []),
        receipt.processes(3, 2, [(7, "D")]),
        receipt.processes(0, 0, [(7, "uninterruptible (x)"), (8, "other-user"), (9, "alive"), (10, "itself")]),
        *stuck.for_administrator([("n1", 7, "train.py", "uninterruptible (x)")], "7"),
        receipt.silent_nodes(1),
        receipt.silent_nodes(2),
        receipt.cost(None, 5),
        receipt.cost(2, 3600),
    ]
    for own in (True, False):
        target = slurm_step.Target(("7",), "0", own=own)
        for answer in queue_answers(target):
            for cancelled in (True, False):
                said.append(receipt.queue(target, confirm.Confirmation(answer, cancelled)))
    assert all(re.search(r"[一-龥]", line) for line in said), said
    assert english_in("\n".join(said)) == []


def queue_answers(target: slurm_step.Target) -> list[slurm_step.Answer]:
    """Every kind of answer that squeue can give about a job or step, with our words on it."""
    results = (
        Result(0, b"JOBID:STATE\n", b"", False),
        Result(0, b"7:RUNNING\n", b"", False),
        Result(None, b"", b"", True),
        Result(0, b"nonsense\n", b"", False),
        Result(3, b"", b"", False),
        Result(0, b"", b"", False),
    )
    found = [slurm_step.parse_queue(result) for result in results]
    assert [answer.word for answer in found] == ["gone", "there", *["unknown"] * 4]
    several = replace(target, cluster="near,far")
    return [*found, confirm.confirm(several, urgent=False, query=lambda _argv: results[0]).answer]


# Columns


def offset(line: str, text: str) -> int:
    """The terminal cell in which a text begins."""
    return render.width(line[: line.index(text)])


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_columns_line_up(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "env", {**os.environ, "NO_COLOR": "1"})
    messages.choose(language)
    stream = io.StringIO()
    seen = a_survey()
    verdict = judge.judge(seen, 1000, NOW)
    tell.process_table(verdict.judged, seen, NOW, stream)
    heading, *rows = stream.getvalue().splitlines()
    assert len(rows) == len(verdict.judged)
    columns = {
        messages._("user"): lambda one: f"{one.process.user} ",
        messages._("command"): lambda one: one.process.command,
        messages._("whose"): lambda one: tell.whose(one.whose),
        messages._("if you leave"): lambda one: tell.fate(one.fate),
    }
    for name, text in columns.items():
        wanted = offset(heading, name)
        found = {offset(row, text(one)) for row, one in zip(rows, verdict.judged)}
        assert found == {wanted}, (name, wanted, found)


def test_the_session_stands_beside_the_job_where_there_is_one() -> None:
    """Short, as `clean --session` takes it; a table without any session is no wider for it."""
    messages.choose("en")
    seen = a_survey(
        processes=(a_process(101, "train.py"), a_process(102, "eval.py", session="20260101-000000-0a0b0c0d0e0f"))
    )
    rows = judge.judge(seen, 1000, NOW).judged
    tables = []
    for some in (rows, rows[:1]):
        stream = io.StringIO()
        tell.process_table(some, seen, NOW, stream)
        tables.append(stream.getvalue().splitlines())
    (heading, first, second), (plain, alone) = tables
    place = heading.index("job, session")
    assert (first[place:].split()[:2], second[place:].split()[:2]) == (["-", "-"], ["-", "0a0b0c"])
    assert "session" not in plain and len(alone) < len(first) and "0a0b0c0d" not in second
    assert tell.short_session("x") == "x" and tell.short_session("0a0b0c-") == "0a0b0…"


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_the_three_looks_line_up(language: str) -> None:
    messages.choose(language)
    stream = io.StringIO()
    seen = a_survey()
    tell.three_looks(seen, judge.judge(seen, 1000, NOW), stream)
    lines = stream.getvalue().splitlines()
    starts = {offset(line, text) for line, text in zip(lines, ("7 ", "8 ", "9 ", "0: ", "1: "))}
    assert len(starts) == 1
