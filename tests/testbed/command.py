"""The command line of the test cluster: start, stop, status, env, shell, run."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from tests.testbed.cluster import Cluster, ClusterError
from tests.testbed.configuration import PROCTRACKS
from tests.testbed.machine import Unavailable

PROGRAM = "python3 tests/testbed/cluster.py"


def parser() -> argparse.ArgumentParser:
    """The words that main understands."""
    top = argparse.ArgumentParser(prog="cluster.py", description="A throw-away two-node Slurm with two ordinary users.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    how = argparse.ArgumentParser(add_help=False)
    how.add_argument("--dir", help="folder to make (default: a new one under /tmp)")
    how.add_argument("--proctrack", choices=PROCTRACKS, default="linuxproc")
    how.add_argument("--port", type=int, metavar="BASE", help="first of the ports, three or four (default: free ones)")
    how.add_argument("--accounting", action="store_true", help="with slurmdbd and a database, so that sacct answers")
    how.add_argument("--install", metavar="SOURCE", help="install handwash from this checkout for the users")
    who = argparse.ArgumentParser(add_help=False)
    who.add_argument("--user", default="root", help="alice, bob or root (default)")

    commands.add_parser("start", parents=[how], help="start a cluster; it stays until stop")
    for name, text in (
        ("stop", "end and remove everything of a cluster"),
        ("status", "show nodes, queue and the users' processes"),
    ):
        commands.add_parser(name, help=text).add_argument("dir", metavar="DIR")
    for name, text in (
        ("env", "print the environment as lines for a shell"),
        ("shell", "a login shell as the user"),
    ):
        commands.add_parser(name, parents=[who], help=text).add_argument("dir", metavar="DIR")
    run = commands.add_parser("run", parents=[how, who], help="start a cluster, run a command on it, stop it")
    run.add_argument("argv", nargs="+", metavar="COMMAND")
    return top


def start(options: argparse.Namespace, *, detached: bool) -> Cluster:
    """A started cluster, with handwash on it where that was asked for."""
    cluster = Cluster(
        options.proctrack,
        directory=options.dir,
        port=options.port,
        detached=detached,
        accounting=options.accounting,
    ).start()
    if options.install:
        try:
            cluster.install_handwash(options.install)
        except BaseException:
            cluster.stop()
            raise
    return cluster


def person(cluster: Cluster, user: str) -> tuple[str | None, dict[str, str]]:
    """The user for the cluster's methods, and the environment of a person: with the caller's terminal and wishes."""
    name = None if user == "root" else user
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in ("TERM", "COLORTERM", "NO_COLOR", "LANG", "COLUMNS", "LINES") or key.startswith(("LC_", "HANDWASH_"))
    }
    return name, kept


def run(cluster: Cluster, user: str, argv: Sequence[str]) -> int:
    """Runs a command on the caller's terminal; its exit code."""
    name, kept = person(cluster, user)
    place = None if name else os.getcwd()
    options = {"cwd": place} if place else {}
    try:
        child = cluster.popen(argv, user=name, env=kept, start_new_session=False, **options)
    except OSError as error:
        print(f"cluster.py: {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127
    # Ctrl-C is for the command; what it does with it is its own affair.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def shell(cluster: Cluster, user: str) -> NoReturn:
    """Becomes a login shell of the user."""
    name, kept = person(cluster, user)
    whole = {**cluster.env(name), **kept}
    if name:
        entry = cluster.account(name)
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        os.chdir(entry.pw_dir)
    os.execve("/bin/bash", ["-bash"], whole)


def status(cluster: Cluster) -> int:
    """Prints what there is; 1 where the controller does not answer."""
    print(f"{cluster.directory}: proctrack/{cluster.proctrack}, users {', '.join(cluster.users)}")
    answer = cluster.run(["sinfo", "-N", "-l"])
    print(answer.stdout + answer.stderr, end="")
    if answer.returncode:
        return 1
    for line in cluster.leftovers():
        print(line)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command."""
    options = parser().parse_args(words)
    try:
        if options.command == "run":
            with start(options, detached=False) as cluster:
                return run(cluster, options.user, options.argv)
        if options.command == "start":
            cluster = start(options, detached=True)
            where = shlex.quote(str(cluster.directory))
            print(
                f"{cluster.directory}\n  enter: {PROGRAM} shell {where} --user alice\n  stop:  {PROGRAM} stop {where}"
            )
            return 0
        cluster = Cluster.attach(options.dir)
        if options.command == "stop":
            cluster.stop()
        elif options.command == "status":
            return status(cluster)
        elif options.command == "env":
            for key, value in cluster.env(None if options.user == "root" else options.user).items():
                print(f"export {key}={shlex.quote(value)}")
        else:
            shell(cluster, options.user)
    except (ClusterError, Unavailable, ValueError, subprocess.SubprocessError) as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
