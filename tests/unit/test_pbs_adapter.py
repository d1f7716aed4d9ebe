"""PBS as the survey asks for it: where a shell is by its evidence, whose a process is, which commands are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handwash import world
from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs_adapter
from handwash.schedulers.pbs_adapter import Pbs

GROUPS = b"0::/pbs_jobs.service/jobid/90.vm\n"
INSIDE = {"PBS_JOBID": "91.vm", "PBS_ENVIRONMENT": "PBS_BATCH"}


def seen(**changes: Any) -> dict[str, Any]:
    """What `evidence` gives on a node that runs jobs, in no job."""
    plain = {
        "host": "n1", "env_job": None, "cgroup_job": None, "ancestors": ["bash", "sshd"], "config": "/etc/pbs.conf",
        "mom": True, "server": False, "gpus": "",
    }  # fmt: skip
    return {**plain, **changes}


@pytest.mark.parametrize(
    ("evidence", "living", "kind", "job"),
    [
        ({}, frozenset(), "compute", None),
        ({"mom": False}, frozenset(), "login", None),
        ({"mom": False, "config": None}, frozenset(), "", None),
        ({"env_job": "91.vm"}, frozenset({"91.vm"}), "compute", "91.vm"),
        # Nobody knows whether it is over.
        ({"env_job": "91.vm"}, None, "compute", "91.vm"),
        ({"env_job": "91.vm"}, frozenset(), "compute", None),
        ({"env_job": "91.vm", "mom": False}, frozenset(), "login", None),
        # MOM itself is above this shell, or its control group around it: that is newer than any list.
        ({"env_job": "91.vm", "ancestors": ["bash", "pbs_mom"]}, frozenset(), "compute", "91.vm"),
        ({"env_job": "91.vm", "cgroup_job": "90.vm"}, frozenset({"91.vm"}), "compute", "90.vm"),
        ({"ancestors": ["bash", "pbs_mom"]}, frozenset(), "compute", None),
    ],
)
def test_where_a_shell_is(evidence: dict[str, Any], living: frozenset[str] | None, kind: str, job: str | None) -> None:
    """By control group, by MOM, by its variables unless they are stale, by pbs.conf; always with the reason."""
    place = Pbs().place(seen(**evidence), living)
    assert (place.kind, place.job) == (kind, job)
    assert place.why or not kind


@pytest.mark.parametrize(
    ("groups", "variables", "expected"),
    [
        (GROUPS, INSIDE, ("90.vm", None, "cgroup")),
        (b"0::/\n", INSIDE, ("91.vm", None, "environment")),
        (None, INSIDE, ("91.vm", None, "environment")),
        (b"\xff\xfe", {}, (None, None, None)),
        (None, {"PBS_JOBID": "91.vm"}, (None, None, None)),
    ],
)
def test_whose_a_process_is(groups: bytes | None, variables: dict[str, str], expected: tuple[Any, ...]) -> None:
    """The control group counts before the environment, which anybody can write."""
    assert Pbs().membership(groups, variables) == expected


def test_lines_to_type() -> None:
    """Brackets are quoted: zsh and csh end with an error where a pattern matches no file."""
    assert Pbs().cancel_line("90.vm") == "qdel 90.vm" and Pbs().cancel_line("29[1].vm") == "qdel '29[1].vm'"
    assert Pbs().queue_line("29[].vm") == "qstat -f '29[].vm'"


def test_where_its_commands_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the PATH, else in the folder that pbs.conf names; a pbs.conf that is none, or a folder, is none."""
    config = tmp_path / "pbs.conf"
    monkeypatch.setattr(world, "env", {"PATH": "", "PBS_CONF_FILE": str(config)})
    assert pbs_adapter.settings() is None and pbs_adapter.command("qstat") is None
    with pytest.raises(CouldNotTell, match="module load pbs"):
        Pbs().ask()
    for place in (tmp_path / "bin", tmp_path / "path"):
        place.mkdir()
        (place / "qstat").write_text("#!/bin/sh\n")
        (place / "qstat").chmod(0o755)
    config.write_bytes(b"\xff\xfe\nPBS_EXEC=" + str(tmp_path).encode())
    assert pbs_adapter.command("qstat") == str(tmp_path / "bin" / "qstat")
    monkeypatch.setitem(world.env, "PATH", str(tmp_path / "path"))
    assert pbs_adapter.command("qstat") == str(tmp_path / "path" / "qstat")
    monkeypatch.setitem(world.env, "PBS_CONF_FILE", str(tmp_path))
    assert pbs_adapter.settings() is None


@pytest.mark.parametrize(
    "ask", [lambda pbs: pbs.ask(), lambda pbs: pbs.records(0.0, 1.0), lambda pbs: pbs.shown(1.0, 1.0)]
)
def test_a_user_without_a_name(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory does not answer: qstat would be asked for the jobs of a number, of which there are none."""
    monkeypatch.setattr(pbs_adapter, "_check_command", lambda: None)
    monkeypatch.setattr(pbs_adapter, "run_command", lambda *_words: Result(0, b"", b"", False))
    monkeypatch.setattr(world, "user_name", str)
    with pytest.raises(CouldNotTell, match="has none here"):
        ask(Pbs())
