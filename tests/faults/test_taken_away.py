"""handwash is upgraded, removed or at fault while a session runs: neither the command nor its exit code pays for it, and what
it leaves is ended all the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed import processes
from tests.testbed.processes import identity, running, wait_until

from handwash.teardown import tree as descent

ROOT = Path(__file__).resolve().parents[2]
# Seconds that no other run of these tests sleeps.
LEFT, MAIN, BYSTANDER = (f"109.{os.getpid()}{number}" for number in range(6, 9))


def sleepers(seconds: str) -> list[int]:
    return [pid for pid in processes.pids() if seconds in processes.arguments(pid)[1:2] and identity(pid)]


def copy(place: Path, *changes: tuple[str, str, str]) -> Path:
    """A tree of handwash with changes: in a file, from, to."""
    tree = place / "tree"
    for name in ("src/handwash", "wrappers"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, after in changes:
        path = tree / "src/handwash" / name
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))
    return tree


def start(tree: Path, home: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [tree / "wrappers/safe-srun", "--local", "bash", "-c", script], cwd="/", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home), "HANDWASH_GRACE": "0.5"},
    )  # fmt: skip


def first_line(session: subprocess.Popen[str]) -> str:
    assert session.stdout is not None
    return session.stdout.readline()


def of(home: Path) -> list[int]:
    """Who carries this session's home in its environment."""
    return [pid for pid in processes.pids() if processes.environment(pid).get("HOME") == str(home) and identity(pid)]


@pytest.fixture(autouse=True)
def bystander() -> Iterator[None]:
    """Somebody else's process lives on."""
    process = subprocess.Popen(["sleep", BYSTANDER])
    who = identity(process.pid)
    yield
    assert who is not None and running(who)
    process.kill()
    process.wait()
    assert not processes.end_all(lambda: sleepers(LEFT) + sleepers(MAIN))


@pytest.mark.parametrize(
    "watched",
    ["number, code, _sender = kernel.next_signal()", "number, code, sender = kernel.next_signal()"],
    ids=["outer", "inner"],
)
def test_a_supervisor_at_fault_waits_for_the_command(tmp_path: Path, watched: str) -> None:
    tree = copy(tmp_path, ("node/supervisor.py", watched, "raise RuntimeError('broken on purpose')"))
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT}; echo up; read -r; exit 7")
    assert first_line(session) == "up\n"
    _out, errors = session.communicate("\n", timeout=20)
    assert session.returncode == 7
    assert errors == "handwash: 1 process ended\n"
    assert sleepers(LEFT) == []


def test_without_a_second_supervisor_the_command_runs_to_its_end(tmp_path: Path) -> None:
    """As when no more processes can be made: its guardian takes leave, and ends nothing."""
    tree = copy(tmp_path, ("node/supervisor.py", "inner = posix.fork()", "raise OSError('broken on purpose')"))
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT} >/dev/null 2>&1; echo up; read -r; exit 7")
    assert first_line(session) == "up\n"

    # Without a guardian, that is.
    assert wait_until(lambda: of(tmp_path) == [session.pid], 10)
    assert session.poll() is None and len(sleepers(LEFT)) == 1
    _out, errors = session.communicate("\n", timeout=20)
    assert session.returncode == 7
    assert errors == "handwash: OSError: broken on purpose; running without supervision\n"


@pytest.mark.parametrize("stopped", [False, True])
def test_supervisors_that_die_while_they_make_another_guardian(tmp_path: Path, stopped: bool) -> None:
    """It hears from nobody, and ends what is left, unless an inner supervisor still lives, be it stopped."""
    victims = "posix.getpid()" if stopped else "0"
    tree = copy(
        tmp_path,
        ("node/chain.py", "has_started = True\n            else", f"again and posix.kill({victims}, 9)\n            else"),
    )  # fmt: skip
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT}; echo up; exec sleep {MAIN}")
    assert first_line(session) == "up\n"
    (inner,) = descent.children(session.pid) or []
    assert wait_until(lambda: len(sleepers(MAIN)) == 1, 10)
    chain = {session.pid, inner, *sleepers(MAIN)}
    assert wait_until(lambda: len(set(of(tmp_path)) - chain) == 1, 10)
    (guardian,) = set(of(tmp_path)) - chain
    if stopped:
        os.kill(inner, signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    assert session.wait(20) == -signal.SIGKILL
    assert wait_until(lambda: not set(of(tmp_path)) - chain, 20)
    if stopped:
        assert len(sleepers(LEFT)) == len(sleepers(MAIN)) == 1
        os.kill(inner, signal.SIGCONT)
    assert wait_until(lambda: sleepers(LEFT) == sleepers(MAIN) == [], 10)
    session.communicate(timeout=10)


def test_a_guardian_whose_name_outlives_its_connections(tmp_path: Path) -> None:
    """A supervisor that comes to the dying one again and again does not take it for alive: the inner one dies meanwhile, what
    it has left falls to init, and a guardian is needed that searches."""
    dying = f"""events = self.poller.poll(10)
            if self.tasks and not self.starter and posix.access({str(tmp_path / "die")!r}, 0):
                for task in self.tasks.values():
                    task.connection.close()
                for _ in range(500):
                    if posix.access({str(tmp_path / "go")!r}, 0):
                        break
                    time.sleep(0.02)
                # It can still be reached, twice.
                for _ in range(2):
                    if select.select([self.listener.fileno()], [], [], 5)[0]:
                        posix.close(self.listener._accept()[0])
                posix._exit(0)"""
    # Whoever has come to it sees the connection's end before anything else happens.
    comes = f"""return None
        if again:
            open({str(tmp_path / "came")!r}, "w").close()
            poller = select.poll()
            poller.register(connection.fileno(), select.POLLIN)
            poller.poll(10000 if not posix.access({str(tmp_path / "go")!r}, 0) else 500)"""
    tree = copy(
        tmp_path,
        ("node/guardian.py", "events = self.poller.poll(max(0.0, self.next_look - time.monotonic()) * 1000)", dying),
        ("node/chain.py", "connection.close()\n            return None", f"connection.close()\n            {comes}"),
    )
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT}; echo up; exec sleep {MAIN}")
    assert first_line(session) == "up\n"
    (inner,) = descent.children(session.pid) or []
    assert wait_until(lambda: len(sleepers(MAIN)) == 1, 10)
    (tmp_path / "die").touch()
    assert wait_until((tmp_path / "came").exists, 10)
    os.kill(inner, signal.SIGKILL)
    orphans = [*sleepers(LEFT), *sleepers(MAIN)]
    assert wait_until(lambda: not {inner, session.pid} & {processes.stat(pid).parent for pid in orphans}, 10)
    (tmp_path / "go").touch()
    assert session.wait(20) == -signal.SIGKILL
    assert wait_until(lambda: sleepers(LEFT) == sleepers(MAIN) == [], 10)
    assert wait_until(lambda: not of(tmp_path), 10)
    session.communicate(timeout=10)


def test_guardians_that_die_at_once_are_given_up(tmp_path: Path) -> None:
    """Neither are they made anew without end, nor does the command hear of it."""
    made = tmp_path / "made"
    tree = copy(
        tmp_path,
        ("node/guardian.py", "        if self.starter:\n            self.part.supersede()",
         f"        if self.starter:\n            open({str(made)!r}, 'a').write('x')\n            raise RuntimeError"),
    )  # fmt: skip
    session = start(tree, tmp_path, "trap 'echo heard' PIPE IO CHLD; echo up; read -r; exit 7")
    assert first_line(session) == "up\n"
    assert wait_until(lambda: len(of(tmp_path)) == 4, 10)
    (guardian,) = set(of(tmp_path)) - set(descent.below([session.pid])) - {session.pid}
    os.kill(guardian, signal.SIGKILL)
    assert wait_until(lambda: made.exists() and len(of(tmp_path)) == 3, 10)
    for _ in range(100):
        assert session.poll() is None
        wait_until(lambda: len(of(tmp_path)) > 3, 0.02)
    out, errors = session.communicate("\n", timeout=20)
    assert (session.returncode, out, errors) == (7, "", "handwash: nothing was left running\n")
    assert 2 <= len(made.read_text()) <= 20


def test_a_guardian_without_the_shared_folder(tmp_path: Path) -> None:
    """As on a node whose home is another one: it is made anew, once, and the end is as complete as ever."""
    tree = copy(tmp_path)
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT}; echo up; exec sleep {MAIN}")
    assert first_line(session) == "up\n"
    (inner,) = descent.children(session.pid) or []
    assert wait_until(lambda: len(sleepers(MAIN)) == len(sleepers(LEFT)) == 1, 10)

    def guardians() -> set[int]:
        return set(of(tmp_path)) - {session.pid, inner, *sleepers(MAIN)}

    assert wait_until(lambda: len(guardians()) == 1, 10)
    shutil.rmtree(tmp_path / "handwash")
    for _ in range(2):
        (old,) = guardians()
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda old=old: len(guardians() - {old}) == 1, 10)
        new = guardians()
        assert not wait_until(lambda new=new: guardians() != new, 0.3)
    os.kill(sleepers(MAIN)[0], signal.SIGTERM)
    _out, _errors = session.communicate(timeout=20)
    assert session.returncode == -signal.SIGTERM
    assert sleepers(LEFT) == []


def test_no_process_for_the_command(tmp_path: Path) -> None:
    """It takes the inner supervisor's place, as it would have been without one, and what it leaves is ended."""
    tree = copy(tmp_path, ("node/supervisor.py", "main = posix.fork()", "raise OSError('broken on purpose')"))
    asks = (
        "import ctypes; number = ctypes.c_int(); "
        "print([ctypes.CDLL(None).prctl(which, ctypes.byref(number)) or number.value for which in (37, 2)])"
    )
    # prctl(2): PR_GET_CHILD_SUBREAPER and PR_GET_PDEATHSIG.
    session = start(tree, tmp_path, f'env -i setsid -f sleep {LEFT}; exec /usr/bin/python3 -I -S -c "{asks}"')
    out, errors = session.communicate(timeout=20)
    assert (session.returncode, out) == (0, "[0, 0]\n")
    assert errors == "handwash: 1 process ended\n"
    assert sleepers(LEFT) == []


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("killed", ["nobody", "inner"])
def test_all_is_ended_without_a_file_of_ours(tmp_path: Path, killed: str, loads: bool) -> None:
    """`loads`: what ends the rest can be loaded, by both supervisors; else that is left to the guardian."""
    tree = copy(tmp_path)
    loaded = tmp_path / "loaded"
    with (tree / "src/handwash/node/sweep.py").open("a") as file:
        file.write(f"\nwith open({str(loaded)!r}, 'a') as file:\n    file.write('x')\n")
        if not loads:
            file.write("raise RuntimeError('broken on purpose')\n")
    session = start(tree, tmp_path, f"env -i setsid -f sleep {LEFT}; exec sleep {MAIN}")
    assert wait_until(lambda: loaded.exists() and loaded.read_text() == "xx", 20)
    shutil.rmtree(tree)
    assert wait_until(lambda: len(sleepers(MAIN)) == 1, 10)
    (main,) = sleepers(MAIN)
    if killed == "inner":
        os.kill(descent.ancestors(main)[0], signal.SIGKILL)
    else:
        os.kill(main, signal.SIGTERM)
    _out, errors = session.communicate(timeout=20)
    assert session.returncode == (-signal.SIGKILL if killed == "inner" else -signal.SIGTERM)
    assert sleepers(LEFT) == sleepers(MAIN) == []
    assert "Traceback" not in errors
