"""The readers of PBS's answers: right, or "could not tell", whatever comes."""

from __future__ import annotations

import calendar
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs

NOW = 1796054400.0  # Mon Nov 30 16:00:00 2026 in UTC
RUNNING = {
    "Job_Name": "train",
    "Job_Owner": "alice@login1",
    "resources_used.walltime": "00:00:00",
    "job_state": "R",
    "queue": "workq",
    "exec_host": "n1/0*4+n1/1+n2/0",
    "exec_vnode": "(n1:ncpus=4:ngpus=2)+(n1:ncpus=1)+(n2:ncpus=1:ngpus=1)",
    "interactive": "True",
    "Resource_List.ngpus": "3",
    "Resource_List.place": "free",
    "Resource_List.select": "1:ncpus=4:ngpus=2+1:ncpus=1+1:ncpus=1:ngpus=1",
    "Resource_List.walltime": "100:00:00",
    "stime": "Mon Nov 30 15:58:20 2026",
    "Variable_List": "PBS_O_HOST=elsewhere,SECRET=x",
}


def record(job: str = "90.vm", **changes: str | None) -> str:
    """A job as `qstat -f -w` prints it: changed by attribute, with `__` for a dot; None takes one away."""
    attributes = {**RUNNING, **{name.replace("__", "."): value for name, value in changes.items()}}
    lines = [f"    {name} = {value}" for name, value in attributes.items() if value is not None]
    return "\n".join([f"Job Id: {job}", *lines]) + "\n\n"


def answer(out: str | bytes, err: bytes = b"", code: int | None = 0, **more: bool) -> Result:
    return Result(
        code, out.encode("utf-8", "replace") if isinstance(out, str) else out, err, **{"timed_out": False, **more}
    )


def jobs(*rows: str, user: str = "alice"):
    return pbs.parse_jobs(answer("".join(rows)), user, NOW).jobs


def test_the_requests() -> None:
    """One line for each attribute, for one person; the subjobs that run where they are asked for."""
    assert pbs.jobs_argv("alice") == ["qstat", "-f", "-w", "-u", "alice"]
    assert set(pbs.subjobs_argv("alice")) == {*pbs.jobs_argv("alice"), "-t", "-r"}


def test_a_whole_record() -> None:
    """Every field of a job comes out where it belongs; the host it came from by the server's word, not by the person's."""
    (job,) = jobs(record())
    assert (job.id, job.number, job.state, job.name, job.partition) == ("90.vm", "90.vm", "RUNNING", "train", "workq")
    assert (job.nodes, job.gpus, job.elapsed_s, job.limit_s) == (("n1", "n2"), 3, 100, 360000)
    assert (job.interactive, job.alloc_host, job.alloc_sid) == (True, "login1", None)


@pytest.mark.parametrize(
    ("letter", "word"),
    [
        *((letter, "PENDING") for letter in "QHWTB"),
        *((letter, "SUSPENDED") for letter in "SU"),
        *(("R", "RUNNING"), ("E", "COMPLETING")),
    ],
)
def test_states(letter: str, word: str) -> None:
    """PBS's letters in the words that the rest reads."""
    (job,) = jobs(record(job_state=letter))
    assert job.state == word


def test_what_has_left_the_queue() -> None:
    """Finished, moved and expired ones are no jobs of now; a letter that nobody knows is no answer."""
    assert jobs(*(record(f"{n}.vm", job_state=letter) for n, letter in enumerate("FMX"))) == ()
    for letter in ("", "Z", "RR", "r"):
        with pytest.raises(CouldNotTell):
            jobs(record(job_state=letter))


@pytest.mark.parametrize(
    "owner", ["bob@login1", "alicea@login1", "ALICE@login1", "root@alice", "@alice", "", "x@y@alice"]
)
def test_somebody_elses(owner: str) -> None:
    """A job whose owner is another is none of the person's, and what is odd about it is not looked at."""
    assert jobs(record(Job_Owner=owner, job_state="?"), record("91.vm"))[0].id == "91.vm"


def test_owned_from_any_host() -> None:
    """The same person on another login node."""
    assert [
        job.alloc_host for job in jobs(record(Job_Owner="alice@n9.cluster"), record("91.vm", Job_Owner="alice"))
    ] == [
        "n9.cluster",
        "",
    ]


def test_arrays() -> None:
    """An array stands for what of it waits; those that run come with the second request, and none comes twice."""

    def array(job: str, counts: str, **more: str) -> str:
        return record(job, exec_host=None, exec_vnode=None, array_state_count=counts, **{"job_state": "B", **more})

    first = pbs.parse_jobs(
        answer(
            array("1[].vm", "Queued:2 Running:1 Exiting:0 Expired:0")
            + array("2[].vm", "Queued:0 Running:0 Exiting:0 Expired:4")
            + record("3.vm")
        ),
        "alice",
        NOW,
    )
    assert [(job.id, job.state, job.elapsed_s) for job in first.jobs] == [
        ("1[].vm", "PENDING", 0),
        ("3.vm", "RUNNING", 100),
    ]
    assert first.begun
    second = pbs.parse_jobs(answer(record("1[2].vm") + record("3.vm")), "alice", NOW)
    assert [job.id for job in pbs.with_subjobs(first, second)] == ["1[].vm", "3.vm", "1[2].vm"]
    waiting = array("1[].vm", "Queued:3 Running:0 Exiting:0 Expired:0", job_state="Q")
    assert not pbs.parse_jobs(answer(waiting), "alice", NOW).begun


# What a name or a variable can hold when it has come through qstat: a newline as two characters, and no form feed.
values = st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), max_size=80)


@given(st.lists(values, max_size=4), values)
@example(
    ["Job Id: 1.vm", "    job_state = R", "x = y", " = ", "\r\v\x1c\x85\u2028", "\\n    job_state = F"], "V=ends\\\\"
)
def test_any_name_and_any_variable(chosen: list[str], variables: str) -> None:
    """Neither begins another attribute or another job, or changes one; the name is shown as qstat printed it."""
    found = jobs(
        *(
            record(f"{n}.vm", Job_Name=name, Variable_List=variables, Resource_List__site=variables)
            for n, name in enumerate(chosen, start=1)
        )
    )
    assert [job.id for job in found] == [f"{n}.vm" for n in range(1, len(chosen) + 1)]
    assert [job.name for job in found] == chosen
    assert {(job.state, job.gpus, job.elapsed_s, job.interactive) for job in found} <= {("RUNNING", 3, 100, True)}


@given(values)
def test_a_line_of_its_own(line: str) -> None:
    """What is not as qstat prints a job is no answer, nor is an attribute that comes twice."""
    text = record()[:-1] + line + "\n\n"
    try:
        found = jobs(text)
    except CouldNotTell:
        return
    assert [job.id for job in found] == ["90.vm"] or line.startswith("Job Id: ")
    with pytest.raises(CouldNotTell):
        jobs(record()[:-1] + "    job_state = F\n\n")


@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"Job Id: \n\n")
@example(b"Job Id: 1\n    Job_Owner = alice\n\n")
@example(b'{"Jobs": {}}\n')
@example("Job Id: ²\n\n".encode())
def test_garbage(out: bytes) -> None:
    """Whatever a program called qstat prints: none for blanks, or CouldNotTell; never another error."""
    try:
        found = pbs.parse_jobs(answer(out), "alice", NOW)
    except CouldNotTell:
        return
    assert found.jobs == () and not out.decode("utf-8", "replace").strip()


@given(st.dictionaries(st.sampled_from(list(RUNNING)), values, max_size=5), values)
@example({"stime": "Mon Nov 99 99:99:99 9999"}, "1.vm")
@example({"Resource_List.ngpus": "²"}, "1.vm")
@example({"exec_vnode": "(n1:ngpus=" + "9" * 5000 + ")"}, "1.vm")
@example({"Resource_List.walltime": "9" * 5000}, "1.vm")
@example({"array_state_count": "Running:²"}, "1.vm")
def test_garbage_in_attributes(changes: dict[str, str], job: str) -> None:
    """A record of the right shape with nonsense in it: a job of the person's, none, or CouldNotTell."""
    attributes = {name.replace(".", "__"): value for name, value in changes.items()}
    try:
        found = jobs(record(job, **attributes))
    except CouldNotTell:
        return
    assert not found or attributes.get("Job_Owner", "alice").partition("@")[0] == "alice"


@given(st.integers(1, len(record()) - 1))
def test_an_answer_that_breaks_off(length: int) -> None:
    """Cut anywhere, the last job is missed, not read."""
    with pytest.raises(CouldNotTell):
        jobs(record() + record("91.vm")[:length])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (answer("", code=255, err=b"Connection refused\nqstat: cannot connect to server vm (errno=15010)\n"), "15010"),
        (answer(record(), err=b"qstat: warning\n"), "warning"),
        (answer("", code=2), "no reason given"),
        (answer("", code=-11), "-11"),
        (answer(record(), code=None, timed_out=True), "did not answer"),
        (answer(record(), code=None, capped=True), "more than can be read"),
        (answer("Connection refused\n"), "breaks off"),
    ],
)
def test_what_is_no_answer(result: Result, said: str) -> None:
    """Each way in which qstat fails is "could not tell", and says why."""
    with pytest.raises(CouldNotTell, match=said):
        pbs.parse_jobs(result, "alice", NOW)


@pytest.mark.parametrize(
    ("attributes", "gpus"),
    [
        ({"Resource_List__ngpus": "2"}, 2),
        ({"Resource_List__ncpus": "4"}, 0),
        ({"exec_vnode": "(n1:ncpus=1:ngpus=2)+(n2:ncpus=1:ngpus=2)", "Resource_List__ngpus": "9"}, 4),
        # A chunk out of two vnodes, one of them called by a number.
        ({"exec_vnode": "(7:ngpus=1:mem=1kb+n1[1]:ngpus=1)"}, 2),
        ({"Resource_List__select": "2:ncpus=1:ngpus=1+1:ncpus=2+ngpus=3"}, 5),
        ({"Resource_List__nodes": "2:ppn=4:gpus=2"}, 4),
        ({"Resource_List__nodes": "n1:ppn=4:gpus=2+n2"}, 2),
        # Under the names that sites have, and one kind under two of them.
        ({"Resource_List__ndcu": "4"}, 4),
        ({"Resource_List__naccelerators": "1"}, 1),
        ({"Resource_List__npu": "3", "Resource_List__ngpus": "1"}, 4),
        ({"Resource_List__gpus": "2", "Resource_List__ngpus": "2"}, 2),
        ({"Resource_List__ngpus": "many"}, None),
        # Whole nodes, however many were asked for.
        ({"Resource_List__place": "scatter:excl", "Resource_List__ngpus": "1"}, None),
        ({"Resource_List__place": "exclhost"}, None),
        ({"Resource_List__place": "pack:shared", "Resource_List__ngpus": "1"}, 1),
        # Not GPUs, and not the server's word.
        ({"Resource_List__gpu_model": "a100", "Variable_List": "Resource_List.ngpus=4"}, 0),
    ],
)
def test_gpus(attributes: dict[str, str], gpus: int | None) -> None:
    """What was given, else asked for in all, else in chunks; None where it cannot be told."""
    nothing = {name.replace(".", "__"): None for name in RUNNING if name.startswith(("Resource_List", "exec_"))}
    (job,) = jobs(record(**{**nothing, **attributes}))
    assert job.gpus == gpus


@pytest.mark.parametrize(
    ("attributes", "elapsed"),
    [
        ({"job_state": "Q", "stime": None}, 0),
        ({"job_state": "R", "stime": None}, None),
        ({"job_state": "S", "resources_used__walltime": "00:01:05"}, 65),
        # The server's clock may be a little ahead; hours ahead is another time zone than the one asked for.
        ({"stime": "Mon Nov 30 16:00:30 2026"}, 0),
        ({"stime": "Tue Dec  1 00:00:00 2026"}, None),
    ],
)
def test_elapsed(attributes: dict[str, str | None], elapsed: int | None) -> None:
    """Since its start, without a suspension that lasts; unknown rather than wrong."""
    (job,) = jobs(record(**attributes))
    assert job.elapsed_s == elapsed


@given(st.integers(0, 253402300799))
def test_times(moment: int) -> None:
    """Any time as ctime(3) prints it in UTC, against the standard library's own."""
    text = time.asctime(time.gmtime(moment))
    assert pbs.parse_utc(text) == moment == calendar.timegm(time.strptime(text))


@given(st.text(max_size=30) | st.from_regex(r"Mon Nov [0-9 ]{0,3} [0-9:]{0,9} [0-9]{0,5}"))
def test_no_times(text: str) -> None:
    """Any text is a time from 1970 on, or none."""
    moment = pbs.parse_utc(text)
    assert moment is None or moment >= 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:02:03", 3723),
        ("100:00:00", 360000),
        ("59", 59),
        ("2:00", 120),
        ("", None),
        ("1:x", None),
        ("1:2:3:4", None),
    ],
)
def test_limits(text: str, seconds: int | None) -> None:
    """H:MM:SS, or seconds."""
    assert pbs.parse_time(text) == seconds


@pytest.mark.parametrize("text", ["1", "1.vm", "12[].vm", "12[3].pbs-1.cluster.example", "1.vm:15001", "12[]"])
def test_ids(text: str) -> None:
    """A job, an array, a subjob."""
    assert pbs.is_job_id(text)


@pytest.mark.parametrize(
    "text",
    ["", "vm", "-x", "1.", "1[", "1[a].vm", "1]", "1.vm@other", "1 .vm", "1.vm\n", "²", "1[2]3.vm", ".vm", "1.-\x1b"],
)
def test_no_ids(text: str) -> None:
    """Nothing that qstat or qdel would take for an option, a queue or another server."""
    assert not pbs.is_job_id(text)
