"""`handwash usage` on a PBS cluster, through the front door: what the stand-in's server has on record, and what it has not."""

from __future__ import annotations

import re
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contract.test_front_door import NAME, World, shape
from tests.contract.test_usage import ITEM, USAGE, Records, on_a_terminal
from tests.testbed.pbs import Pbs, hours, me

HOUR = 3600


class Site:
    """A login node of a PBS cluster, which keeps finished jobs."""

    def __init__(self, world: World, pbs: Pbs) -> None:
        self.world, self.pbs = world, pbs
        (world.folder / "slurm.conf").unlink()
        for program in world.bin.iterdir():
            program.unlink()
        world.env.update(pbs.environment(str(world.bin)))
        pbs.set(history=True)

    def ran(self, begun: float, lasted: float, gpus: int = 2, asleep: float = 0, **more: Any) -> str:
        """A job that began some hours ago, was at work for some and is over; `asleep`: hours in suspension."""
        started = time.time() - begun * HOUR
        ended = started + (lasted + asleep) * HOUR
        shown = {
            "resources_used__walltime": hours(round(lasted * HOUR)),
            "obittime": ended,
            "mtime": ended,
            "run_count": "1",
            "Exit_status": "0",
            **more.pop("more", {}),
        }
        return self.pbs.add(state=more.pop("state", "F"), gpus=gpus, started=started, more=shown, **more)

    def runs(self, begun: float, gpus: int = 1, **more: Any) -> str:
        """A job that began some hours ago and runs."""
        shown = {"run_count": "1", **more.pop("more", {})}
        return self.pbs.add(gpus=gpus, started=time.time() - begun * HOUR, more=shown, **more)

    def waits(self, **more: str) -> str:
        return self.pbs.add(state="Q", gpus=4, more=more)

    def ask(self, since: str = "24h", **env: str) -> tuple[int, dict[str, Any]]:
        return self.world.json("usage", "--since", since, env=env)

    def tell(self, since: str = "24h", **env: str) -> tuple[int, str]:
        code, out, err = self.world.run("usage", "--since", since, env=env)
        assert not err
        return code, out

    def qstat(self, text: str) -> None:
        """A qstat of the site's own before PBS's; `$real` is the latter."""
        self.world.script("qstat", f"real={self.pbs.bin}/qstat\n{text}\n")
        self.world.env["PATH"] = f"{self.world.bin}:{self.pbs.bin}"


@pytest.fixture
def site(tmp_path: Path, pbs: Pbs) -> Site:
    return Site(World(tmp_path), pbs)


def by_id(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in answer["items"]}


def test_what_runs_and_what_is_over(site: Site) -> None:
    """The person's own jobs that have begun, each with its GPUs and hours; the same object as on a Slurm cluster."""
    over = site.ran(5, 2, name=NAME)
    late = site.ran(20, 1, gpus=1, more={"Exit_status": "-29"})
    running = site.runs(1, gpus=3)
    without = site.ran(3, 1, gpus=0)
    site.ran(5, 5, user="somebody")
    site.waits()
    # Deleted before it began.
    site.pbs.end(site.waits(), status=271)
    code, answer = site.ask()
    assert code == 0, answer
    shape(answer, USAGE)
    found = by_id(answer)
    for item in found.values():
        shape(item, ITEM)
        assert item["source"] == "qstat" and item["partition"] == "workq" and item["nodes"] == ["vm"]
    assert (answer["known"], answer["why"], answer["source"], answer["gpus_now"]) == (True, None, "qstat", 3)
    assert set(found) == {over, late, running, without} and answer["items"][0]["id"] == running
    assert answer["gpu_hours"] == pytest.approx(4 + 1 + 3, abs=0.02)
    assert [found[job]["state"] for job in (over, late, running)] == ["COMPLETED", "TIMEOUT", "RUNNING"]
    assert (found[over]["elapsed_s"], found[over]["running"], found[running]["ended"]) == (2 * HOUR, False, None)
    # For a person; foreign text is harmless.
    code, out = site.tell()
    assert code == 0 and "Total: 8.00 GPU-hours, by PBS's job history." in out and "could not tell" not in out
    assert "GPU-hours for each further hour: 3" in out and "1 job without a GPU is not listed" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    out = site.tell(HANDWASH_LANG="zh_CN")[1]
    assert "合计：8.00 卡时" in out and "PBS" in out and "GPU-hours" not in out


def test_only_the_hours_since(site: Site) -> None:
    site.ran(26, 4)
    site.ran(30, 2)
    code, answer = site.ask()
    assert code == 0 and len(answer["items"]) == 1 and answer["gpu_hours"] == pytest.approx(4, abs=0.02)


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_time_zones(site: Site, zone: str) -> None:
    """qstat prints times without a zone: they are the same moments wherever the person is."""
    site.ran(5, 2)
    (item,) = site.ask(TZ=zone)[1]["items"]
    started, ended = (datetime.fromisoformat(item[key]) for key in ("started", "ended"))
    assert abs(ended - started - timedelta(hours=2)) <= timedelta(seconds=1)
    assert abs(datetime.now(timezone.utc) - started - timedelta(hours=5)) < timedelta(minutes=1)


def test_arrays(site: Site) -> None:
    """Each subjob that has begun, with its own GPUs; nothing of the array itself, nor of what of it was deleted before."""
    array = site.pbs.add_array("RRQ", gpus=1, started=time.time() - HOUR)
    stem = array.partition("[")[0]
    held = {"exec_vnode": "(vm:ncpus=1:ngpus=1)", "exec_host": "vm/0", "stime": time.time() - 5 * HOUR}
    ended = site.ran(5, 0.5, gpus=1, state="X", more={"array_id": array, "array_index": "4", **held})
    # Made up from the array's own record: of what was deleted while it waited, or is forgotten.
    site.pbs.add(state="X", gpus=1, more={"stime": time.time() - HOUR, "mtime": time.time()})
    code, answer = site.ask()
    found = by_id(answer)
    assert (code, set(found)) == (0, {f"{stem}[1].vm", f"{stem}[2].vm", ended}), answer
    assert (found[ended]["gpu_hours"], found[ended]["state"], answer["gpus_now"]) == (0.5, "COMPLETED", 2)


def test_no_history(site: Site) -> None:
    """What runs, subjobs too; at least, with the reason, and never a word of PBS's about it taken for no jobs."""
    site.pbs.set(history=False)
    running = site.runs(2, gpus=3)
    site.pbs.add_array("RQ", gpus=1, started=time.time() - HOUR)
    site.ran(5, 2)
    code, answer = site.ask()
    assert (code, answer["known"], answer["source"], answer["gpus_now"]) == (3, False, "qstat", 4)
    assert "job_history_enable" in answer["why"]
    assert set(by_id(answer)) == {running, "2[1].vm"} and answer["gpu_hours"] == pytest.approx(7, abs=0.02)
    code, out = site.tell()
    assert code == 3 and "At least 7.00 GPU-hours, by what the queue still shows" in out
    assert "could not tell: This PBS keeps no record of finished jobs" in out and "Total" not in out
    # Nothing runs: no number that could be taken for nothing.
    site.pbs.end(running)
    site.pbs.end("2[1].vm")
    code, out = site.tell()
    assert code == 3 and "At least 0.00 GPU-hours" in out


@pytest.mark.parametrize(
    ("kept", "since", "whole"),
    [
        # Where the site has not set it: two weeks.
        *(("", "7d", True), ("", "2w", True), ("", "15d", False)),
        *(
            ("336:00:00", "2w", True),
            ("8760:00:00", "30d", True),
            ("24:00:00", "25h", False),
            ("00:00:00", "1h", False),
        ),
    ],
)
def test_how_far_back(site: Site, kept: str, since: str, whole: bool) -> None:
    """What the server has forgotten is said, by when it ended; the rest is counted."""
    site.pbs.set(history_duration=kept)
    site.ran(0.75, 0.5)
    code, answer = site.ask(since)
    assert (code, answer["known"], answer["gpu_hours"]) == (0 if whole else 3, whole, 1)
    if not whole:
        assert "job_history_duration" in answer["why"]
        code, out = site.tell(since)
        earliest = datetime.now() - timedelta(days={"": 14, "24:00:00": 1, "00:00:00": 0}[kept])
        assert earliest.strftime("PBS has forgotten jobs that ended before %Y-%m-%d") in out
        assert "At least 1.00 GPU-hour, by PBS's job history." in out


def test_how_far_back_is_not_told(site: Site) -> None:
    """Then nobody knows whether it is all."""
    site.ran(5, 2)
    for trouble in (
        "exit 1",
        "echo oops >&2",
        "exec /bin/true",
        "$real \"$@\"; echo '    job_history_duration = soon'",
    ):
        site.qstat(f'case "$*" in *-B*) {trouble} ;; *) exec $real "$@" ;; esac')
        code, answer = site.ask()
        assert (code, answer["gpu_hours"]) == (3, 4), trouble
        assert "For how long PBS keeps finished jobs could not be told" in answer["why"]


def test_suspended(site: Site) -> None:
    """The time in suspension does not count; of what is not known by when, the least, and that is said."""
    asleep = site.runs(3, gpus=1, state="S", more={"resources_used__walltime": "01:00:00"})
    over = site.ran(5, 2, asleep=1)
    code, answer = site.ask()
    found = by_id(answer)
    assert (code, answer["gpus_now"], found[asleep]["gpu_hours"], found[asleep]["elapsed_s"]) == (0, 0, 1, HOUR)
    assert found[asleep]["running"] and found[asleep]["state"] == "SUSPENDED"
    assert found[over]["gpu_hours"] == 4 and abs(found[over]["suspended_s"] - HOUR) <= 2
    # Was suspended, and runs again; or its node has not been heard of for an hour.
    again = site.runs(2, gpus=2, more={"resources_used__walltime": "01:00:00"})
    code, answer = site.ask()
    assert (code, by_id(answer)[again]["gpu_hours"], answer["gpus_now"]) == (3, 2, 2)
    assert f"How long job {again} has run could be told only in part." in answer["why"]


def test_begun_anew(site: Site) -> None:
    """PBS keeps the last run alone: that there were others is said, as far as they can have cost something since then."""
    twice = site.ran(5, 2, more={"run_count": "2"})
    code, answer = site.ask()
    assert (code, answer["gpu_hours"]) == (3, 4) and f"earlier ones of job {twice}" in answer["why"]
    assert site.ask("4h")[0] == 0
    # It has run and waits again, or was deleted while it did.
    waits = site.waits(run_count="1")
    assert f"earlier ones of jobs {twice}, {waits}" in site.ask()[1]["why"]
    site.pbs.end(waits)
    assert f"{twice}, {waits}" in site.ask()[1]["why"]
    # Without a GPU it has cost nothing.
    site.pbs.change(twice, run_count="1")
    site.pbs.change(waits, run_count="")
    site.pbs.add(state="Q", more={"run_count": "3"})
    assert site.ask()[0] == 0


def test_moved_to_another_server(site: Site) -> None:
    moved = site.waits()
    site.pbs.change(moved, job_state="M")
    code, answer = site.ask()
    assert (code, answer["gpu_hours"]) == (3, 0) and f"Job {moved} was moved to another PBS server" in answer["why"]


def test_another_clock(site: Site) -> None:
    """The server's is some minutes ahead: nothing fails, and nothing is made up."""
    ahead = site.pbs.add(gpus=2, started=time.time() + 300)
    code, answer = site.ask()
    assert (code, answer["gpus_now"], answer["gpu_hours"]) == (3, 2, 0) and ahead in answer["why"]


def test_whole_nodes(site: Site) -> None:
    """How many GPUs these have is nobody's word."""
    whole = site.ran(5, 2, gpus=0, more={"Resource_List__place": "excl"})
    code, answer = site.ask()
    assert (code, by_id(answer)[whole]["gpus"]) == (3, None) and whole in answer["why"]


def test_the_server_is_down(site: Site) -> None:
    """No number, which is not the number 0; the reason, once."""
    site.runs(1)
    site.pbs.down()
    code, answer = site.ask()
    assert (code, answer["gpu_hours"], answer["gpus_now"], answer["source"]) == (3, None, None, None)
    code, out = site.tell()
    assert (
        code == 3 and "15010" in out and out.count("could not tell") == 1 and "GPU-hours" not in out.partition("\n")[2]
    )
    site.pbs.up()
    site.pbs.hang()
    begun = time.monotonic()
    code, answer = site.ask(HANDWASH_DEADLINE="0.15")
    assert time.monotonic() - begun < 1.5 + 2
    assert (code, answer["gpu_hours"]) == (3, None) and "did not answer in time" in answer["why"]


def test_a_person_who_waits_is_told_for_what(site: Site) -> None:
    site.pbs.hang()
    shown = on_a_terminal(cast(Records, site), 80, "--since", "24h", HANDWASH_DEADLINE="0.3")
    assert shown.startswith("Waiting for qstat, PBS's job history, for 3 s at most.\n")


LIARS = {
    "hangs": "exec /bin/sleep 100",
    "exits 1": "exit 1",
    "a complaint with exit code 0": 'echo "qstat: something" >&2',
    "dies": "kill -SEGV $$",
    "endless": "while :; do echo 12345; done",
    "breaks off": 'echo "Job Id: 1.vm"; echo "    job_state = R"',
    "more than anybody reads": "/bin/head -c 70000000 /dev/zero",
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar(site: Site, liar: str) -> None:
    """The history cannot be read: what the queue shows counts, at least, and within the limit."""
    site.runs(1, gpus=3)
    site.ran(5, 2)
    site.qstat(f'case "$*" in *-x*) {LIARS[liar]} ;; *) exec $real "$@" ;; esac')
    begun = time.monotonic()
    code, answer = site.ask(HANDWASH_DEADLINE="0.3")
    assert time.monotonic() - begun < 3 + 2
    assert (code, answer["source"], answer["gpus_now"]) == (3, "qstat", 3)
    # While it reads without end the look may run out of time before it has said who is slow.
    assert "qstat" in answer["why"] or (liar == "endless" and answer["why"] == "No answer within 3 s.")
    assert answer["gpu_hours"] == pytest.approx(3, abs=0.02)


def test_many_jobs(site: Site) -> None:
    """Two weeks of somebody who submits arrays of thousands are read, and quickly."""
    job = site.ran(5, 1, gpus=1)
    argv = [str(site.pbs.bin / "qstat"), "-x", "-f", "-w", "-u", me()]
    one = subprocess.run(argv, env={**site.world.env, "TZ": "UTC0"}, capture_output=True, text=True, check=True).stdout
    one = one.replace("Variable_List = ", "Variable_List = " + "V=x," * 200)
    rows = site.world.folder / "rows"
    rows.write_text("".join(one.replace(job, f"7[{number}].vm", 1) for number in range(12000)))
    assert rows.stat().st_size > 16 * 1024 * 1024
    site.qstat(f'case "$*" in *-x*) exec /bin/cat {rows} ;; *) exec $real "$@" ;; esac')
    begun = time.monotonic()
    code, out = site.tell()
    assert code == 0 and "12000.00 GPU-hours" in out and time.monotonic() - begun < 20


def test_how_it_is_asked(site: Site) -> None:
    """Read-only, for this person, each thing once, by commands that pbs.conf names where they are not on the PATH."""
    site.world.env["PATH"] = str(site.world.bin)
    site.ran(5, 2)
    assert site.ask()[:1] == (0,)
    asked = site.pbs.asked("qstat")
    assert len(asked) == 3 and ["-B", "-f"] in asked and not site.pbs.asked("qdel")
    assert all(re.search(rf"-u {re.escape(me())}$", " ".join(words)) for words in asked if "-B" not in words)
    (site.pbs.bin / "qstat").unlink()
    code, out = site.tell()
    assert code == 3 and "qstat is not on the PATH" in out and out.count("could not tell") == 1
