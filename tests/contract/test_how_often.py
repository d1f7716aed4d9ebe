"""How often the scheduler is asked: administrators count it, and have banned tools that poll."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest
from tests.contract.test_front_door import World
from tests.contract.test_front_door import world as world

COMMANDS = ("squeue", "scontrol", "sinfo", "sacct", "scancel", "srun", "sacctmgr")
ANSWERS = {"scontrol": "echo Configuration data as of $(/bin/date +%FT%T); echo ProctrackType = proctrack/linuxproc"}


@pytest.fixture
def counted(world: World) -> World:
    """Every command of Slurm's writes down that it was asked."""
    for name in COMMANDS:
        world.script(name, f"echo {name} >>{world.folder}/asked\n{ANSWERS.get(name, '')}\n")
    return world


def asked(world: World, *words: str, **env: str) -> Counter[str]:
    """How often each was asked while this command ran."""
    log = world.folder / "asked"
    log.write_text("")
    world.run(*words, env=env)
    return Counter(log.read_text().split())


@pytest.mark.parametrize(
    "words",
    [
        ["banner"], ["leave", "exit"], ["leave", "logout"], ["leave", "eof"], ["leave", "hup"], ["check"], ["status"],
        ["where"], ["clean", "--dry-run"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_one_request_for_one_look(counted: World, words: list[str]) -> None:
    """And once a day one more, for the site's settings."""
    assert asked(counted, *words) == {"squeue": 1, "scontrol": 1}
    assert asked(counted, *words) == {"squeue": 1}


def test_none_where_nobody_looks(counted: World) -> None:
    """Switched off; the second attempt in a row; what is said without a look."""
    for words, env in (
        (["leave", "exit"], {"HANDWASH_ON_EXIT": "off"}),
        (["leave", "exit", "--again"], {}),
        (["banner"], {"HANDWASH_BANNER": "line"}),
        (["banner"], {"HANDWASH_BANNER": "off"}),
        (["leave", "hup"], {"HANDWASH_DISABLE": "1"}),
        (["init", "bash"], {}),
        (["sessions"], {}),
    ):
        assert asked(counted, *words, **env) == {}, (words, env)


def test_clean_looks_at_the_queue_once(counted: World) -> None:
    """However long the ending takes: what has appeared since is looked for among the processes alone."""
    asked(counted, "check")
    deaf = "trap '' TERM; echo; while :; do /bin/sleep 60; done"
    with subprocess.Popen(["/bin/sh", "-c", deaf], stdout=subprocess.PIPE, start_new_session=True) as victim:
        try:
            assert victim.stdout and victim.stdout.readline()
            assert asked(counted, "clean", "--yes", str(victim.pid), HANDWASH_GRACE="0.5") == {"squeue": 1}
            assert victim.wait(10) == -9
        finally:
            victim.kill()


def test_the_doctor(counted: World) -> None:
    """Three requests: the queue, the partitions, the controller's clock; of one that does not answer nothing more is asked."""
    asked(counted, "check")
    assert asked(counted, "doctor") == {"squeue": 1, "sinfo": 1, "scontrol": 1}
    counted.script("squeue", f"echo squeue >>{counted.folder}/asked; exit 1")
    assert asked(counted, "doctor") == {"squeue": 1}


def test_cost_and_usage(counted: World) -> None:
    """What a command line costs is asked of the partitions, once, and only where it goes to one; the record is asked once."""
    asked(counted, "check")
    assert asked(counted, "cost", "--", "python3", "train.py") == {}
    assert asked(counted, "cost", "--", "srun", "--gres=gpu:1", "-t", "10", "true") == {"sinfo": 1}
    assert asked(counted, "usage") == {"squeue": 1, "sacct": 1}
