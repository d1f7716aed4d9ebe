"""The commands as a person and a script meet them: exit codes, the JSON objects, and every broken world around them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAIN = ROOT / "src" / "handwash" / "__main__.py"
HANDWASH = [sys.executable, "-I", "-S", str(MAIN)]

TEXT, NUMBER, LIST = (str,), (int, float), (list,)
NODE = {"kind": TEXT, "host": TEXT, "job": (str, type(None)), "container": (bool,), "why": LIST}
LOOK = {"known": (bool,), "why": (str, type(None)), "items": LIST}
CHECK = {"schema": (int,), "verdict": TEXT, "node": (dict,), "jobs": (dict,), "gpus": (dict,), "processes": (dict,)}
PROCESS = {
    "pid": (int,),
    "started": TEXT,
    "user": TEXT,
    "command": TEXT,
    "job": (str, type(None)),
    "session": (str, type(None)),
    "gpus": LIST,
    "devices": LIST,
    "whose": TEXT,
    "fate": TEXT,
}
JOB = {
    "id": TEXT,
    "state": TEXT,
    "name": TEXT,
    "partition": TEXT,
    "nodes": LIST,
    "gpus": (int, type(None)),
    "elapsed_s": (int, type(None)),
    "limit_s": (int, type(None)),
    "gpu_hours": (int, float, type(None)),
    "interactive": (bool, type(None)),
}
GPU = {
    "index": (int,),
    "uuid": TEXT,
    "name": TEXT,
    "memory_used": (int, type(None)),
    "memory_total": (int, type(None)),
    "utilisation": (int, float, type(None)),
    "shared": (bool,),
}
CLEAN = {"schema": (int,), "ended": LIST, "killed": LIST, "left": LIST, "memory": LIST}
WHOSE = {"session", "living-job", "ended-job", "no-job", "login-work", "service", "other-user"}
FATES = {"survives", "ends-with-job", "unknown"}
KINDS = {"login", "compute", "allocation-shell", "workstation"}

# One running array task, whose name holds whatever a name can hold.
FIELDS = "123|120_3|RUNNING|0|1:00:00|UNLIMITED|1|1|cpu=1|N/A|gres:gpu:2|N/A|N/A|OK|main|n1|login1|4711|".replace(
    "|", "\x1f"
)
NAME = "\x1b[31mred\x1b]0;title\x07\u202e\x1f\n名"


def shape(thing: dict[str, Any], of: dict[str, tuple[type, ...]]) -> None:
    """Every key of the contract is there, with a value of its kind."""
    for key, kinds in of.items():
        assert key in thing, key
        assert isinstance(thing[key], kinds) and (bool in kinds or not isinstance(thing[key], bool)), (key, thing[key])


class World:
    """A home, a PATH and a cluster of scripts; `run` gives (exit code, stdout, stderr)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.home = folder / "home"
        for path in (self.bin, self.home):
            path.mkdir()
        (folder / "slurm.conf").write_text("NodeName=elsewhere\n")
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "SLURM_CONF": str(folder / "slurm.conf"),
            "LANG": "C.UTF-8",
            "XDG_CONFIG_DIRS": str(folder / "etc"),
        }
        self.script("squeue", "exit 0")
        self.script("scontrol", "echo ProctrackType = proctrack/cgroup")

    def script(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def jobs(self) -> None:
        answer = self.folder / "answer"
        answer.write_text(f"{FIELDS}{NAME}\x1e\n")
        self.script("squeue", f"exec /bin/cat {answer}")

    def run(self, *words: str, **options: Any) -> tuple[int, str, str]:
        env = {**self.env, **options.pop("env", {})}
        env = {name: value for name, value in env.items() if value is not None}
        options.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(
            [*HANDWASH, *words], env=env, capture_output=True, encoding="utf-8", errors="replace", timeout=30, **options
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str, **options: Any) -> tuple[int, dict[str, Any]]:
        code, out, err = self.run(*words, "--json", **options)
        assert out, err
        answer = json.loads(out)
        assert answer["schema"] == 1 and out.isascii()
        return code, answer

    def shell(self, command: str, **options: Any) -> tuple[int, str]:
        """A shell's command line in which `handwash` is handwash; (its exit code, all that it said)."""
        line = command.replace("handwash", " ".join(f"'{word}'" for word in HANDWASH), 1)
        env = {**options.pop("env", self.env), "PATH": f"{self.bin}:/usr/bin:/bin"}
        done = subprocess.run(
            ["/bin/bash", "-c", line], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=30, **options,
        )  # fmt: skip
        return done.returncode, done.stdout


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A login node of a cluster that answers, with nothing in the queue."""
    return World(tmp_path)


# The objects


def test_where(world: World) -> None:
    """`where --json`: the kind with its evidence."""
    code, answer = world.json("where")
    shape(answer, NODE)
    assert (code, answer["kind"], answer["job"]) == (0, "login", None) and answer["why"]


def test_the_shell_of_an_allocation(world: World) -> None:
    """How many GPUs are held, and that this shell is not on them; where the queue is silent, no number is made up."""
    world.jobs()
    env = {"SLURM_JOB_ID": "123"}
    said = "you hold 2 GPUs in job 123, but this shell is on the login node"
    for command in ("where", "check", "status", "banner"):
        _code, out, err = world.run(command, env=env)
        assert said in out + err, command
    findings = world.json("doctor", env=env)[1]["findings"]
    assert [one["what"] for one in findings if said[4:] in one["what"]], findings
    world.script("squeue", "exit 1")
    assert "shell of your allocation 123" in world.run("where", env=env)[1]


def test_where_could_not_tell(world: World) -> None:
    """A slurm.conf on a file server that hangs: null with the reason; the host's name is there all the same."""
    (world.folder / "slurm.conf").unlink()
    os.mkfifo(world.folder / "slurm.conf")
    code, answer = world.json("where", env={"HANDWASH_DEADLINE": "1"})
    assert code == 3 and answer["why"]
    assert [answer[key] for key in ("kind", "job", "container")] == [None, None, None]
    assert answer["host"] == world.json("check", env={"HANDWASH_DEADLINE": "1"})[1]["node"]["host"]
    assert answer["host"] == os.uname().nodename.split(".")[0]


@pytest.mark.parametrize("command", ["check", "status"])
def test_check(world: World, command: str) -> None:
    """`check --json` and `status --json`: verdict, node and three looks, every item in its shape."""
    world.jobs()
    # One process of one's own outside the caller's ancestry: a machine with nothing else on it has none to show.
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as sleeper:
        try:
            code, answer = world.json(command)
        finally:
            sleeper.kill()
    shape(answer, CHECK)
    shape(answer["node"], NODE)
    assert answer["node"]["kind"] in KINDS
    for look, items in (("jobs", JOB), ("gpus", GPU), ("processes", PROCESS)):
        shape(answer[look], LOOK)
        assert answer[look]["known"] == (answer[look]["why"] is None)
        for item in answer[look]["items"]:
            shape(item, items)
    assert answer["processes"]["known"]
    assert sleeper.pid in [item["pid"] for item in answer["processes"]["items"]]
    for item in answer["processes"]["items"]:
        assert item["whose"] in WHOSE and item["fate"] in FATES
        assert item["started"].endswith("+00:00")
    (job,) = answer["jobs"]["items"]
    assert (job["id"], job["name"], job["gpus"], job["gpu_hours"], job["limit_s"]) == ("120_3", NAME, 2, 2.0, None)
    assert code == {"clean": 0, "leftover": 1, "unknown": 3}[answer["verdict"]]


def test_the_defunct_are_told_apart(world: World) -> None:
    """Processes that have ended and wait for their parent: counted apart, with the parent's number and name."""
    code = "import os, time\nfor _ in range(40):\n if not os.fork(): os._exit(0)\nprint(flush=True); time.sleep(60)"
    argv = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None and parent.stdout.readline()
            name = os.path.basename(sys.executable)
            for command in ("check", "status", "banner"):
                _code, out, err = world.run(command)
                found = re.search(r"(\d+) of them are defunct and hold no GPU \(parent: (.*)\)", out + err)
                assert found and int(found[1]) >= 40, out + err
                assert f"{parent.pid} {name}" in found[2]
        finally:
            parent.kill()


def test_check_could_not_tell(world: World) -> None:
    """A queue that cannot be read is unknown, with the reason; the other looks are still there."""
    world.script("squeue", "echo 'slurm_load_jobs error: \x1b[31mred' >&2; exit 1")
    code, answer = world.json("check")
    assert code == 3 and answer["verdict"] == "unknown"
    assert answer["jobs"]["known"] is False and "red" in answer["jobs"]["why"] and answer["jobs"]["items"] == []
    assert answer["processes"]["known"]
    code, out, err = world.run("check")
    assert code == 3 and "\\x1b[31mred" in out and "\x1b" not in out + err


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("command", ["status", "clean"])
def test_how_to_end_a_batch_job(world: World, command: str, count: int) -> None:
    """One line however many there are, none that ends them all when it is copied; running is no finding."""
    batch = FIELDS.replace("\x1f0\x1f", "\x1f1\x1f", 1)
    rows = [batch.replace("123\x1f120_3", f"{700 + number}\x1f{700 + number}") for number in range(count)]
    answer = world.folder / "answer"
    answer.write_text("".join(f"{row}train\x1e\n" for row in rows))
    world.script("squeue", f"exec /bin/cat {answer}")
    code, out, _err = world.run(command)
    (line,) = [line for line in out.splitlines() if "scancel" in line]
    assert line.endswith("scancel 700" if count == 1 else "scancel JOB") and "700" in line and len(line) < 120
    assert ("702" in line) == (count >= 3) and ("729" in line) is False
    # Whoever runs the tests may have something here.
    assert code == 0 or "left over" in out
    assert "scancel" not in world.run("check")[1] and "scancel" not in world.run("banner")[2]
    assert "scancel" not in world.run("clean", "--dry-run")[1]
    # Interactive, waiting, or the one that this shell is in.
    for other in (batch.replace("RUNNING", "PENDING"), FIELDS):
        answer.write_text(f"{other}train\x1e\n")
        assert "scancel JOB" not in world.run(command)[1] and "batch job" not in world.run(command)[1]
    answer.write_text(f"{batch}train\x1e\n")
    assert "batch job" not in world.run(command, env={"SLURM_JOB_ID": "123"})[1]


def test_clean_with_nothing_to_do(world: World) -> None:
    """`clean --json --dry-run` and `clean --json` where nothing is left over."""
    # Never ends what somebody has left on the machine that runs the tests.
    assert world.json("clean", "--dry-run")[1].get("would_end", []) == []
    for words in (["clean"], ["clean", "--dry-run"], ["clean", "--yes"]):
        code, answer = world.json(*words)
        shape(answer, CLEAN)
        assert code == 0 and answer["ended"] == [] and answer["left"] == []


def test_clean_could_not_tell(world: World) -> None:
    """Nothing was found, but not everything could be looked at."""
    world.script("squeue", "exit 1")
    assert world.json("clean")[0] == 3
    assert world.json("clean", "--dry-run")[1].get("would_end", []) == []
    assert world.run("clean", "--yes")[0] == 3


def test_sessions(world: World) -> None:
    """`sessions --json` before the first session."""
    code, answer = world.json("sessions")
    assert (code, answer) == (0, {"schema": 1, "items": []})


SESSION = {
    "id": TEXT,
    "job": (str, type(None)),
    "step": (str, type(None)),
    "nodes": LIST,
    "command": TEXT,
    "started": TEXT,
    "ended": (str, type(None)),
    "processes": (int,),
    "killed": (int,),
    "left": LIST,
    "outcome": TEXT,
}


def test_a_session(world: World) -> None:
    """A session of `safe-srun --local` in its shape: names, never a whole command line; a damaged file is passed over."""
    done = world.run("safe-srun", "--local", "/bin/sh", "-c", "exit 5 # secret")
    assert done[0] == 5, done
    records = world.home / ".local" / "state" / "handwash" / "sessions"
    for name, content in (("x.ended", b"\xff\0"), ("y.session", b"id\ty\n" * 3), ("z.part", b""), ("w.ended", b"id\n")):
        (records / name).write_bytes(content)
    code, answer = world.json("sessions")
    found = [item for item in answer["items"] if item["command"] == "sh"]
    assert len(found) == 1, answer
    shape(found[0], SESSION)
    assert (found[0]["outcome"], found[0]["job"], found[0]["left"]) == ("clean", None, [])
    assert all(item["outcome"] in ("running", "clean", "leftover", "unconfirmed") for item in answer["items"])
    assert code in (0, 3) and "secret" not in json.dumps(answer)
    assert not [path for path in records.iterdir() if b"secret" in path.read_bytes()]
    assert world.run("sessions")[0] == code


def test_a_session_without_a_record_still_runs(world: World) -> None:
    """It was started with another state folder, or its disk is full: nothing of it is left over while it lives."""
    mark = f"100.{os.getpid()}"
    script = f"/bin/sh -c '/usr/bin/setsid /bin/sleep {mark} & exit'; echo up; read line"
    child = subprocess.Popen(
        [*HANDWASH, "safe-srun", "--local", "/bin/bash", "-c", script], start_new_session=True,
        env={**world.env, "XDG_STATE_HOME": str(world.folder / "other")},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    try:
        until(lambda: any(mark in row["command"] for row in world.json("check")[1]["processes"]["items"]))
        rows = world.json("check")[1]["processes"]["items"]
        (row,) = [row for row in rows if row["command"].endswith(f"sleep {mark}")]
        assert (row["whose"], row["leftover"]) == ("living-job", False)
    finally:
        child.communicate("\n", timeout=20)
    assert not any(mark in row["command"] for row in world.json("check")[1]["processes"]["items"])


def test_json_before_the_command(world: World) -> None:
    """`handwash --json where` is where, not status."""
    code, out, _err = world.run("--json", "where")
    assert code == 0 and json.loads(out)["kind"] == "login"
    assert "verdict" in json.loads(world.run("--json")[1])
    assert json.loads(world.run("--json", "sessions")[1])["items"] == []


# Exit codes and words


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nonsense"], 2),
        (["check", "--nonsense"], 2),
        (["check", "more"], 2),
        (["clean", "0"], 2),
        (["clean", "-5"], 2),
        (["clean", "12x"], 2),
        (["clean", "99999999999999999999"], 2),
        (["clean", "٣"], 2),
        (["--nonsense"], 2),
        (["leave", "somehow"], 2),
        (["\x1b[31m"], 2),
        (["--help"], 0),
        (["clean", "--help"], 0),
        (["--version"], 0),
        (["check"], 0),
        (["where"], 0),
        ([], 0),
    ],
)
def test_exit_codes(world: World, words: list[str], code: int) -> None:
    """0 for what could be told, 2 for what was asked wrongly; the second says so on standard error."""
    found, out, err = world.run(*words)
    assert (found, bool(out), bool(err)) == (code, code == 0, code == 2), out + err
    assert "Traceback" not in err


def test_foreign_text_is_harmless(world: World) -> None:
    """A job's name reaches the terminal without its escape sequences, line ends and direction marks."""
    world.jobs()
    for command in ("check", "status"):
        code, out, err = world.run(command)
        assert code == 0 and not {"\x1b", "\x07", "\u202e", "\x1f"} & set(out + err)
        assert "\\x1b[31mred" in out
    assert "\x1b" not in world.run("banner")[2]


def test_a_fault_of_its_own(world: World) -> None:
    """70, one line, the details in a file of mode 0600: never a traceback."""
    broken = world.folder / "broken"
    (broken / "handwash").mkdir(parents=True)
    for name in ("__main__.py", "__init__.py"):
        (broken / "handwash" / name).write_bytes((MAIN.parent / name).read_bytes())
    code = (
        f"import sys; sys.path.insert(0, {str(MAIN.parents[1])!r})\n"
        "from handwash import cli, survey\n"
        "def fail(*_words, **_more): raise RuntimeError('\\x1b[31mboom')\n"
        "survey.take = fail\n"
        "sys.exit(cli.main(['check']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env=world.env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 70 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "\\x1b[31mboom" in done.stderr
    log = world.home / ".local" / "state" / "handwash" / "fault.log"
    assert "RuntimeError" in log.read_text() and log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(world: World, number: int) -> None:
    """Ctrl-C during the check: 130, no traceback, and the squeue that hangs is gone, as after any other end."""
    pid = world.folder / "pid"
    world.script("squeue", f"trap '' TERM INT; echo $$ >{pid}; /bin/sleep 60; /bin/sleep 60")
    child = subprocess.Popen(
        [*HANDWASH, "check"], env={**world.env, "HANDWASH_DEADLINE": "2"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: pid.exists() and pid.read_text().strip())
    child.send_signal(number)
    _out, err = child.communicate(timeout=20)
    assert child.returncode == (130 if number == signal.SIGINT else -number) and "Traceback" not in err
    until(lambda: not lives(int(pid.read_text())))


def until(condition, seconds=10.0):
    """Polls `condition` until it is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("squeue", ["/bin/sleep 60", "trap '' TERM; /bin/sleep 60 & wait; /bin/sleep 60"])
@pytest.mark.parametrize("command", ["check", "where", "banner"])
def test_the_deadline_is_kept(world: World, command: str, squeue: str) -> None:
    """A squeue that hangs holds nobody up, and is not left behind."""
    pid = world.folder / "pid"
    world.script("squeue", f"echo $$ >{pid}; {squeue}")
    started = time.monotonic()
    code, out, err = world.run(command, env={"HANDWASH_DEADLINE": "1"})
    assert time.monotonic() - started < 1 + 1.5
    assert code == {"check": 3, "where": 0, "banner": 0}[command], out + err
    until(lambda: not lives(int(pid.read_text())))


# Broken worlds


@pytest.mark.parametrize(
    "streams",
    [">&-", "2>&-", "<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1"],
)
@pytest.mark.parametrize("words", ["check", "check --json", "status", "nonsense"])
def test_streams(world: World, streams: str, words: str) -> None:
    """Closed or full streams cost the words, never the verdict: nothing is found, nothing is unknown."""
    code, said = world.shell(f"handwash {words} {streams}")
    assert code == (2 if words == "nonsense" else 0), said
    assert "Traceback" not in said and "Exception ignored" not in said


@pytest.mark.parametrize("words", ["check", "check --json", "status", "--help", "clean --help"])
def test_a_reader_that_goes_away(world: World, words: str) -> None:
    """`handwash check | head -0` says nothing on standard error and keeps its code."""
    code, said = world.shell(f"handwash {words} | head -0; exit ${{PIPESTATUS[0]}}")
    assert (code, said) == (0, "")


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": None, "XDG_STATE_HOME": "/dev/null"},
        {"HOME": "/dev/null/nowhere"},
        {"HOME": "relative", "XDG_STATE_HOME": "/dev/null"},
        {"HOME": "/dev/null"},
        {"XDG_STATE_HOME": "/proc", "XDG_CONFIG_HOME": "/dev/null"},
        {"XDG_CONFIG_HOME": ".", "XDG_CONFIG_DIRS": "../x"},
        {"LANG": "C", "LC_ALL": "C", "HANDWASH_LANG": "zh_CN"},
        {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        {"LANG": "nonsense", "TERM": "", "COLUMNS": "0", "LINES": "x"},
        {"HANDWASH_DEADLINE": "soon", "HANDWASH_GRACE": "-1", "HANDWASH_BANNER": "\x1b[31m", "HANDWASH_ON_EXIT": "?"},
        {"HANDWASH_CONFIG": "/nonexistent"},
        {"HANDWASH_SESSION": "\x1b[31m/../../x"},
        {"PYTHONHOME": "/nonexistent", "PYTHONPATH": "/nonexistent"},
        {"SLURM_JOB_ID": "\x1b[31m1"},
        {"SLURM_CLUSTERS": "other", "SQUEUE_FORMAT": "%i", "SQUEUE_STATES": "CD"},
    ],
    ids=",".join,
)
@pytest.mark.parametrize("command", ["status", "banner", "clean"])
def test_environments(world: World, env: dict[str, str | None], command: str) -> None:
    """Whatever the environment: no fault, no traceback, no escape sequence, and nothing in the working directory."""
    code, out, err = world.run(command, env=env, cwd=world.bin)
    assert code == 0, out + err
    assert "Traceback" not in err and "\x1b" not in out + err
    assert sorted(os.listdir(world.bin)) == ["scontrol", "squeue"]


def test_chinese_in_an_ascii_terminal(world: World) -> None:
    """What the encoding lacks becomes a question mark."""
    world.jobs()
    env = {"LC_ALL": "C", "HANDWASH_LANG": "zh_CN", "PYTHONCOERCECLOCALE": "0"}
    assert world.run("check", env=env)[0] == 0


def test_a_mistake_in_the_settings_is_told_once(world: World) -> None:
    """On standard error, in one line; the verdict stays."""
    code, out, err = world.run("check", env={"HANDWASH_DEADLINE": "soon"})
    assert code == 0 and out and len(err.splitlines()) == 1 and "HANDWASH_DEADLINE" in err


def test_no_colour_in_a_file(world: World) -> None:
    """Not a terminal: no escape sequence, not even where somebody forces colour on others."""
    for env in ({}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, {"NO_COLOR": "1"}):
        assert "\x1b" not in "".join(map(str, world.run("status", env=env)))


def test_state_is_private(world: World) -> None:
    """What a check writes is one file of the person's own."""
    assert world.run("check")[0] == 0
    files = [path for path in world.home.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["site"]
    assert files[0].stat().st_mode & 0o777 == 0o600 and files[0].parent.stat().st_mode & 0o777 == 0o700


def test_nothing_is_asked_where_nobody_answers(world: World) -> None:
    """`clean` of a process of ours without --yes and without a terminal: nothing is ended, and it says how."""
    victim = subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        code, out, err = world.run("clean", str(victim.pid))
        assert code == 1 and "--yes" in err and str(victim.pid) in out
        code, answer = world.json("clean", str(victim.pid))
        shape(answer, CLEAN)
        assert code == 1 and answer["ended"] == []
        code, answer = world.json("clean", "--dry-run", str(victim.pid))
        assert code == 1 and [one["pid"] for one in answer["would_end"]] == [victim.pid]
        assert victim.poll() is None
        code, answer = world.json("clean", "--yes", str(victim.pid))
        assert (code, answer["ended"], answer["killed"], answer["left"]) == (0, [victim.pid], [], [])
        assert victim.wait(10) == -signal.SIGTERM
    finally:
        victim.kill()
        victim.wait()


def test_a_session_but_not_the_jobs_that_it_has_submitted(world: World) -> None:
    """The cookie goes on into a job submitted from within the session; that job lives, and its processes stay."""
    world.jobs()
    code, answer = world.json("clean", "--session", "s", "--yes")
    assert code == 1 and answer["ended"] == [] and "'s'" in answer["why"]
    assert world.run("safe-srun", "--local", "/bin/true")[0] == 0
    cookie = {"HANDWASH_SESSION": world.json("sessions")[1]["items"][0]["id"]}
    inside = {"SLURM_JOB_ID": "123", "SLURMD_NODENAME": "n1"}
    own, submitted = (
        subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL, env={**cookie, **env}) for env in ({}, inside)
    )
    try:
        words = ["clean", "--session", cookie["HANDWASH_SESSION"]]
        code, answer = world.json(*words, "--dry-run")
        assert code == 1 and [one["pid"] for one in answer["would_end"]] == [own.pid]
        code, answer = world.json(*words, "--yes")
        assert (code, answer["ended"]) == (0, [own.pid]) and submitted.poll() is None
    finally:
        for child in (own, submitted):
            child.kill()
            child.wait()


def test_what_is_asked_for_by_pid_and_refused(world: World) -> None:
    """Process 1, the asking chain, a pid that is nobody's: nothing is ended, and the object says why."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    for pid in (1, os.getpid(), os.getppid(), gone.pid):
        code, out, err = world.run("clean", "--yes", str(pid))
        assert code == 1 and str(pid) in err and out == "", (pid, out, err)
        code, answer = world.json("clean", "--yes", str(pid))
        assert code == 1 and answer["ended"] == [] and str(pid) in answer["why"]


def test_one_refusal_spares_all(world: World) -> None:
    """Where one of several pids is out of bounds none is ended."""
    victim = subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        assert world.run("clean", "--yes", str(victim.pid), "1")[0] == 1
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_a_shell_that_outlives_its_job(world: World) -> None:
    """An ssh session into a node, whose job is over: said by check and banner."""
    inside = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1"}
    for command in ("check", "banner"):
        _code, said = world.shell(f"handwash {command}; exit 0", env={**world.env, **inside})
        assert "outlives its job 77" in said, said
    world.jobs()
    assert (
        "outlives" not in world.shell("handwash check; exit 0", env={**world.env, **inside, "SLURM_JOB_ID": "123"})[1]
    )
