"""The keeper: the process on the submit host that outlives safe-srun.

It is in a session of its own and holds one end of a socket. While safe-srun lives it listens to the prolog's report (job
and step), writes them down and finds out the GPUs, so that nobody has to wait for that at the end. When the socket ends
without a goodbye, safe-srun is dead: it then ends srun, ends the step (or the job, if it is srun's own), confirms that and
closes the record.
"""

from __future__ import annotations

import os
import select

from handwash import world
from handwash.frozen import frozen
from handwash.node import wire
from handwash.node.apart import live_apart
from handwash.schedulers.slurm_step import GONE, Answer, Target
from handwash.srun import confirm, history, record
from handwash.srun.pipe import Pipe, prune
from handwash.teardown import end, identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as _socket

    from handwash.srun.idle_told import Teller
else:
    import _socket

REPLY_LIMIT = 2.0
# How long a guardian may still work after its step is gone, beyond the grace it gives; and how long one may keep silent
# whose step never was, whose home is another, or whose file takes its time over NFS.
SLACK = 5.0
SILENCE = 1.0
# Seconds between two looks at what the nodes have written of GPUs that do nothing.
LONGEST_PAUSE = 60.0


@frozen
class Report:
    """What the prolog said, and what was found out since."""

    jobs: tuple[str, ...]
    step: str
    nodes: int
    at: float
    gpus: int | None = None


def parse_report(words: list[str]) -> Report | None:
    """One line of the prolog; None where it is not whole."""
    if len(words) != 3 or not words[0] or not all(job.isdigit() for job in words[0].split(",")):
        return None
    nodes = int(words[2]) if words[2].isdigit() else 0
    return Report(tuple(words[0].split(",")), words[1], nodes, world.now())


@frozen
class Plan:
    """What both safe-srun and its keeper know before srun starts. `given_jobs`: allocations that are not srun's own.

    However they were named (an array's task has two names): with one given, srun never makes an allocation.
    """

    session: str
    grace: float
    given_jobs: tuple[str, ...]
    cluster: str
    supervised: bool
    # What an own job of this srun is called (empty: not known), in which session (getsid(2)) it is made, and since when.
    name: str = ""
    sid: int = 0
    started: float = 0.0
    # The terminal on which GPUs that do nothing are told of (empty: nowhere), and after how many seconds.
    terminal: str = ""
    idle_s: float = 0.0

    def target(self, report: Report) -> Target:
        return Target(report.jobs, report.step, not self.given_jobs, self.cluster)


class Keeper:
    """The keeper's side."""

    def __init__(self, connection: _socket.socket, pipe: Pipe, plan: Plan, main: record.Main) -> None:
        self.connection = connection
        self.pipe = pipe
        self.plan = plan
        self.main = main
        self.report: Report | None = None
        self.srun: tuple[int, int] | None = None
        self.buffer = b""

    def run(self) -> None:
        """Until safe-srun says goodbye, or is dead."""
        me = os.getpid()
        self.main.helpers.append((me, identity.start_of(me) or 0))
        self.main.write()
        history.prune()
        prune(self.pipe.folder)
        poller = select.poll()
        poller.register(self.connection.fileno(), select.POLLIN)
        if self.pipe.fd >= 0:
            poller.register(self.pipe.fd, select.POLLIN)
        teller: Teller | None = None
        while True:
            watches = bool(self.plan.terminal) and self.report is not None and self.report.gpus != 0
            events = poller.poll(min(max(self.plan.idle_s / 2, 1.0), LONGEST_PAUSE) * 1000 if watches else None)
            # Only then: while safe-srun lives it holds its terminal open, and nobody else's can have that name.
            if not events and self.report is not None:
                teller = teller or self.teller()
                teller.turn(self.plan.target(self.report), self.report.gpus)
            for fd, _event in events:
                if fd == self.pipe.fd:
                    self.take_report()
                elif not self.listen():
                    return

    def teller(self) -> Teller:
        """Loaded where GPUs may come to be told of."""
        from handwash.srun.idle_told import Teller

        return Teller(self.plan.session, self.main.where, self.plan.terminal, owner=self.main.helpers[0][0])

    def take_report(self) -> None:
        """Job and step, once srun has them; a report later than the first one (a nested srun) is not ours."""
        for words in self.pipe.read():
            report = parse_report(words)
            if report is None or self.report is not None:
                continue
            self.report = report
            # At once: should the controller be slow to tell the GPUs, safe-srun knows its job all the same.
            self.pass_on()
            self.main.set(job="+".join(report.jobs), step=report.step)
            self.main.write()
            count = confirm.gpus(self.plan.target(report))
            self.report = Report(report.jobs, report.step, report.nodes, report.at, count)
            self.pass_on()

    def listen(self) -> bool:
        """What safe-srun says. False at the end, after taking over if that was no goodbye."""
        try:
            data = self.connection.recv(4096)
        except OSError:
            data = b""
        self.buffer += data
        *whole, self.buffer = self.buffer.split(b"\n")
        for line in whole:
            word, *fields = wire.split(line.decode())
            if word == "srun":
                self.srun = (int(fields[0]), int(fields[1]))
            elif word == "ended":
                self.take_report()
                self.tell("end")
            elif word == "bye":
                return False
        if not data:
            self.take_over()
        return bool(data)

    def tell(self, *fields: object) -> None:
        try:
            self.connection.send(wire.join(fields).encode() + b"\n")
        except OSError:
            pass

    def pass_on(self) -> None:
        """What is known of job and step, on one line; safe-srun reads it at the end."""
        if self.report is not None:
            count = "" if self.report.gpus is None else self.report.gpus
            self.tell("report", ",".join(self.report.jobs), self.report.step, self.report.nodes, self.report.at, count)

    def take_over(self) -> None:
        """safe-srun is dead: what it would have done, without a word on the terminal."""
        if self.srun is not None:
            # TERM makes srun end its step by force, or give a pending allocation back.
            end.end([self.srun], 2.0, os.getuid())
        self.take_report()
        words = record.parts_of(self.plan.session, self.main.where)
        # The prolog reports before anything is launched; without its pipe, or with a node's word, that proves nothing.
        launched_nothing = bool(self.pipe.path) and not words
        self.pipe.remove()
        if self.report is None:
            done = give_back(self.plan, self.main) if launched_nothing else None
            self.main.finish("clean" if done is not None and done.answer.word == GONE else "unconfirmed", words)
            return
        target = self.plan.target(self.report)
        done = confirm.confirm(target, urgent=True)
        words, silent = wait_for_words(self.plan, self.report, self.main.where, done.answer.word == GONE)
        self.main.finish(outcome(self.plan, done, words, silent), words)


def give_back(plan: Plan, main: record.Main) -> confirm.Confirmation | None:
    """Ends and confirms the job of an srun that died before it had started anything; None where it could not be told which.

    Sets the job in the record. Where there is no such job that is confirmed.
    """
    from handwash.srun import unreported

    jobs = unreported.find(plan)
    if not jobs:
        return None if jobs is None else confirm.Confirmation(Answer(GONE))
    main.set(job=jobs[0])
    return confirm.confirm(Target(jobs, "0", True, plan.cluster), urgent=True)


def outcome(plan: Plan, done: confirm.Confirmation, words: list[record.PartWord], silent: int) -> str:
    """The record's word. Clean only where the queue has confirmed it and every node has reported."""
    if any(word.left for word in words):
        return "leftover"
    seen_all = all(word.complete or word.cgroup for word in words)
    if done.answer.word != GONE or silent or not plan.supervised or not seen_all:
        return "unconfirmed"
    return "clean"


def wait_for_words(plan: Plan, report: Report, where: str, gone: bool) -> tuple[list[record.PartWord], int]:
    """The guardians' words, waited for (bounded), and how many nodes have not given their last one."""
    import time

    begun = world.monotonic()
    pause = 0.005
    while True:
        words = record.parts_of(plan.session, where) if plan.supervised else []
        # A guardian inside the step's cgroup dies with it; once Slurm says that the step is gone, so is all that was in it.
        working = [word for word in words if not word.finished and not (word.cgroup and gone)]
        heard = {word.node for word in words} - {word.node for word in working}
        silent = max(report.nodes, len({word.node for word in words}), 1) - len(heard)
        if not plan.supervised or silent <= 0:
            return words, max(silent, 0) if plan.supervised else 0
        if world.monotonic() - begun > (plan.grace + identity.AFTER_KILL + SLACK if working else SILENCE):
            return words, silent
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


class Link:
    """safe-srun's side: starts the keeper and talks to it. A keeper that cannot be had is done without."""

    def __init__(self, pipe: Pipe, plan: Plan, main: record.Main) -> None:
        self.pipe = pipe
        self.connection: _socket.socket | None = None
        self.found: Report | None = None
        self.buffer = b""
        try:
            # The C half has no pair of objects to offer, only socketpair() of raw sockets.
            mine, other = _socket.socketpair()
            child = os.fork()
        except OSError:
            main.write()
            return
        if child == 0:
            try:
                mine.close()
                os.setsid()
                if os.fork() == 0:
                    live_apart(other.fileno(), pipe.fd)
                    Keeper(other, pipe, plan, main).run()
            finally:
                os._exit(0)
        other.close()
        os.waitpid(child, 0)
        self.connection = mine

    def tell(self, *fields: object) -> None:
        if self.connection is not None:
            try:
                self.connection.send(wire.join(fields).encode() + b"\n")
            except OSError:
                pass

    def report(self) -> Report | None:
        """What the prolog reported: from the keeper, or from the pipe itself where the keeper does not answer."""
        # The first word has come long ago, so nobody waits here unless no step was launched.
        self.hear(0.0)
        if self.found is None:
            self.tell("ended")
            self.hear(REPLY_LIMIT)
        for words in self.pipe.read():
            self.found = self.found or parse_report(words)
        return self.found

    def gpus(self) -> int | None:
        """How many GPUs the job holds, if the keeper knows by now (bounded)."""
        if self.found is not None and self.found.gpus is None:
            self.tell("ended")
            self.hear(REPLY_LIMIT)
        return self.found.gpus if self.found is not None else None

    def hear(self, seconds: float) -> None:
        """Takes in what the keeper has said, up to its `end` if it is waited for."""
        if self.connection is None:
            return
        poller = select.poll()
        poller.register(self.connection.fileno(), select.POLLIN)
        deadline = world.monotonic() + seconds
        ended = False
        try:
            while not ended and poller.poll(max(deadline - world.monotonic(), 0) * 1000):
                chunk = self.connection.recv(4096)
                if not chunk:
                    return
                self.buffer += chunk
                *whole, self.buffer = self.buffer.split(b"\n")
                for line in whole:
                    word, *fields = wire.split(line.decode())
                    ended |= word == "end"
                    if word == "report":
                        count = int(fields[4]) if fields[4] else None
                        jobs = tuple(fields[0].split(","))
                        self.found = Report(jobs, fields[1], int(fields[2]), float(fields[3]), count)
        except OSError:
            pass
