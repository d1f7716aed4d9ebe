"""The one place that starts other programs and looks: each with a deadline, none of them able to hold the person up.

`subprocess`, `signal` and `select.poll` wrappers are left alone on purpose: their import costs two bare interpreter starts.
"""

from __future__ import annotations

import errno
import marshal
import os
import select

from handwash import slurm_names, world
from handwash.frozen import frozen
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from handwash.model import Unknown


SIGKILL = 9
# For each stream of a program. A look's answer holds both, and is not capped: it comes from our own code.
OUTPUT_CAP = 8 * 1024 * 1024
# Signals that Python ignores and a program must find at their default: SIGPIPE, SIGXFSZ (signal(7), Linux numbers).
_RESET_SIGNALS = (13, 25)
# How long before the deadline a program that a look has started is given up, so that its name reaches the person.
_LOOK_LAST_WORD_S = 0.1
# Variables that change what Slurm's commands print or which rows they leave out (squeue(1), "ENVIRONMENT VARIABLES").
_SCRUBBED_PREFIXES = ("SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_", "PYTHON")
_SCRUBBED = ("SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_JSON", "SLURM_YAML", "SLURM_BITSTR_LEN")

# Set in the child that takes a look: what it starts, looks of its own too, stays in its process group, so that one kill ends
# all of it, and may not run on after the look's own end (a time of `world.monotonic`), should handwash be killed meanwhile.
_inside_look = False
_look_ends_at: float | None = None


class CouldNotTell(Exception):
    """A look that has no answer. Its text is a whole sentence for the person."""


@frozen
class Result:
    """How a program ended. `code`: its exit code, minus the signal's number, None where it was ended at the deadline."""

    code: int | None
    out: bytes
    err: bytes
    timed_out: bool
    capped: bool = False


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a program whose output is parsed: no filters, no formats, no translated words."""
    env = {
        name: value
        for name, value in world.env.items()
        if not name.startswith(_SCRUBBED_PREFIXES) and name not in _SCRUBBED
    }
    env["LC_ALL"] = "C"
    # What the hook took away from Python's own start belongs to everybody else: Slurm may have its libraries there.
    put_aside = env.pop("HANDWASH_LD_LIBRARY_PATH", None)
    if put_aside:
        env["LD_LIBRARY_PATH"] = put_aside
    if extra:
        env.update(extra)
    return env


def find(program: str) -> str | None:
    """The path of a program on PATH, or None. One of Slurm's is found under the name that it has here."""
    return slurm_names.find(program)


def run(argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None, cap: int = OUTPUT_CAP) -> Result:
    """Runs a program to its end or its deadline (seconds), with no input. Raises FileNotFoundError, PermissionError.

    `cap`: bytes of output, on either stream, at which it is ended.
    """
    path = argv[0] if "/" in argv[0] else find(argv[0])
    if path is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    if "/" not in argv[0]:
        # It calls itself by this name where it complains.
        argv = [os.path.basename(path), *argv[1:]]
    if _look_ends_at is not None:
        timeout = min(timeout, _look_ends_at - world.monotonic())
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out_write, 1),
        (os.POSIX_SPAWN_DUP2, err_write, 2),
    ]
    options: dict[str, Any] = {} if _inside_look else {"setpgroup": 0}
    try:
        pid = os.posix_spawn(
            path,
            list(argv),
            dict(clean_environment() if env is None else env),
            file_actions=actions,
            setsigdef=_RESET_SIGNALS,
            **options,
        )
    except BaseException:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(out_write)
        os.close(err_write)
    try:
        outputs, timed_out, capped = _read_all([out_read, err_read], world.monotonic() + timeout, cap)
    except BaseException:
        _end(pid, own_group=not _inside_look)
        raise
    if timed_out or capped:
        _end(pid, own_group=not _inside_look)
        return Result(None, outputs[0], outputs[1], timed_out, capped)
    status = _wait(pid, world.monotonic() + max(0.2, timeout))
    if status is None:
        _end(pid, own_group=not _inside_look)
        return Result(None, outputs[0], outputs[1], True)
    return Result(os.waitstatus_to_exitcode(status), outputs[0], outputs[1], False)


def left() -> float | None:
    """Seconds that a look still has, to answer with what it knows; None outside one."""
    return None if _look_ends_at is None else max(0.0, _look_ends_at - world.monotonic())


def looks(
    questions: Mapping[str, Callable[[], Any]], deadline: float, notice: tuple[float, Callable[[], None]] | None = None
) -> dict[str, Any]:
    """Asks all questions side by side, each in a process of its own; an answer is plain data or `Unknown`.

    A look can hang for ever in the kernel (NVML on a wedged driver, /proc/PID/cmdline of a process in D state, a dead home
    server). So it is left alone at the deadline (seconds), killed without being waited for. Answers travel by marshal.
    `notice`: seconds, and what is called where they pass without all answers.
    """
    from handwash.model import Unknown

    ends_at = world.monotonic() + deadline
    if _look_ends_at is not None:
        ends_at = min(ends_at, _look_ends_at)
    answers: dict[str, Any] = {}
    started: dict[str, tuple[int, int]] = {}
    try:
        for name, question in questions.items():
            try:
                inherited = [read_end for _pid, read_end in started.values()]
                started[name] = _fork_look(question, inherited, ends_at - min(_LOOK_LAST_WORD_S, deadline / 10))
            except OSError as error:
                answers[name] = Unknown(_("No process could be started to look: {error}.").format(error=error.strerror))
        names = list(started)
        handles = [started[name][1] for name in names]
        chunks, timed_out, _capped = _read_all(handles, ends_at, notice=notice)
        for name, data in zip(names, chunks):
            answers[name] = _answer(data, deadline, timed_out)
    finally:
        for pid, _read_end in started.values():
            _end(pid, own_group=not _inside_look)
    return answers


def silent(deadline: float) -> Unknown:
    """What a look is that has not answered by its deadline (seconds)."""
    from handwash.model import Unknown

    return Unknown(_("No answer within {seconds} s.").format(seconds=f"{deadline:g}"), "timed-out")


def _answer(data: bytes, deadline: float, timed_out: bool) -> Any:
    from handwash.model import Unknown

    try:
        kind, value = marshal.loads(data)
    except (ValueError, EOFError, TypeError):
        if timed_out:
            return silent(deadline)
        return Unknown(_("The look ended without an answer (it crashed)."), "crashed")
    return Unknown(value) if kind == "unknown" else value


def _fork_look(question: Callable[[], Any], inherited: list[int], ends_at: float) -> tuple[int, int]:
    global _inside_look, _look_ends_at
    read_end, write_end = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        raise
    if pid:
        os.close(write_end)
        try:
            if not _inside_look:
                os.setpgid(pid, pid)
        except OSError:
            pass  # the child was quicker, or is gone already
        return pid, read_end
    try:
        if not _inside_look:
            os.setpgid(0, 0)
        _inside_look = True
        _look_ends_at = ends_at
        # Its own end too: with handwash gone, a write must fail, and not wait for a reader that is itself.
        for handle in (*inherited, read_end):
            os.close(handle)
        # Nothing that a look hangs on may hold the terminal or a pipe of the person's.
        null = os.open("/dev/null", os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(null, handle)
        try:
            answer = ("known", question())
        except CouldNotTell as reason:
            answer = ("unknown", str(reason))
        except Exception as error:
            answer = ("unknown", _("The look failed: {error}.").format(error=f"{type(error).__name__}: {error}"))
        view = memoryview(marshal.dumps(answer))
        while view:
            view = view[os.write(write_end, view) :]
        # A thread that hangs in the kernel would keep it open beyond the end of this process.
        os.close(write_end)
    finally:
        os._exit(0)


def _read_all(
    handles: list[int],
    ends_at: float,
    cap: float = float("inf"),
    notice: tuple[float, Callable[[], None]] | None = None,
) -> tuple[list[bytes], bool, bool]:
    """Reads every handle to its end, closes it; says whether the deadline came first, or the cap, which ends it all."""
    parts: dict[int, list[bytes]] = {handle: [] for handle in handles}
    waiting = dict.fromkeys(handles, 0)
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    timed_out = capped = False
    notice_at = world.monotonic() + notice[0] if notice else ends_at
    try:
        while waiting and not capped:
            now = world.monotonic()
            if notice and now >= notice_at:
                notice[1]()
                notice, notice_at = None, ends_at
            left = min(ends_at, notice_at) - now
            if ends_at <= now:
                timed_out = True
                break
            for handle, _event in poll.poll(max(0.0, left) * 1000):
                chunk = os.read(handle, 65536)
                if not chunk:
                    poll.unregister(handle)
                    del waiting[handle]
                    continue
                parts[handle].append(chunk)
                waiting[handle] += len(chunk)
                if waiting[handle] > cap:
                    capped = True
    finally:
        for handle in handles:
            os.close(handle)
    return [b"".join(parts[handle]) for handle in handles], timed_out, capped


def _end(pid: int, own_group: bool) -> None:
    """Kills a child of ours and reaps it if it goes at once; one in D state is left behind."""
    try:
        if own_group:
            os.killpg(pid, SIGKILL)
        else:
            os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    _wait(pid, world.monotonic() + 0.05)


def _wait(pid: int, ends_at: float) -> int | None:
    """The wait status of a child, or None where it has not ended by then."""
    pause = 0.0002
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if done:
            return status
        if world.monotonic() >= ends_at:
            return None
        world.pause(pause)
        pause = min(pause * 2, 0.01)
