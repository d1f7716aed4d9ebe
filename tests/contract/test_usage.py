"""`handwash usage` through the front door, with a stand-in for sacct that says what a real one cannot be made to say."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import termios
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_front_door import HANDWASH, NAME, World, shape
from tests.contract.test_front_door import world as world

from handwash.schedulers.slurm import FIELD, RECORD

COLUMNS = "JobID JobIDRaw State Start End ElapsedRaw Suspended NodeList Partition AllocTRES JobName".split()
TEXT, NUMBER, LIST = (str,), (int, float), (list,)
USAGE = {
    "schema": (int,),
    "since": TEXT,
    "until": TEXT,
    "known": (bool,),
    "why": (str, type(None)),
    "source": (str, type(None)),
    "gpu_hours": (int, float, type(None)),
    "gpus_now": (int, type(None)),
    "months": LIST,
    "items": LIST,
}
ITEM = {
    "id": TEXT,
    "state": TEXT,
    "name": TEXT,
    "partition": TEXT,
    "nodes": LIST,
    "gpus": (int, type(None)),
    "started": TEXT,
    "ended": (str, type(None)),
    "running": (bool,),
    "elapsed_s": (int,),
    "suspended_s": (int,),
    "counted_s": (int,),
    "exact": (bool,),
    "gpu_hours": (int, float, type(None)),
    "source": TEXT,
}


def stamp(hours_ago: float) -> str:
    """A time as Slurm prints it in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - hours_ago * 3600))


def record(
    number: int = 7, begun: float = 5, hours: float = 2, gpus: int = 2, name: str = "train", **changes: str
) -> str:
    """One row of sacct's, its fields ended by @: a job that began some hours ago, and has ended if `End` says nothing else."""
    row = {
        "JobID": str(number),
        "JobIDRaw": str(number),
        "State": "COMPLETED",
        "Start": stamp(begun),
        "End": stamp(begun - hours),
        "ElapsedRaw": str(round(hours * 3600)),
        "Suspended": "00:00:00",
        "NodeList": "n1",
        "Partition": "main",
        "AllocTRES": f"billing=4,cpu=4,gres/gpu={gpus},node=1" if gpus else "billing=4,cpu=4,node=1",
        "JobName": name,
        **changes,
    }
    return "".join(row[column] + "@" for column in COLUMNS) + "\n"


def running(number: int = 8, hours: float = 1, gpus: int = 1) -> str:
    return record(number, begun=hours, hours=hours, gpus=gpus, State="RUNNING", End="Unknown")


def queued(number: int = 8, hours: float = 1, gpus: int = 1, state: str = "RUNNING", name: str = "train") -> str:
    """One row of squeue's, of a job that began some hours ago and runs, or has just ended."""
    clock = f"{int(hours)}:{round(hours % 1 * 60):02}:00"
    ids = f"{number}|{number}|{state}|1|{clock}|UNLIMITED|1|1|cpu=1|N/A|gres:gpu:{gpus}|N/A|N/A|OK|main|n1|login1|4711"
    return FIELD.join([stamp(hours), stamp(0), *ids.split("|"), name]) + RECORD + "\n"


class Records:
    """A world with accounting."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = world.folder / "asked"
        world.script("scontrol", "echo AccountingStorageTRES = cpu,gres/gpu")
        self.are()

    def are(self, *rows: str, then: str = "") -> None:
        """What sacct prints, and what it does afterwards."""
        file = self.world.folder / "records"
        file.write_text("".join(column + "@" for column in COLUMNS) + "\n" + "".join(rows))
        self.world.script(
            "sacct",
            f"""
printf '%s\\n' "$@" >>{self.asked}; /usr/bin/env >{self.asked}.env
for word; do case $word in --delimiter=*) d=${{word#*=}} ;; esac; done
/bin/sed "s/@/$d/g" {file}
{then}
""",
        )

    def queue(self, *rows: str) -> None:
        file = self.world.folder / "queue"
        file.write_text("".join(rows))
        self.world.script("squeue", f"exec /bin/cat {file}")


@pytest.fixture
def records(world: World) -> Records:
    return Records(world)


def ask(records: Records, *words: str, since: str = "24h", **env: str) -> tuple[int, dict[str, Any]]:
    return records.world.json("usage", "--since", since, *words, env=env)


def test_the_object(records: Records) -> None:
    """Every key with its kind; the total is the sum of the items; what runs now comes first."""
    records.are(record(7), running(8, gpus=3), record(9, gpus=0), record(10, State="CANCELLED by 1000", name=NAME))
    records.queue(queued(8, gpus=3))
    code, answer = ask(records)
    assert code == 0
    shape(answer, USAGE)
    for item in answer["items"]:
        shape(item, ITEM)
    assert (answer["known"], answer["why"], answer["source"], answer["gpus_now"]) == (True, None, "sacct", 3)
    assert answer["gpu_hours"] == 11 == sum(item["gpu_hours"] for item in answer["items"])
    assert (answer["items"][0]["id"], answer["items"][0]["running"]) == ("8", True)
    assert sum(month["gpu_hours"] for month in answer["months"]) == 11
    (odd,) = [item for item in answer["items"] if item["id"] == "10"]
    assert odd["state"] == "CANCELLED" and odd["name"] == NAME
    # `since` of the answer is a word for --since.
    assert ask(records, since=answer["since"])[1]["since"] == answer["since"]


def test_for_a_person(records: Records) -> None:
    """A table, the sum, what goes on costing; foreign text is harmless; words in Chinese."""
    records.are(record(7, name=NAME), running(8, gpus=3), record(9, gpus=0))
    records.queue(queued(8, gpus=3))
    code, out, err = records.world.run("usage")
    assert (code, err) == (0, "") and "this month" in out and "--since 7d" in out
    code, out, err = records.world.run("usage", "--since", "24h")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["8", "RUNNING", "3", "1:00:00", "3.00"] in [row[:5] for row in rows]
    assert ["7", "COMPLETED", "2", "2:00:00", "4.00"] in [row[:5] for row in rows]
    assert "7.00 GPU-hours" in out and "GPU-hours for each further hour: 3" in out
    assert "1 job without a GPU is not listed" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    out = records.world.run("usage", "--since", "24h", env={"HANDWASH_LANG": "zh_CN"})[1]
    assert "合计：7.00 卡时" in out and "GPU-hours" not in out


def test_many_jobs(records: Records) -> None:
    """The costliest are shown, the rest is summed up, and --json has all."""
    records.are(*(record(number, hours=number / 100, JobID=f"5_{number}") for number in range(1, 101)))
    code, out, _err = records.world.run("usage", "--since", "24h")
    assert code == 0 and len(out.splitlines()) < 30
    assert "5_100" in out and "5_1 " not in out and "and 80 more jobs of 64.80 GPU-hours together" in out
    assert "101.00 GPU-hours" in out
    assert len(ask(records)[1]["items"]) == 100


def test_only_the_hours_since(records: Records) -> None:
    """Of a job that began before, the rest; a job that was over by then is none."""
    records.are(record(7, begun=26, hours=4), record(8, begun=30, hours=2))
    code, answer = ask(records)
    assert code == 0 and [item["id"] for item in answer["items"]] == ["7"]
    assert answer["gpu_hours"] == pytest.approx(4, abs=0.02)
    assert answer["items"][0]["elapsed_s"] == 4 * 3600
    assert "1 job began before" in records.world.run("usage", "--since", "24h")[1]


@pytest.mark.parametrize("word", ["soon", "", "2026-13-01", "tomorrow", "9999-01-01", "7"])
def test_wrong_words(records: Records, word: str) -> None:
    """Wrong usage, with examples; nothing is asked."""
    code, out, err = records.world.run("usage", "--since", word)
    assert code == 2 and out == "" and "2026-11-01" in err and "7d" in err
    assert not records.asked.exists()


def test_how_sacct_is_asked(records: Records) -> None:
    """Once, for this uid, in UTC, whatever the person's own settings for sacct are; each time with another separator."""
    own = {"SACCT_FORMAT": "jobid", "SLURM_TIME_FORMAT": "relative", "SLURM_CLUSTERS": "far", "SACCT_FEDERATION": "1"}
    assert ask(records, TZ="Asia/Shanghai", **own)[0] == 0
    asked = records.asked.read_text().splitlines()
    assert f"--user={os.getuid()}" in asked and len([word for word in asked if word.startswith("--format=")]) == 1
    env = dict(line.split("=", 1) for line in Path(f"{records.asked}.env").read_text().splitlines() if "=" in line)
    assert env["TZ"] == "UTC0" and not set(own) & set(env)
    assert ask(records)[0] == 0
    separators = [word for word in records.asked.read_text().splitlines() if word.startswith("--delimiter=")]
    assert len(set(separators)) == 2


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "UTC0", "America/New_York"])
def test_time_zones(records: Records, zone: str) -> None:
    """Times are those of the person's zone, and the same moments in each."""
    records.are(record(7, begun=5, hours=2))
    code, answer = ask(records, TZ=zone)
    assert code == 0
    started, ended = (datetime.fromisoformat(answer["items"][0][key]) for key in ("started", "ended"))
    assert ended - started == timedelta(hours=2) and started.utcoffset() == ended.utcoffset()
    ago = datetime.now(timezone.utc) - started
    assert abs(ago - timedelta(hours=5)) < timedelta(minutes=1)


LIARS = {
    "hangs": "exec /bin/sleep 100",
    "hangs and ignores TERM": "trap '' TERM HUP; /bin/sleep 100",
    "exits 1": "exit 1",
    "a complaint with exit code 0": "echo 'sacct: error: slurmdbd: something' >&2",
    "disabled": "echo 'Slurm accounting storage is disabled' >&2; exit 1",
    "dies": "kill -SEGV $$",
    "endless": "while :; do echo 12345; done",
    "more behind the answer": "echo bye",
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar(records: Records, liar: str) -> None:
    """Could not tell, within the limit, with the reason; what the queue still shows is counted, and called at least."""
    records.are(record(7), then=LIARS[liar])
    records.queue(queued(8, hours=1, gpus=3), queued(9, hours=2, gpus=1, state="COMPLETED"))
    begun = time.monotonic()
    code, answer = ask(records, HANDWASH_DEADLINE="0.15")
    assert time.monotonic() - begun < 1.5 + 2
    assert (code, answer["known"], answer["source"], answer["gpu_hours"]) == (3, False, "squeue", 5)
    assert "sacct" in answer["why"] or "disabled" in answer["why"]
    assert {(item["id"], item["running"]) for item in answer["items"]} == {("8", True), ("9", False)}
    if liar == "disabled":
        code, out, _err = records.world.run("usage", "--since", "24h")
        assert code == 3 and "Slurm accounting storage is disabled" in out and "At least 5.00 GPU-hours" in out


def test_no_answer_at_all(records: Records) -> None:
    """Neither from the accounting nor from the queue: no number, which is not the number 0."""
    records.world.script("sacct", "exit 1")
    records.world.script("squeue", "exit 1")
    code, answer = ask(records)
    assert (code, answer["gpu_hours"], answer["gpus_now"], answer["source"]) == (3, None, None, None)
    assert "GPU-hours" not in records.world.run("usage", "--since", "24h")[1]


def test_programs_that_are_not_there(records: Records) -> None:
    """No sacct: the queue. No scheduler at all: said in one sentence."""
    (records.world.bin / "sacct").unlink()
    records.queue(queued(8, hours=1, gpus=3))
    code, answer = ask(records)
    assert (code, answer["gpu_hours"]) == (3, 3) and "sacct is not on the PATH" in answer["why"]
    (records.world.bin / "squeue").unlink()
    (records.world.folder / "slurm.conf").unlink()
    code, out, _err = records.world.run("usage", "--since", "24h")
    assert code == 3 and "no scheduler" in out and out.count("could not tell") == 1


def test_a_site_that_does_not_record_gpus(records: Records) -> None:
    """Not 0: said, and the queue counted. Where nobody can say whether it does, that is said."""
    records.are(record(7, gpus=0), record(8, begun=1, hours=1, gpus=0, State="RUNNING", End="Unknown"))
    records.queue(queued(8, hours=1, gpus=3))
    assert ask(records)[1]["gpu_hours"] == 3
    records.world.script("scontrol", "echo AccountingStorageTRES = cpu,mem,energy,node,billing")
    code, answer = ask(records)
    assert (code, answer["gpu_hours"], answer["source"]) == (3, 3, "squeue") and "AccountingStorageTRES" in answer[
        "why"
    ]
    records.world.script("scontrol", "exit 1")
    code, answer = ask(records)
    assert code == 3 and "could not be told" in answer["why"]
    # No job has run at all: nothing is in doubt.
    records.are()
    records.queue()
    assert ask(records)[0] == 0


def test_records_that_lag_behind(records: Records) -> None:
    """A job without an end that is gone from the queue is not counted for ever; one that only the queue has is counted."""
    records.are(running(7, hours=20, gpus=4), record(9, hours=1, gpus=1))
    records.queue(queued(8, hours=1, gpus=3))
    code, answer = ask(records)
    assert (code, answer["gpu_hours"], answer["gpus_now"], answer["source"]) == (3, 4, 3, "sacct")
    assert "7" in answer["why"]
    (lost,) = [item for item in answer["items"] if item["id"] == "7"]
    assert (lost["running"], lost["exact"], lost["gpu_hours"], lost["ended"]) == (False, False, None, None)
    # With the controller down there is nobody to say that it is gone.
    records.world.script("squeue", "exit 1")
    code, answer = ask(records)
    assert (code, answer["known"], answer["gpu_hours"]) == (3, False, 81) and "still runs" in answer["why"]
    # Counted until now, which may be too much.
    assert "Total: 81.00 GPU-hours" in records.world.run("usage", "--since", "24h")[1]


def test_a_year_that_there_cannot_be(records: Records) -> None:
    """No fault: the records cannot be read."""
    for stamp in ("0001-01-01T00:00:00", "1969-06-01T00:00:00", "9999-12-31T23:59:59"):
        for changes in ({"Start": stamp}, {"End": stamp}):
            records.are(record(7, **changes))
            code, answer = ask(records, TZ="Asia/Shanghai")
            assert (code, answer["known"]) == (3, False) and stamp in answer["why"]
    records.are(record(7))
    code, answer = ask(records, since="1969", TZ="America/New_York")
    assert (code, answer["gpu_hours"]) == (0, 4)


def on_a_terminal(records: Records, columns: int, *words: str, **env: str) -> str:
    """What a person sees in a terminal of so many columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = subprocess.Popen(
        [*HANDWASH, "usage", *words], env={**records.world.env, **env}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the last writer is gone
    finally:
        os.close(ours)
        done.wait(30)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).replace("\r", "")


@pytest.mark.parametrize("columns", [40, 60, 75, 120])
def test_narrow_terminals(records: Records, columns: int) -> None:
    """A job is one line with its numbers whole, whatever has to be left out; a word is never broken."""
    records.are(record(123456, hours=4, begun=5, gpus=8, name="a job with a name of several words"))
    lines = on_a_terminal(records, columns, "--since", "24h").splitlines()
    (row,) = [line for line in lines if line.startswith("123456")]
    assert len(row) <= columns and "32.00" in row and "4:00:00" in row
    assert ("COMPLETED" in row) == (columns >= 50) and (re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d ", row) is not None) == (
        columns >= 70
    )


def test_a_person_who_waits_is_told_for_what(records: Records) -> None:
    """On a terminal, after two seconds; a script reads nothing of it."""
    records.are(record(7), then="exec /bin/sleep 100")
    shown = on_a_terminal(records, 80, "--since", "24h", HANDWASH_DEADLINE="0.3")
    assert shown.startswith("Waiting for sacct, Slurm's accounting, for 3 s at most.\n")
    assert "Waiting" not in "".join(map(str, records.world.run("usage", env={"HANDWASH_DEADLINE": "0.3"})))
    records.are(record(7))
    assert "Waiting" not in on_a_terminal(records, 80, "--since", "24h")


def test_more_than_a_look_may_usually_print(records: Records) -> None:
    """Tens of thousands of jobs are read, and quickly."""
    rows = (record(number, hours=1, gpus=1, JobID=f"5_{number}", name="n" * 100) for number in range(1, 40001))
    records.are(*rows)
    assert (records.world.folder / "records").stat().st_size > 8 * 1024 * 1024
    code, out, _err = records.world.run("usage", "--since", "24h")
    assert code == 0 and "40000.00 GPU-hours" in out


def test_a_month_each(records: Records) -> None:
    """Where the time spans several months, each has its sum."""
    records.are(record(7, begun=24 * 40, hours=2), record(8, begun=2, hours=1))
    code, answer = ask(records, since="60d")
    assert code == 0 and sum(month["gpu_hours"] for month in answer["months"]) == 6 and len(answer["months"]) >= 2
    out = records.world.run("usage", "--since", "60d")[1]
    assert all(f"{month['month']} " in out for month in answer["months"])
    assert json.dumps(answer["months"]).count("exact") == len(answer["months"])
