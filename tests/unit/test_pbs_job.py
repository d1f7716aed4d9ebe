"""One job of PBS, and its node: gone, there or unknown; whose a process is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.test_pbs_parsers import answer, record

from handwash.run import Result
from handwash.schedulers import pbs_job, pbs_node
from handwash.schedulers.slurm_step import GONE, THERE, UNKNOWN

DOWN = b"Connection refused\nqstat: cannot connect to server vm (errno=15010)\n"
FINISHED = b"qstat: 90.vm Job has finished, use -x or -H to obtain historical job information\n"


@pytest.mark.parametrize(
    ("result", "word"),
    [
        *((answer(record(job_state=letter)), THERE) for letter in "QHWTRESUB"),
        *((answer(record(job_state=letter)), GONE) for letter in "FX"),
        (answer("", b"qstat: Unknown Job Id 90.vm\n", 153), GONE),
        (answer("", FINISHED, 35), GONE),
        # Its words about another job, or not PBS's words at all.
        (answer("", b"qstat: Unknown Job Id 9.vm\n", 153), UNKNOWN),
        (answer("", b"", 153), UNKNOWN),
        (answer("", b"wrapper: 90.vm failed\n", 35), UNKNOWN),
        (answer(record(), b"qstat: Unknown Job Id 90.vm\n", 153), UNKNOWN),
        (answer(record("91.vm")), UNKNOWN),
        (answer(record() + record("91.vm")), UNKNOWN),
        (answer(record(job_state="M")), UNKNOWN),
        (answer(record(job_state=None)), UNKNOWN),
        (answer(record()[:-1]), UNKNOWN),
        (answer(record(), b"qstat: something\n"), UNKNOWN),
        (answer(""), UNKNOWN),
        (answer("", DOWN, 255), UNKNOWN),
        (answer("", b"qstat: Unknown queue destination 90vm\n", 170), UNKNOWN),
        (answer("", code=127), UNKNOWN),
        (answer("", code=None, timed_out=True), UNKNOWN),
        (answer("", FINISHED, None, timed_out=True), UNKNOWN),
    ],
)
def test_whether_it_is_gone(result: Result, word: str) -> None:
    """Gone only by PBS's own words about this very job, or by its state."""
    assert pbs_job.parse_state(result, "90.vm").word == word


@given(st.binary(max_size=200), st.binary(max_size=60), st.sampled_from([0, 1, 35, 153, 255]))
@example(b"Job Id: 90.vm\n\n", b"", 0)
def test_any_answer_about_it(out: bytes, err: bytes, code: int) -> None:
    """Nonsense never makes a job gone."""
    assert pbs_job.parse_state(answer(out, err, code), "90.vm").word == UNKNOWN
    assert pbs_job.parse_cancel(answer(out, err, code or 1), "90.vm").word == UNKNOWN


@pytest.mark.parametrize(
    ("code", "err", "word"),
    [
        (0, b"", THERE),
        (168, b"qdel: Request invalid for state of job 90.vm\n", THERE),
        (153, b"qdel: Unknown Job Id 90.vm\n", GONE),
        (35, b"qdel: Job has finished 90.vm\n", GONE),
        (159, b"qdel: Unauthorized Request  90.vm\n", pbs_job.REFUSED),
        (162, b"Connection refused\nCouldn't connect to cluster: vm\n", UNKNOWN),
        (None, b"", UNKNOWN),
    ],
)
def test_what_qdel_says(code: int | None, err: bytes, word: str) -> None:
    """It ends, it is gone, it is not ours, or that could not be told."""
    assert pbs_job.parse_cancel(answer("", err, code), "90.vm").word == word


def test_the_commands_for_one_job() -> None:
    """The id alone."""
    assert pbs_job.state_argv("29[1].vm") == ["qstat", "-f", "-w", "29[1].vm"]
    assert pbs_job.cancel_argv("90.vm") == ["qdel", "90.vm"]


V1 = "9:name=systemd:/\n5:devices:/pbs_jobs.service/jobid/90.vm\n4:memory:/pbs_jobs.service/jobid/90.vm\n0::/\n"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (V1, "90.vm"),
        ("0::/pbs_jobs.service/jobid/90.vm\n", "90.vm"),
        ("0::/pbs_jobs.service/jobid/29[1].vm/inner\n", "29[1].vm"),
        ("0::/site.service/jobid/90.pbs.example\n", "90.pbs.example"),
        ("4:memory:/pbspro.slice/pbspro-29\\x5b1\\x5d.vm.slice\n", "29[1].vm"),
        ("4:memory:/pbspro.slice/pbspro-9\\xzz.vm.slice\n", None),
        ("4:memory:/process_api/55fd87e785fb\n0::/\n", None),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
        # A folder that a person has made below one of theirs.
        ("0::/user.slice/user-1000.slice/user@1000.service/x.service/jobid/90.vm\n", None),
        ("0::/system.slice/slurmstepd.scope/job_90/step_0\n", None),
        ("0::/pbs_jobs.service/jobid\n", None),
        ("0::/pbs_jobs.service/other/90.vm\n", None),
        ("0::/pbs_jobs.service/jobid/-x\n", None),
        ("", None),
    ],
)
def test_control_groups(text: str, job: str | None) -> None:
    """The job whose control group the hook has made, in v1, v2 and the older form with its escapes."""
    assert pbs_node.job_in_cgroup(text) == job


@given(st.text(max_size=200) | st.from_regex(r"[0-9]:[a-z]*:/[a-z]+\.s(ervice|lice)/(jobid/)?.{0,20}"))
def test_any_control_group(text: str) -> None:
    """Any text is a job's id or none."""
    job = pbs_node.job_in_cgroup(text)
    assert job is None or job[0].isdigit()


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({"PBS_JOBID": "90.vm", "PBS_ENVIRONMENT": "PBS_BATCH"}, "90.vm"),
        ({"PBS_JOBID": "29[1].vm", "PBS_ENVIRONMENT": "PBS_INTERACTIVE"}, "29[1].vm"),
        ({"PBS_JOBID": "90.vm"}, None),
        ({"PBS_JOBID": "-x", "PBS_ENVIRONMENT": "PBS_BATCH"}, None),
        ({"PBS_ENVIRONMENT": "PBS_BATCH"}, None),
        ({}, None),
    ],
)
def test_environments(env: dict[str, str], job: str | None) -> None:
    """Both of MOM's variables: one of them alone was typed by hand."""
    assert pbs_node.job_in_environment(env) == job


def test_a_configuration() -> None:
    """Its last word counts, comments do not, a number above 0 is yes."""
    text = (
        "# PBS_START_MOM=0\n  PBS_EXEC=/opt/pbs/\nPBS_SERVER=a\nPBS_SERVER=vm \nPBS_START_MOM=1\nPBS_START_SERVER=0\n"
    )
    assert pbs_node.parse_config(text) == pbs_node.Config("vm", True, False, "/opt/pbs/bin")
    assert pbs_node.parse_config("") == pbs_node.Config("", False, False, "")
    assert pbs_node.parse_config("PBS_EXEC=relative").commands == ""
    assert pbs_node.config_path({}) == "/etc/pbs.conf"
    assert pbs_node.config_path({"PBS_CONF_FILE": "/x"}) == "/x"


@given(st.text(max_size=200), st.text(max_size=20))
def test_any_configuration(text: str, value: str) -> None:
    """Any text is a configuration, if need be of nothing; commands are looked for in an absolute folder alone."""
    found = pbs_node.parse_config(f"{text}\nPBS_START_MOM={value}\nPBS_EXEC={value}\n")
    assert found.commands == "" or found.commands.startswith("/")
