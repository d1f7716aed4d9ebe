"""The ways in which a session may end."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import Callable, NamedTuple

from tests.faults.session import PLAIN, SAFE, Session
from tests.testbed import processes
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.processes import wait_until

BOTH = (PLAIN, SAFE)
# Longer than the controller takes from the end of a job's time to noticing it (it looks every 30 s, Slurm 22.05).
TIME_LIMIT = 60.0


class Way(NamedTuple):
    """One way. `act` does the deed to a session that is up; `animals` are what is in it instead of the whole zoo. `beyond` says
    why nobody can hold the promise there, with the proctracks of `beyond_with`: only a false word is a fault then."""

    act: Callable[[Session], None]
    tools: Sequence[str] = BOTH
    options: Sequence[str] = ()
    terminal: bool = False
    full_disk: bool = False
    animals: Sequence[str] = ()
    patience: float = 0.0
    beyond: str = ""
    beyond_with: Sequence[str] = PROCTRACKS


def ordered(text: str) -> Callable[[Session], None]:
    return lambda session: session.order(text)


def signalled(number: int) -> Callable[[Session], None]:
    return lambda session: session.signal(number)


def killed(*names: str, then: str = "") -> Callable[[Session], None]:
    """KILL to these; `then` is the order with which the command ends that goes on without them."""

    def act(session: Session) -> None:
        before = session.members()
        session.kill(*names)
        if then:
            # Gone, and replaced where somebody does that: the command has to go on all the same.
            dead = {pid for name in names for pid in before[name]}
            assert wait_until(lambda: not any(map(processes.identity, dead)), 10)
            if "guardian" in names:
                assert wait_until(lambda: set(session.members()["guardian"]) - dead, 10), "no other guardian"
            assert "command" in session.counted(), "the command did not survive a watcher"
            session.order(then)

    return act


def after_its_guardian(number: int) -> Callable[[Session], None]:
    """The guardian is killed, another one takes its place, and then safe-srun gets the signal."""

    def act(session: Session) -> None:
        before = session.members()["guardian"]
        session.kill("guardian")
        assert wait_until(lambda: set(session.members()["guardian"]) - set(before), 10), "no other guardian"
        session.signal(number)

    return act


def killed_once_known(session: Session) -> None:
    """Both supervisors; a guardian that dies with them before it has seen that something is elsewhere cannot tell it."""
    assert wait_until(session.knows_outsiders, 10)
    session.kill("outer", "inner")


def interrupted_twice(session: Session) -> None:
    """Within a second of each other: then srun ends the step."""
    session.type(b"\x03")
    heard: list[str] = []

    def asked() -> bool:
        heard.append(session.said())
        return "one more within" in "".join(heard)

    assert wait_until(asked, 10), heard
    session.type(b"\x03")


# A task on each node, each with a zoo of its own; of two lists of nodes the later one counts.
TWO_NODES = ["-w", "n1,n2"]
ON_TWO_NODES = ["background", "nohup", "setsid", "double-fork-cleared", "ignores-term"]


def on_both_nodes(act: Callable[[Session], None]) -> Callable[[Session], None]:
    """The deed, once every one of them is there on both nodes."""

    def then(session: Session) -> None:
        assert wait_until(lambda: not Counter(2 * [*session.names, "command"]) - session.counted(), 20), (
            session.counted()
        )
        nodes = {processes.environment(who.pid).get("SLURMD_NODENAME") for who, name in session.found()}
        assert nodes >= {"n1", "n2"}
        act(session)

    return then


def closed(session: Session) -> None:
    session.begin()
    session.hang_up()


def cancelled(session: Session) -> None:
    session.begin()
    session.cluster.run(["scancel", session.job], user="alice", check=True)


def step_cancelled(session: Session) -> None:
    session.begin()
    session.cluster.run(["scancel", f"{session.job}.0"], user="alice", check=True)


def out_of_time(session: Session) -> None:
    """The controller counts minutes and looks every 30 s: the end is set to now."""
    session.cluster.run(["scontrol", "update", f"JobId={session.job}", "EndTime=now"], check=True)
    command = [who for who, name in session.found() if name == "command"]
    assert wait_until(lambda: not all(map(processes.running, command)), TIME_LIMIT)
    session.begin()


def node_restarted(session: Session) -> None:
    session.cluster.restart_slurmd("n1")
    session.order("exit 0")


def controller_away(session: Session) -> None:
    session.cluster.stop_controller()
    session.order("exit 0")
    # The whole teardown on the node is to happen without it; plain srun has none.
    awaited = {"command"} if session.tool == PLAIN else set(session.counted())
    assert wait_until(lambda: not awaited & set(session.counted()), 20), session.counted()
    # Long enough for srun to miss the controller, whether it waits for it or leaves the asking to safe-srun.
    wait_until(lambda: not session.members()["srun"], 2)
    session.cluster.start_controller()


MOVED = ["moved", "setsid"]
UNKILLABLE = {
    "frozen": "no signal reaches a frozen process (cgroup v1), as with one in uninterruptible sleep",
    "other-user": "a process that has become another user's may not be signalled",
}


def unkillable(name: str, act: Callable[[Session], None]) -> Way:
    """With an escapee that the person may not or cannot end: it is left, and has to be named."""
    return Way(act, [SAFE], animals=[name, "setsid"], patience=25.0, beyond=UNKILLABLE[name])


WAYS: dict[str, Way] = {
    "normal end": Way(ordered("exit 0")),
    "exit code": Way(ordered("exit 7")),
    "death by signal": Way(ordered(f"kill {signal.SIGKILL.value}")),
    "Ctrl-C, --pty": Way(lambda session: session.type(b"\x03"), options=["--pty"], terminal=True),
    "Ctrl-C, -X": Way(lambda session: session.type(b"\x03"), options=["-X"], terminal=True),
    "Ctrl-C twice": Way(interrupted_twice, terminal=True),
    "Ctrl-C twice, -N2": Way(on_both_nodes(interrupted_twice), options=TWO_NODES, terminal=True, animals=ON_TWO_NODES),
    "TERM": Way(signalled(signal.SIGTERM)),
    "HUP": Way(signalled(signal.SIGHUP)),
    "QUIT": Way(signalled(signal.SIGQUIT)),
    "closed terminal": Way(closed, terminal=True),
    "closed, --pty": Way(closed, options=["--pty"], terminal=True),
    "KILL srun": Way(killed("srun")),
    "KILL safe-srun": Way(killed(SAFE), [SAFE]),
    "KILL safe-srun, -N2": Way(on_both_nodes(killed(SAFE)), [SAFE], options=TWO_NODES, animals=ON_TWO_NODES),
    "KILL safe-srun+srun": Way(killed(SAFE, "srun"), [SAFE]),
    "KILL outer": Way(killed("outer"), [SAFE]),
    "KILL inner": Way(killed("inner"), [SAFE]),
    "KILL outer+inner": Way(killed("outer", "inner"), [SAFE]),
    "KILL guardian": Way(killed("guardian", then="exit 0"), [SAFE]),
    "KILL inner+guardian": Way(killed("inner", "guardian"), [SAFE]),
    "KILL outer+guardian": Way(killed("outer", "guardian"), [SAFE]),
    "guardian, then TERM": Way(after_its_guardian(signal.SIGTERM), [SAFE]),
    "guardian, then KILL": Way(after_its_guardian(signal.SIGKILL), [SAFE]),
    "KILL keeper": Way(killed("keeper", then="exit 0"), [SAFE]),
    "KILL twin": Way(killed("twin", then="exit 0"), [SAFE]),
    "KILL safe-srun+both": Way(killed(SAFE, "outer", "inner"), [SAFE]),
    "KILL both+guardian": Way(
        killed("outer", "inner", "guardian"),
        [SAFE],
        patience=15.0,
        beyond="all that watch on the node are dead",
        beyond_with=("linuxproc", "pgid"),
    ),
    "KILL slurmstepd": Way(killed("slurmstepd")),
    "KILL stepd+both": Way(killed("slurmstepd", "outer", "inner"), [SAFE]),
    "scancel job": Way(cancelled),
    "scancel step": Way(step_cancelled),
    "time limit": Way(out_of_time),
    "slurmd restarted": Way(node_restarted),
    "slurmctld away": Way(controller_away),
    "disk full": Way(ordered("exit 0"), [SAFE], full_disk=True),
    "moved": Way(ordered("exit 0"), animals=MOVED),
    "moved, KILL inner": Way(killed("inner"), [SAFE], animals=MOVED),
    "moved, KILL both": Way(
        killed_once_known,
        [SAFE],
        animals=MOVED,
        beyond="the guardian ends with the step's cgroup, and Slurm looks nowhere else",
        beyond_with=["cgroup"],
    ),
    "frozen": unkillable("frozen", ordered("exit 0")),
    "frozen, KILL both": unkillable("frozen", killed("outer", "inner")),
    "other user": unkillable("other-user", ordered("exit 0")),
    "other user, KILL both": unkillable("other-user", killed("outer", "inner")),
}
