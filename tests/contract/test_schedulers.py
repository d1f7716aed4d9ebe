"""One suite over every scheduler: the request it makes, and its reading of what a real one has printed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Callable, NamedTuple

import pytest

from handwash.model import Job
from handwash.run import CouldNotTell, Result
from handwash.schedulers import slurm

HERE = Path(__file__).resolve().parent


class Expected(NamedTuple):
    """What a recording holds, of one job."""

    id: str
    state: str = "RUNNING"
    gpus: int | None = 0
    name: str = "wrap"
    nodes: tuple[str, ...] = ("n1",)
    limit_s: int | None = 365 * 86400
    interactive: bool = False


class Scheduler(NamedTuple):
    """A scheduler under this suite. `recordings`: the jobs in each file of its folder; `failures`: the word each has."""

    module: ModuleType
    argv: Callable[[int], list[str]]
    parse: Callable[[Result], tuple[Job, ...]]
    recordings: dict[str, list[Expected]]
    unreadable: list[str]
    failures: dict[str, str]
    tracking: str


SCHEDULERS = {
    # Recorded by record_slurm.py on 22.05.
    "slurm": Scheduler(
        module=slurm,
        argv=slurm.squeue_argv,
        parse=slurm.parse_squeue,
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
    """A program found on the PATH, words that hold the uid and nothing that a shell would have to read."""
    argv = scheduler.argv(1234)
    assert "/" not in argv[0] and any("1234" in word for word in argv[1:])
    assert argv == scheduler.argv(1234)
    assert not any("--json" in word or "--yaml" in word for word in argv)


@of("recordings")
def test_a_recording(name: str, item: str) -> None:
    """Each job of a real answer, field by field."""
    jobs = read(name, recorded(name, item))
    assert [
        Expected(job.id, job.state, job.gpus, job.name, job.nodes, job.limit_s, bool(job.interactive)) for job in jobs
    ] == SCHEDULERS[name].recordings[item]
    assert all(job.number.isdigit() and job.partition and job.elapsed_s is not None for job in jobs)


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


@each
def test_process_tracking(scheduler: Scheduler, request: pytest.FixtureRequest) -> None:
    """The site's process tracking out of the site's own words."""
    text = recorded(request.node.callspec.id, "config")
    assert scheduler.module.parse_proctrack(Result(0, text, b"", False)) == scheduler.tracking
