"""The queue's answers: gone, there, could not tell; and what is cancelled when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.run import Result
from handwash.schedulers import slurm_step
from handwash.schedulers.slurm_step import GONE, THERE, UNKNOWN, Answer, Target
from handwash.srun import confirm, receipt

OWN = Target(("123",), "0", own=True)
STEP = Target(("123",), "4", own=False)


def result(out="", err="", code=0, timed_out=False):
    return Result(None if timed_out else code, out.encode(), err.encode(), timed_out)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (result("JOBID:STATE\n"), GONE),
        (result("STEPID:RUNNING\n"), GONE),
        (result(), UNKNOWN),
        (result("\n"), UNKNOWN),
        (result(err="slurm_load_jobs error: Invalid job id specified\n", code=1), GONE),
        (result(err="slurm_load_jobs error: Invalid job id specified\n"), GONE),
        (result("JOBID:STATE\n123:RUNNING\n"), THERE),
        (result("123:RUNNING\n"), THERE),
        (result("123:COMPLETING\n"), THERE),
        (result("123+0:RUNNING\n123+1:RUNNING\n"), THERE),
        (result("123_7:PENDING\n"), THERE),
        (result("CLUSTER: far\nJOBID:STATE\n123:RUNNING\n"), THERE),
        (result("CLUSTER: far\nJOBID:STATE\n"), GONE),
        (result("CLUSTER: far\n"), UNKNOWN),
        (result(timed_out=True), UNKNOWN),
        (result(code=1), UNKNOWN),
        (result(err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1), UNKNOWN),
        (result(err="slurm_load_jobs error: Socket timed out on send/recv operation\n", code=1), UNKNOWN),
        (result(err="squeue: error: something\n"), UNKNOWN),
        (result(err="Invalid user: 1234\n"), UNKNOWN),
        (result("nonsense\n"), UNKNOWN),
        (result("\x1b[2J:RUNNING\n"), UNKNOWN),
        (result('{"jobs": []}\n'), UNKNOWN),
        (result("123:\n"), UNKNOWN),
    ],
)
def test_each_answer_means_one_of_three_things(answer, word):
    assert slurm_step.parse_queue(answer).word == word


@given(st.text(max_size=40), st.text(max_size=40), st.integers(-15, 255))
def test_only_a_header_alone_means_gone(out, err, code):
    answer = slurm_step.parse_queue(result(out, err, code))
    if answer.word == GONE and "Invalid job id" not in err:
        assert code == 0 and not err.strip()
        rows = [row.strip() for row in out.split("\n") if row.strip() and not row.startswith("CLUSTER: ")]
        assert rows[0] in slurm_step.HEADERS and len(rows) == 1


def test_the_requests():
    far = Target(("7", "8"), "0", own=True, cluster="far")
    assert slurm_step.queue_argv(far) == [
        "squeue", "--all", "--clusters=far", "-j", "7,8", "-o", "%i:%T",
    ]  # fmt: skip
    assert slurm_step.queue_argv(STEP)[2:4] == ["-s", "123.4"]
    assert slurm_step.cancel_argv(OWN, whole_job=True) == ["scancel", "123"]
    assert slurm_step.cancel_argv(OWN, whole_job=False) == ["scancel", "123.0"]


def test_anothers_allocation_is_never_cancelled():
    assert slurm_step.cancel_argv(STEP, whole_job=True) == ["scancel", "123.4"]


NONE = result("JOBID:STATE\n")


class Cluster:
    """Answers squeue from a list, remembers scancel."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.cancelled = []

    def __call__(self, argv):
        if argv[0] == "scancel":
            self.cancelled.append(argv[1:])
            return result()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def ask(target, cluster, urgent=False):
    pauses = []
    found = confirm.confirm(target, urgent=urgent, query=cluster, sleep=pauses.append)
    return found, pauses


def test_a_job_that_is_gone_is_asked_about_once():
    cluster = Cluster(NONE)
    found, pauses = ask(OWN, cluster)
    assert (found.answer, found.cancelled, pauses) == (Answer(GONE), False, [])


def test_the_pauses_grow():
    cluster = Cluster(*[result("123:COMPLETING\n")] * len(confirm.PAUSES), NONE)
    found, pauses = ask(OWN, cluster)
    assert found.answer.word == GONE and not cluster.cancelled
    assert pauses == list(confirm.PAUSES)


def test_what_stays_is_cancelled_and_asked_about_again():
    cluster = Cluster(*[result("123:RUNNING\n")] * 4, result("123:COMPLETING\n"), NONE)
    found, _pauses = ask(OWN, cluster)
    assert found == confirm.Confirmation(Answer(GONE), True)
    assert cluster.cancelled == [["123.0"], ["123"]]


def test_when_srun_was_killed_it_is_cancelled_at_once():
    cluster = Cluster(result("123:RUNNING\n"), NONE)
    ask(OWN, cluster, urgent=True)
    assert cluster.cancelled == [["123.0"], ["123"]]


def test_in_anothers_allocation_only_the_step_is_cancelled():
    cluster = Cluster(result("123.4:RUNNING\n"), NONE)
    ask(STEP, cluster, urgent=True)
    assert cluster.cancelled == [["123.4"]]


def test_no_answer_is_never_taken_for_gone():
    cluster = Cluster(result(timed_out=True))
    found, _pauses = ask(OWN, cluster)
    assert found.answer.word == UNKNOWN
    assert "could not tell whether the job has left the queue" in receipt.queue(OWN, found)


def test_one_missing_answer_is_asked_again():
    found, _pauses = ask(OWN, Cluster(result(code=1), NONE))
    assert found.answer.word == GONE


@pytest.mark.parametrize("clusters", ["near,far", "all", "ALL"])
def test_a_number_means_nothing_where_srun_chose_the_cluster(clusters, monkeypatch):
    """The same number may be another job there: neither confirmed nor cancelled."""
    target = Target(("123",), "0", own=True, cluster=clusters)
    asked = []
    done = confirm.confirm(target, urgent=True, query=asked.append)
    assert (done.answer.word, done.cancelled, asked) == (UNKNOWN, False, [])
    monkeypatch.setattr(confirm, "ask", asked.append)
    assert confirm.gpus(target) is None and not asked


def test_patience_has_an_end(monkeypatch):
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr(confirm.world, "monotonic", lambda: next(clock))
    found, _pauses = ask(OWN, Cluster(result("123:COMPLETING\n")))
    assert found.answer == Answer(THERE, "COMPLETING")
    assert receipt.queue(OWN, found) == "the job is still in the queue (COMPLETING): try `scancel 123`"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("JobId=1 JOB_GRES=gpu:a100:2 Nodes=n1 GRES=gpu:a100:1(IDX:0)", 2),
        ("JobId=1 JOB_GRES=gpu:1,shard:4,gpu:h200:2", 3),
        ("JobId=1 JOB_GRES=dcu:Z100:4,gpu:1", 5),
        ("JobId=1 TRES=cpu=1,gres/npu=8", 8),
        ("JobId=1 JOB_GRES=mps:100", 0),
        ("JobId=1 JOB_GRES=gpu", 1),
        ("JobId=1 TRES=cpu=1,node=1,gres/gpu=4", 4),
        ("JobId=1 TRES=cpu=1,node=1", 0),
        ("JobId=1", None),
    ],
)
def test_the_gpus_of_a_job(text, count):
    assert slurm_step.parse_gpus(result(text)) == count


def test_gpus_that_cannot_be_told_are_not_none():
    assert slurm_step.parse_gpus(result(code=1)) is None
    assert "unknown" in receipt.cost(None, 60)
    assert receipt.cost(0, 60) == ""
    assert receipt.cost(2, 5400) == "3.000 GPU-hours (2 × 1:30:00)"


def test_what_srun_says_about_an_option():
    for text, word in (
        ("srun: option '--x' requires an argument", "required"),
        ("srun: unrecognized option '--x'", "unknown"),
        ("srun: option '--x' is ambiguous; possibilities: '--xa' '--xb'", "unknown"),
        ("srun: fatal: No command given to execute.", "no"),
    ):
        assert slurm_step.parse_arity(result(err=text, code=1)) == word


def test_what_could_not_be_ended_is_said_in_the_words_of_clean():
    """By pid, those with one reason together; never beside "nothing was left running"."""
    stuck = [(4711, "uninterruptible (nv_lock)"), (4712, "uninterruptible (nv_lock)"), (9, "other-user")]
    words = "it hangs in the kernel and cannot be killed; tell the administrator: uninterruptible (nv_lock)"
    assert receipt.processes(0, 0, stuck) == (
        f"could not be ended: 4711, 4712 ({words}), 9 (it belongs to another user now)"
    )
    assert receipt.processes(2, 0, stuck[2:]).startswith("2 processes ended; could not be ended: 9 (")


def test_what_to_send_to_the_administrator(capfd):
    """Node, pids, name, where they wait in the kernel and the job: only of those that hang there."""
    rows = [("n1", pid, "train.py", "uninterruptible (nv_lock)") for pid in (11, 12, 13, 15)]
    receipt.say_to_send([*rows, ("n2", 7, "", "alive")], "42")
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("handwash: Send this to the administrator")
    assert "node n1: processes 11-13, 15 (train.py) of" in second and "nv_lock" in second and "job 42" in second
    receipt.say_to_send([("n2", 7, "", "alive")])
    receipt.say_to_send([])
    assert capfd.readouterr().err == ""


def test_a_receipt_is_one_line_and_cannot_steer_the_terminal(capfd):
    receipt.say("a\x1b[31m", "", "b\nc", about="job 1")
    assert capfd.readouterr().err == "handwash: job 1: a?[31m; b?c\n"
