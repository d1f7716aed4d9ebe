"""One suite over every scheduler: the request it makes, and its reading of what a real one has printed."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, NamedTuple

import pytest

from handwash.model import Job
from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs, slurm

HERE = Path(__file__).resolve().parent
# When what PBS has printed was read: later than each time in it.
READ_AT = 1796083200.0


class Expected(NamedTuple):
    """What a recording holds, of one job."""

    id: str
    state: str = "RUNNING"
    gpus: int | None = 0
    name: str = "wrap"
    nodes: tuple[str, ...] = ("n1",)
    limit_s: int | None = 365 * 86400
    interactive: bool = False


def of_pbs(number: str, state: str = "RUNNING", **more: object) -> Expected:
    """A job of the PBS server `vm`, which runs jobs itself."""
    return Expected(f"{number}.vm", state, **{"nodes": ("vm",), "limit_s": None, **more})


class Scheduler(NamedTuple):
    """A scheduler under this suite. `recordings`: the jobs in each file of its folder; `failures`: the word each has.

    `person`: whose jobs `argv` asks for. `tracking`: the site's process tracking, for a scheduler that says it.
    """

    person: str
    argv: Callable[[], list[str]]
    parse: Callable[[Result], tuple[Job, ...]]
    is_number: Callable[[str], bool]
    recordings: dict[str, list[Expected]]
    unreadable: list[str]
    failures: dict[str, str]
    tracking: str | None = None


SCHEDULERS = {
    # Recorded by record_slurm.py on 22.05.
    "slurm": Scheduler(
        person="1234",
        argv=lambda: slurm.squeue_argv(1234),
        parse=slurm.parse_squeue,
        is_number=slurm.digits,
        recordings={
            "empty": [],
            "gres": [Expected("1", gpus=1)],
            "gpus": [Expected("2", gpus=2)],
            "gpus-per-node": [Expected("3", gpus=2, nodes=("n1", "n2"))],
            "gpus-per-task": [Expected("4", gpus=2)],
            "no-gpu": [Expected("5", limit_s=86400 + 2 * 3600 + 180)],
            "exclusive": [Expected("6", gpus=None)],
            "array": [
                Expected("7_[3-5%2]", "PENDING", gpus=1, nodes=(), limit_s=None),
                Expected("7_1", gpus=1),
                Expected("7_2", gpus=1),
            ],
            "held-array": [Expected("10_[0-99:3]", "PENDING", nodes=(), limit_s=None)],
            "het": [Expected("11+0", gpus=1, limit_s=None), Expected("11+1", nodes=("n2",), limit_s=None)],
            "name-with-separators": [Expected("13", name="a|b^^^c\x1fd")],
            "name-with-escapes": [Expected("14", name="\x1b[31mred\x07")],
            "name-with-quotes": [Expected("15", name='it\'s "so" $HOME')],
            "name-with-newline": [Expected("16", name="one\ntwo")],
            "name-in-chinese": [Expected("17", name="训练 三号")],
            "name-very-long": [Expected("19", name="n" * 600)],
            "interactive": [Expected("20", gpus=1, name="by-hand", limit_s=None, interactive=True)],
            "suspended": [Expected("20", "SUSPENDED", gpus=1, name="by-hand", limit_s=None, interactive=True)],
            "completing": [Expected("21", "COMPLETING", name="bash", limit_s=None, interactive=True)],
        },
        unreadable=["name-of-record-separator"],
        failures={"down": "Unable to contact slurm controller", "invalid-user": "Invalid user"},
        tracking="linuxproc",
    ),
    # Printed by OpenPBS 23.06.06 and its head of 2026, for alice; what was asked for without -w is unfolded here.
    "pbs": Scheduler(
        person="alice",
        argv=lambda: pbs.jobs_argv("alice"),
        parse=lambda result: pbs.parse_jobs(result, "alice", READ_AT).jobs,
        is_number=pbs.is_job_id,
        recordings={
            "empty": [],
            "running": [of_pbs("1", gpus=2, name="STDIN", limit_s=1800, interactive=True)],
            "first-seconds": [of_pbs("144", gpus=1, name="STDIN")],
            "cgroup-hook": [of_pbs("90", gpus=1, name="STDIN", interactive=True)],
            "exiting": [of_pbs("68", "COMPLETING", gpus=2, name="exiting", limit_s=600)],
            "queued": [of_pbs("78", "PENDING", name="STDIN", nodes=(), interactive=True)],
            "held": [of_pbs("111", "PENDING", name="STDIN", nodes=(), interactive=True)],
            "finished": [],
            "somebody-elses": [],
            # One of them an array, 29[], of which nothing waits any more.
            "many": [
                of_pbs("25", gpus=2, name="run1", limit_s=1200),
                of_pbs("26", gpus=2, name="two"),
                of_pbs("27", "PENDING", gpus=4, name="big", nodes=()),
                *(
                    of_pbs(number, "PENDING", name=name, nodes=())
                    for number, name in (
                        *(("28", "held1"), ("30", "wait1"), ("31", "dep1"), ("32", "-x"), ("33", "x" * 15)),
                        *(
                            ("34", "x" * 16),
                            ("35", "1abc"),
                            ("36", "123"),
                            ("37", "1e5"),
                            ("38", "true"),
                            ("39", "null"),
                        ),
                    )
                ),
            ],
            "variable-with-newline": [of_pbs("42", "PENDING", name="t", nodes=())],
            "variable-with-escapes": [of_pbs("50", "PENDING", name="t", nodes=())],
            "variable-with-quotes": [of_pbs("40", "PENDING", name="t", nodes=())],
            "variable-in-chinese": [of_pbs("52", "PENDING", name="t", nodes=())],
            "variable-with-backslash": [of_pbs("44", "PENDING", name="t", nodes=())],
        },
        unreadable=[],
        failures={
            "down": "cannot connect to server vm",
            "unknown-server": "cannot connect to server nosuchhost",
            "no-route": "192.0.2.77",
            "no-configuration": "errno=0",
            "no-history": "not configured to maintain job history",
        },
    ),
}

each = pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)


def of(part: str) -> pytest.MarkDecorator:
    """A test for each item of a part, of each scheduler."""
    cases = [(name, item) for name, scheduler in SCHEDULERS.items() for item in getattr(scheduler, part)]
    return pytest.mark.parametrize(("name", "item"), cases)


def recorded(name: str, item: str) -> bytes:
    return (HERE / name / f"{item}.txt").read_bytes()


def read(name: str, out: bytes, err: bytes = b"", code: int = 0) -> tuple[Job, ...]:
    return SCHEDULERS[name].parse(Result(code, out, err, False))


@each
def test_the_request(scheduler: Scheduler) -> None:
    """A program found on the PATH, words that name the person and nothing that a shell would have to read."""
    argv = scheduler.argv()
    assert "/" not in argv[0] and any(scheduler.person in word for word in argv[1:])
    assert argv == scheduler.argv()
    assert not any("json" in word or "yaml" in word for word in argv)


@of("recordings")
def test_a_recording(name: str, item: str) -> None:
    """Each job of a real answer, field by field."""
    jobs = read(name, recorded(name, item))
    assert [
        Expected(job.id, job.state, job.gpus, job.name, job.nodes, job.limit_s, bool(job.interactive)) for job in jobs
    ] == SCHEDULERS[name].recordings[item]
    assert all(SCHEDULERS[name].is_number(job.number) and job.partition for job in jobs)
    assert all(job.elapsed_s is not None for job in jobs)


@of("unreadable")
def test_a_recording_that_cannot_be_read(name: str, item: str) -> None:
    """Could not tell, rather than shifted columns."""
    with pytest.raises(CouldNotTell):
        read(name, recorded(name, item))


@of("recordings")
def test_a_recording_that_breaks_off(name: str, item: str) -> None:
    """Without its last byte that counts no answer is whole."""
    whole = recorded(name, item).rstrip()
    if whole:
        with pytest.raises(CouldNotTell):
            read(name, whole[:-1])


@of("recordings")
def test_a_recording_with_a_complaint(name: str, item: str) -> None:
    """Words on standard error, or any exit code but 0, and the answer does not count."""
    for err, code in ((b"error: something\n", 0), (b"", 1), (b"error\n", 1)):
        with pytest.raises(CouldNotTell):
            read(name, recorded(name, item), err, code)


@of("failures")
def test_a_failure(name: str, item: str) -> None:
    """What the real one says where it has no answer, exit code 0 included, is "could not tell", in its own words."""
    code, _line, err = (HERE / name / f"{item}.err").read_text().partition("\n")
    with pytest.raises(CouldNotTell, match=SCHEDULERS[name].failures[item]):
        read(name, b"", err.encode(), int(code))


@each
def test_every_recording_is_read(scheduler: Scheduler, request: pytest.FixtureRequest) -> None:
    """No file lies about that no test opens."""
    name = request.node.callspec.id
    files = {path.stem for path in (HERE / name).glob("*.txt")} - {"config"}
    assert files == {*scheduler.recordings, *scheduler.unreadable}
    assert {path.stem for path in (HERE / name).glob("*.err")} == set(scheduler.failures)


@pytest.mark.parametrize("name", [name for name, scheduler in SCHEDULERS.items() if scheduler.tracking])
def test_process_tracking(name: str) -> None:
    """The site's process tracking out of the site's own words."""
    assert slurm.parse_proctrack(Result(0, recorded(name, "config"), b"", False)) == SCHEDULERS[name].tracking
