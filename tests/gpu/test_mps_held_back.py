"""A client of the multi-process service beside another person's is held back, whichever way it comes to be ended."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pexpect
import pytest
from tests.gpu.test_front_door_gpus import ALICE, BOB, DEVICES, PROGRAMS, Node, own_proc
from tests.gpu.test_front_door_gpus import node as node
from tests.testbed.driver.fake import GIB

from handwash.node import wire
from handwash.teardown import identity

SESSION = "20260101-000000-0a0b0c0d0e0f"
QUESTION = r"\[s\] stay \(default\): "


def client_beside(node: Node) -> tuple[subprocess.Popen[str], int]:
    """Alice's client, of a session on record, and bob's: (hers, his pid)."""
    code = (PROGRAMS / "hold_gpu.py").read_text()
    words = ["/usr/bin/env", f"HANDWASH_SESSION={SESSION}", str(node.python), "-I", "-S", "-c", code, *DEVICES]
    hers = node.start(words, ALICE)
    assert hers.stdout and hers.stdout.readline()
    his = node.hold(uid=BOB)
    node.driver.process(0, hers.pid, GIB, kind="mps").process(0, his, GIB, kind="mps")
    return hers, his


def record(node: Node) -> Path:
    """The file of a session that was never closed, in a state folder of alice's."""
    folder = node.folder / "state" / "handwash" / "sessions"
    folder.mkdir(parents=True)
    path = folder / f"{SESSION}.session"
    said = {"id": SESSION, "command": "train.py", "host": os.uname().nodename, "boot": identity.boot_id()}
    path.write_bytes(wire.pack([*said.items(), ("started", "1700000000.000"), ("helper", 1, 1)]))
    for made in (path, *list(path.parents)[:3]):
        os.chown(made, ALICE, ALICE)
    return path


def test_of_a_session(node: Node) -> None:
    """--yes does not end it; its record stays open for the next login; the last client goes, and with it the record."""
    path = record(node)
    hers, his = client_beside(node)
    words = ("clean", "--session", SESSION, "--yes")
    done = node.run(*words)
    assert done.returncode == 1 and "MPS" in done.stdout and str(his) in done.stdout, done
    assert f"handwash clean {hers.pid}" in done.stdout and "Nothing of session" not in done.stdout
    done = node.run(*words, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["held_back"]) == (1, [{"pid": hers.pid, "why": "mps"}]) and answer["ended"] == []
    assert hers.poll() is None and path.exists()
    done = node.run("clean", "--session", SESSION, "--dry-run")
    assert done.returncode == 1 and "MPS" in done.stdout, done
    node.driver.forget(his)
    done = node.run(*words)
    assert done.returncode == 0 and hers.wait(10) == -15 and not path.exists(), done


def test_with_others_of_the_same_session(node: Node) -> None:
    """What shares nothing is ended, the client is not: 1, and the record stays open."""
    path = record(node)
    hers, _his = client_beside(node)
    plain = node.start(["/usr/bin/env", f"HANDWASH_SESSION={SESSION}", "/usr/bin/sleep", "100"], ALICE)
    done = node.run("clean", "--session", SESSION, "--yes", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ended"]) == (1, [plain.pid]), done
    assert hers.poll() is None and path.exists()


def test_when_leaving_cleans_unasked(node: Node) -> None:
    hers, his = client_beside(node)
    done = node.run("leave", "exit", HANDWASH_ON_EXIT="clean")
    assert done.returncode == 0 and hers.poll() is None, done
    assert "MPS" in done.stderr and str(his) in done.stderr and f"handwash clean {hers.pid}" in done.stderr
    # With nobody there to read it neither.
    assert node.run("leave", "hup", HANDWASH_ON_EXIT="clean").returncode == 0 and hers.poll() is None


@pytest.mark.parametrize("lone", [False, True])
def test_when_leaving_and_asked_to_clean_up(node: Node, lone: bool) -> None:
    """[c] at the question ends what is left over; the client stays as long as another shares its GPU."""
    hers, his = client_beside(node)
    if lone:
        node.driver.forget(his)
    set_person = ["/usr/bin/setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"]
    argv = [*own_proc(0), *set_person, "/usr/bin/env", f"PATH={node.folder}", str(node.command), "leave", "exit"]
    env = {"HANDWASH_LANG": "en", "HANDWASH_DEADLINE": "20", "TERM": "dumb", **node.driver.env()}
    terminal = pexpect.spawn(argv[0], argv[1:], env=env, cwd="/", encoding="utf-8", timeout=30, dimensions=(24, 200))
    try:
        terminal.expect(QUESTION)
        terminal.sendline("c")
        terminal.expect(pexpect.EOF)
        said = str(terminal.before)
    finally:
        terminal.close()
    assert terminal.exitstatus == 0
    if lone:
        assert hers.wait(10) == -15, said
    else:
        assert hers.poll() is None and "MPS" in said and f"handwash clean {hers.pid}" in said
