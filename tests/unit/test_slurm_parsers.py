"""The readers of Slurm's answers: right, or "could not tell", whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handwash.run import CouldNotTell, Result
from handwash.schedulers import slurm, slurm_nodes

COLUMNS = {
    "JobID": "123",
    "JobArrayID": "123",
    "State": "RUNNING",
    "BatchFlag": "1",
    "TimeUsed": "1:05",
    "TimeLimit": "1-00:00:00",
    "NumNodes": "1",
    "NumTasks": "1",
    "tres-alloc": "cpu=1,mem=1G,node=1,billing=1",
    "tres-per-job": "N/A",
    "tres-per-node": "N/A",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "OverSubscribe": "OK",
    "Partition": "main",
    "NodeList": "n1",
    "AllocNodes": "login1",
    "AllocSID": "4711",
    "Name": "wrap",
}


def row(**changes: str) -> str:
    """A row as squeue prints it; the changes by column name, `_` for `-`."""
    fields = {**COLUMNS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    assert set(fields) == set(COLUMNS)
    return slurm.FIELD.join(fields.values()) + slurm.RECORD + "\n"


def answer(out: str | bytes, err: bytes = b"", code: int | None = 0, **more: bool) -> Result:
    return Result(code, out.encode() if isinstance(out, str) else out, err, **{"timed_out": False, **more})


def jobs(*rows: str):
    return slurm.parse_squeue(answer("".join(rows)))


def test_the_columns_asked_for_are_the_columns_read() -> None:
    """One request, all partitions, by uid; each field whole, the name last."""
    argv = slurm.squeue_argv(1234)
    assert argv[0] == "squeue" and "--all" in argv and "--user=1234" in argv and "--noheader" in argv
    asked = argv[-1].removeprefix("--Format=")
    assert [part.split(":")[0] for part in asked.split(",")] == list(COLUMNS)
    assert all(part.split(":")[1][0] == "0" for part in asked.split(","))


def test_a_whole_row() -> None:
    """Every field of a job comes out where it belongs."""
    (job,) = jobs(row(JobArrayID="120_3", tres_per_node="gres:gpu:2", NumNodes="2", NodeList="n[1-2]", BatchFlag="0"))
    assert (job.id, job.number, job.state, job.name, job.partition) == ("120_3", "123", "RUNNING", "wrap", "main")
    assert (job.nodes, job.gpus, job.elapsed_s, job.limit_s, job.interactive) == (("n1", "n2"), 4, 65, 86400, True)
    assert job.gpu_hours == pytest.approx(4 * 65 / 3600)


# What a job may be called: anything without the record separator, which only its owner can put there.
names = st.text(st.characters(blacklist_characters=slurm.RECORD + "\0", blacklist_categories=("Cs",)), max_size=60)


@given(st.lists(names, max_size=5))
@example(["a|b", "a\nb", "\x1f\x1f", "CLUSTER: x\n", "\x1b[31mred", "名字", "\u202eabc", " "])
def test_any_name_in_any_row(chosen: list[str]) -> None:
    """A name with separators, line ends, escapes or blanks shifts no column of its own row or of the next."""
    found = jobs(*(row(JobID=str(n), JobArrayID=str(n), Name=name) for n, name in enumerate(chosen, start=1)))
    assert [job.number for job in found] == [str(n) for n in range(1, len(chosen) + 1)]
    # Trailing blanks cannot be told from padding.
    assert [job.name for job in found] == [name.rstrip(" ") for name in chosen]
    assert {(job.state, job.partition, job.elapsed_s) for job in found} <= {("RUNNING", "main", 65)}


@given(names, names)
def test_the_record_separator_in_a_name(before: str, after: str) -> None:
    """Where a name holds the record separator itself the answer is "could not tell", not wrong columns."""
    with pytest.raises(CouldNotTell):
        jobs(row(), row(Name=f"{before}{slurm.RECORD}{after}"), row())


@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"slurm_load_jobs error: Unable to contact slurm controller\n")
@example("²".encode())
def test_garbage(out: bytes) -> None:
    """Whatever a program called squeue prints: jobs, none for blanks, or CouldNotTell; never another error."""
    try:
        found = slurm.parse_squeue(answer(out))
    except CouldNotTell:
        return
    assert found == () and not out.decode("utf-8", "replace").strip()


@given(st.dictionaries(st.sampled_from([name for name in COLUMNS if name != "Name"]), st.text(max_size=40), max_size=4))
@example({"JobID": "²"})
@example({"NumNodes": "²K"})
@example({"NumNodes": "9" * 30})
@example({"NodeList": "n[1-9999999][1-9999999]"})
@example({"NodeList": "[1]" * 2000})
@example({"tres-per-node": "gres:gpu:" + "9" * 5000})
def test_garbage_in_columns(changes: dict[str, str]) -> None:
    """A row of the right shape with nonsense in it: a job or CouldNotTell."""
    fields = {**COLUMNS, **changes}
    try:
        slurm.parse_squeue(answer(slurm.FIELD.join(fields.values()) + slurm.RECORD + "\n"))
    except CouldNotTell:
        pass


@given(st.integers(1, len(row()) - 2))
def test_an_answer_that_breaks_off(length: int) -> None:
    """Cut anywhere, the last row is missed, not read."""
    with pytest.raises(CouldNotTell):
        slurm.parse_squeue(answer(row() + row()[:length]))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (answer("", code=1, err=b"slurm_load_jobs error: Unable to contact slurm controller\n"), "Unable to contact"),
        (answer("", err=b"squeue: error: Invalid user: 4711\n"), "Invalid user"),
        (answer(row(), err=b"squeue: warning\n"), "warning"),
        (answer("", code=1), "no reason given"),
        (answer("", code=-11), "-11"),
        (answer(row(), code=None, timed_out=True), "did not answer"),
        (answer(row(), code=None, capped=True), "more than can be read"),
        (answer("error: something\n"), "breaks off"),
        (answer('{"jobs": [], "errors": ["no controller"]}\n'), "breaks off"),
    ],
)
def test_what_is_no_answer(result: Result, said: str) -> None:
    """Each way in which squeue fails is "could not tell", and says why."""
    with pytest.raises(CouldNotTell, match=said):
        slurm.parse_squeue(result)


@pytest.mark.parametrize("text", ["", "\n", "  \n"])
def test_an_empty_queue(text: str) -> None:
    """Nothing, with exit code 0 and no word of complaint, is no job."""
    assert slurm.parse_squeue(answer(text)) == ()


def test_a_named_cluster() -> None:
    """The line with the cluster's name before the rows of a federation is no row."""
    assert [job.number for job in jobs("CLUSTER: alpha\n", row(), row(JobID="124"))] == ["123", "124"]


@pytest.mark.parametrize("text", ["123", "123_4", "123_[5-100]", "123_[1,3%4]", "123+0", "123_[1-5,7,...]", "123.0"])
def test_job_ids(text: str) -> None:
    """Every form that Slurm prints is accepted and kept as it is."""
    assert jobs(row(JobArrayID=text))[0].id == text


@pytest.mark.parametrize(
    "changes",
    [{"JobID": "x"}, {"JobID": ""}, {"JobArrayID": "j1"}, {"JobArrayID": "1;rm"}, {"State": "Running!"}],
)
def test_ids_and_states_that_are_none(changes: dict[str, str]) -> None:
    """A row that is not about a job is "could not tell"."""
    with pytest.raises(CouldNotTell):
        jobs(row(**changes))


def test_a_state_that_bled() -> None:
    """An old squeue let columns run into each other: it is still a job in the queue."""
    assert jobs(row(State="COMPLETININVALID"))[0].state == "COMPLETININVALID"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("1:05", 65),
        ("12:34:56", 45296),
        ("1-00:00:00", 86400),
        ("365-00:00:01", 31536001),
        *[
            (text, None)
            for text in ("UNLIMITED", "NOT_SET", "INVALID", "N/A", "", "5", "1:2:3:4", "-1:00", "1-", "a:b")
        ],
        ("²:00", None),
        ("1--1:00", None),
    ],
)
def test_times(text: str, seconds: int | None) -> None:
    """Times as squeue prints them; a word in their place is not a time."""
    assert slurm.parse_time(text) == seconds


@given(st.integers(0, 10**8))
def test_times_come_back(seconds: int) -> None:
    """What Slurm's own formatting makes of seconds is read as those seconds."""
    days, rest = divmod(seconds, 86400)
    hours, minutes, rest = rest // 3600, rest % 3600 // 60, rest % 60
    if days:
        text = f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    else:
        text = f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    assert slurm.parse_time(text) == seconds


@given(st.text(max_size=20))
def test_times_and_numbers_never_fail(text: str) -> None:
    """Anything else is None."""
    assert slurm.parse_time(text) is None or text[:1].isdigit()
    assert slurm.parse_number(text) is None or text[:1].isdigit()


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        # As measured on 22.05: --gres, --gpus, --gpus-per-node -N2, --gpus-per-task -n2.
        ({"tres_per_node": "gres:gpu:1"}, 1),
        ({"tres_per_job": "gres:gpu:2"}, 2),
        ({"tres_per_node": "gres:gpu:1", "NumNodes": "2"}, 2),
        ({"tres_per_task": "gres:gpu:1", "NumTasks": "2"}, 2),
        # With AccountingStorageTRES=gres/gpu; what was allocated counts before what was asked for.
        ({"tres_alloc": "cpu=2,gres/gpu=4", "tres_per_node": "gres:gpu:1"}, 4),
        ({"tres_alloc": "cpu=2,gres/gpu=2,gres/gpu:a100=2"}, 2),
        ({"tres_alloc": "gres/gpu:a100=2,gres/gpu:v100=1"}, 3),
        # From 23.02 on: gres/gpu:1.
        ({"tres_per_node": "gres/gpu:1"}, 1),
        ({"tres_per_node": "gres/gpu:a100:2"}, 2),
        ({"tres_per_task": "cpu=4,gres/gpu=1", "NumTasks": "3"}, 3),
        ({"tres_per_node": "gres:gpu"}, 1),
        ({"tres_per_node": "gres:gpu:a100:2(S:0-1)"}, 2),
        ({"tres_per_node": "gres:gpu:1,gres:lustre:1"}, 1),
        ({"tres_per_node": "gres:gpu:1", "NumNodes": "2-4"}, 2),
        # Parts of a GPU are not GPUs.
        ({"tres_per_node": "gres:shard:3"}, 0),
        ({"tres_per_node": "gres:mps:50"}, 0),
        ({"tres_alloc": "gres/gpu=1,gres/shard=4"}, 1),
        # By the names that AMD's, Hygon's, Ascend's and other sites give them.
        ({"tres_alloc": "cpu=2,gres/dcu=4,gres/dcu:Z100=4"}, 4),
        ({"tres_alloc": "gres/gpu=1,gres/npu:910b=2,gres/npu:310=1"}, 4),
        ({"tres_per_node": "gres:mlu:2"}, 2),
        ({"tres_per_node": "gres:tmpdisk:2"}, 0),
        ({"tres_alloc": "gres/gcd=many"}, None),
        ({}, 0),
        # Whole nodes: all their GPUs, which only the accounting counts.
        ({"OverSubscribe": "NO", "tres_per_node": "gres:gpu:1"}, None),
        ({"OverSubscribe": "NO"}, None),
        ({"OverSubscribe": "NO", "tres_alloc": "gres/gpu=8", "tres_per_node": "gres:gpu:1"}, 8),
        ({"OverSubscribe": "YES", "tres_per_node": "gres:gpu:1"}, 1),
        # What cannot be multiplied out is unknown.
        ({"tres_per_socket": "gres:gpu:1"}, None),
        ({"tres_per_node": "gres:gpu:1", "NumNodes": "N/A"}, None),
        ({"tres_per_task": "gres:gpu:1", "NumTasks": ""}, None),
        ({"tres_alloc": "gres/gpu=many"}, None),
    ],
)
def test_gpus_of_a_job(changes: dict[str, str], gpus: int | None) -> None:
    """The number of GPUs, however they were asked for."""
    (job,) = jobs(row(**changes))
    assert job.gpus == gpus
    assert (job.gpu_hours is None) == (gpus is None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],login1", ["n1", "n2", "n3", "n07", "login1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("a,b", ["a", "b"]),
        ("", []),
        ("(null)", []),
        ("N/A", []),
        # What cannot be read stays as it is: one name, for a person to look at.
        ("n[1-", ["n[1-"]),
        ("n[a-b]", ["n[a-b]"]),
        ("n[1-99999999]", ["n[1-99999999]"]),
        ("n[1-60000][1-60000]", ["n[1-60000][1-60000]"]),
    ],
)
def test_hostlists(text: str, names: list[str]) -> None:
    """Slurm's node expressions."""
    assert list(slurm.expand_hostlist(text)) == names


@given(st.text("n12[]-,03", max_size=40))
def test_hostlists_never_fail(text: str) -> None:
    """Any text gives names, and not too many of them."""
    assert len(slurm.expand_hostlist(text)) <= 2 * 65536


@given(st.integers(0, 500), st.integers(0, 40), st.integers(1, 4))
def test_hostlists_come_back(first: int, more: int, digits: int) -> None:
    """A range is expanded to what it stands for, with its leading zeros."""
    expression = f"node[{first:0{digits}}-{first + more:0{digits}}]"
    assert list(slurm.expand_hostlist(expression)) == [f"node{n:0{digits}}" for n in range(first, first + more + 1)]


def test_nodes_of_a_configuration() -> None:
    """Node names and host names, without DEFAULT, comments, or anything else that has nodes in it."""
    text = """
        ClusterName=x   # NodeName=comment
        NodeName=DEFAULT CPUs=4
        nodename=n[1-2] NodeHostname=h[1-2] CPUs=4 \\
            RealMemory=100
        PartitionName=main Nodes=n[1-2],other Default=YES
        #NodeName=off
        NodeName=big State=DOWN
    """
    assert slurm.nodes_in_config(text) == ("n1", "n2", "h1", "h2", "big")


def test_controllers() -> None:
    """With an address or without, a second one for when the first fails, by the keys of old releases, not in a comment."""
    text = """
        SlurmctldHost=login1(10.0.0.1)
        slurmctldhost = login2 # spare
        #SlurmctldHost=off
        ControlMachine=old
        SlurmctldPort=6817
    """
    assert slurm.controllers_in_config(text) == ("login1", "login2", "old")


@given(st.text(max_size=200))
def test_configurations_never_fail(text: str) -> None:
    """Any text is a configuration, if need be without nodes."""
    slurm.nodes_in_config(text)
    slurm.nodes_in_config("NodeName=" + text)
    assert all(slurm.controllers_in_config(text + "\nSlurmctldHost=" + text))


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("Configuration data\nProctrackType           = proctrack/cgroup\nX = y\n", 0, "cgroup"),
        ("ProctrackType = proctrack/linuxproc", 0, "linuxproc"),
        ("ProctrackType = ", 0, None),
        ("slurm_load_ctl_conf error", 1, None),
        ("", 0, None),
    ],
)
def test_process_tracking(text: str, code: int, word: str | None) -> None:
    """The last part of the plug-in's name, or nothing."""
    assert slurm.parse_proctrack(answer(text, code=code)) == word


STEPS = "             STEPID\n          {job}.0\n          {job}.batch\n      {job}+1.interactive\n"


def test_the_steps_that_live() -> None:
    """Numbers and names, those of every component; none is a header alone, and nothing at all is no answer."""
    assert slurm_nodes.parse_steps(answer(STEPS.format(job="42")), "42") == ("0", "batch", "interactive")
    assert slurm_nodes.parse_steps(answer("STEPID\n"), "42") == ()
    for bad in (answer(""), answer("42.0\n"), answer("STEPID\n42\n"), answer(STEPS, b"slurm_load: no", 0)):
        with pytest.raises(CouldNotTell):
            slurm_nodes.parse_steps(bad, "42")
    for bad in (answer(STEPS, code=1), answer(STEPS, code=None, timed_out=True)):
        with pytest.raises(CouldNotTell):
            slurm_nodes.parse_steps(bad, "42")


@given(st.text() | st.from_regex(r"STEPID\n([0-9+_]{1,4}\.[0-9a-z]{0,3}\n){0,3}.?"), st.binary(max_size=3))
def test_any_answer_about_steps(out: str, err: bytes) -> None:
    """Read, or could not tell; never a step from an answer that has no header or comes with words of complaint."""
    try:
        steps = slurm_nodes.parse_steps(answer(out.encode("utf-8", "replace").decode(), err), "42")
    except CouldNotTell:
        return
    assert out.split()[0] == "STEPID" and not err.strip()
    assert len(steps) == len(out.split()) - 1
