"""Where no person sits, for every login shell: the same bytes come out with the hook in every start-up file and without.

The accounts live in a mount namespace of the test's own: an sshd there finds one for each shell in its /etc/passwd.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, Person, Tree, until
from tests.testbed.sshd import Sshd

EVERY = pytest.mark.parametrize("user", list(KINDS), indirect=True)
# Start-up files that these shells read without a terminal, or at login: the hook stands in all of them here.
MORE_FILES = {
    "bash": (".bash_profile",),
    "zsh": (".zshenv", ".zprofile", ".zlogin"),
    "fish": (".config/fish/conf.d/handwash.fish",),
    "tcsh": (".login",),
    **dict.fromkeys(("ksh", "mksh", "dash", "ash"), (".profile",)),
}


# bash reads .bashrc for `ssh host command` too.
MORE_COMMANDS = {
    "bash": (
        ["trap -p; declare -F; shopt login_shell; echo $-; false; exit"],
        ["-t", "echo on; trap -p; false; exit"],
        ["-tt", "bash -ic 'echo on; exit 6' </dev/null"],
        ["bash -lic 'env | grep -v ^SSH_ | grep -v ^_= | grep -i wash; exit 3'"],
    )
}


class Machine:
    """An sshd of our own on 127.0.0.1, and an account for each shell, seen by nobody else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tree = Tree(folder / "tree")
        self.people = {}
        for kind in KINDS.values():
            if kind.present:
                self.people[kind.name] = Person(folder / kind.name, tree, kind)
        # A login shell is one word: busybox is `ash` by that name.
        (folder / "bin").mkdir()
        (folder / "bin" / "ash").symlink_to(KINDS["ash"].program[0])
        # The whole folder: a mount on the file alone goes when another process of the machine replaces that file.
        subprocess.run(["cp", "-a", "/etc", str(folder / "etc")], check=True)
        for name, row in (("passwd", "hw-{0}:x:0:0::{1}/{0}:{2}\n"), ("shadow", "hw-{0}:*:19000:0:99999:7:::\n")):
            with open(folder / "etc" / name, "a") as file:
                file.writelines(row.format(shell, folder, self.login_shell(shell)) for shell in self.people)
        self.masters: dict[str, subprocess.Popen[bytes]] = {}
        inside = f'mount --bind {folder}/etc /etc && exec "$@"'
        self.sshd = Sshd(folder, ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh"])

    def login_shell(self, shell: str) -> str:
        return f"{self.folder}/bin/ash" if shell == "ash" else KINDS[shell].program[0]

    def connection(self, shell: str) -> list[str]:
        """The options of a connection that is there already: a new one costs a third of a second."""
        path = self.folder / f"master-{shell}"
        if shell not in self.masters:
            argv = self.sshd.ssh("-MNS", str(path), f"hw-{shell}@127.0.0.1")
            self.masters[shell] = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
            until(path.exists, "ssh does not connect")
        return ["-o", f"ControlPath={path}"]

    def within(self, *argv: str) -> list[str]:
        """A program that knows the accounts."""
        return ["nsenter", "-t", str(self.sshd.process.pid), "-m", *argv]

    def stop(self) -> None:
        for somebody in self.people.values():
            somebody.leaves()
        for process in self.masters.values():
            process.terminate()
            process.wait()
        self.sshd.stop()
        shutil.rmtree(self.folder / "etc")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [t for t in ("sshd", "ssh", "ssh-keygen", "unshare", "nsenter") if shutil.which(t, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("needs root and mount namespaces, for accounts that nobody else sees")
    one = Machine(tmp_path_factory.mktemp("machine"))
    try:
        yield one
    finally:
        one.stop()


def gone(pid: int) -> bool:
    """Whether a process has ended; that its parent has not looked yet does not matter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def with_numbers_hidden(text: str) -> str:
    """Process numbers differ: those of a shell's process group, and in ksh's `_`."""
    return re.sub(r"(?<![\w.])\d{3,7}(?![\w.])", "N", text)


class User:
    """An account of the machine: a person, and how to reach them."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.person = machine.people[name]
        self.kind = self.person.kind
        self.name = f"hw-{name}"
        self.login_shell = machine.login_shell(name)
        self.host = f"{self.name}@127.0.0.1"

    @property
    def options(self) -> list[str]:
        return [*self.machine.sshd.options, *self.machine.connection(self.kind.name)]

    def ssh(self, *words: str) -> list[str]:
        return ["ssh", *self.options, "-p", str(self.machine.sshd.port), *words]

    def startup(self, hook: str | None) -> None:
        line = self.person.tree.line(kind=self.kind) if hook is None else hook
        for name in MORE_FILES[self.kind.name]:
            path = self.person.home / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(line)
        if MORE_FILES[self.kind.name] == (".profile",):
            (self.person.home / ".profile").write_text(f"ENV=$HOME/.shrc; export ENV\n{line}")
        self.person.startup(hook=hook)

    def piped(self, argv: list[str], given: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
        """Runs a program without a terminal."""
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            env={**self.person.env, **env},
            cwd=self.person.home,
            start_new_session=True,
            timeout=60,
        )
        out, err = (
            with_numbers_hidden(text.decode("latin-1")).encode("latin-1") for text in (done.stdout, done.stderr)
        )
        return done.returncode, out, err

    def on_terminal(self, argv: list[str], **env: str) -> tuple[int, str]:
        """Runs a program to its end on a terminal; its status and what was shown."""
        terminal = self.person.opens(argv, expect_prompt=False, **env)
        return terminal.ends(), with_numbers_hidden(terminal.rest)

    def same(self, run: Callable[[], object]) -> object:
        """Runs without the hook, with it, and compares; handwash must not have been called either."""
        outcomes = []
        for hook in ("", None):
            self.startup(hook)
            outcomes.append(run())
        assert outcomes[0] == outcomes[1]
        assert self.person.tree.calls() == []
        return outcomes[1]

    def same_both(self, argv: list[str], given: bytes = b"", **env: str) -> None:
        """Compares without a terminal and on one."""
        self.same(lambda: self.piped(argv, given, **env))
        self.same(lambda: self.on_terminal(argv, **env))


@pytest.fixture
def user(machine: Machine, request: pytest.FixtureRequest) -> Iterator[User]:
    if request.param not in machine.people:
        pytest.skip(f"{request.param} is not installed")
    one = User(machine, request.param)
    (one.person.tree.package / "calls").unlink(missing_ok=True)
    one.person.tree.behave()
    yield one
    one.person.leaves()
    one.person.terminals.clear()


@EVERY
def test_ssh_host_command(user: User) -> None:
    for words in (
        ["printf 'a\\0b\\377'; exit 7"],
        ["env | grep -v ^SSH_ | grep -v ^_= | sort"],
        ["false; exit"],
        ["cat; exit 2"],
        ["-tt", "cat </dev/null; exit 6"],
        [f"{' '.join(user.kind.program)} -c 'exit 3'"],
        *MORE_COMMANDS.get(user.kind.name, ()),
    ):
        argv = user.ssh(*words[:-1], user.host, words[-1])
        user.same(lambda argv=argv: user.piped(argv, b"given\n"))  # type: ignore[misc]
    user.same(lambda: user.on_terminal(user.ssh("-t", user.host, "echo on; env | grep -v ^SSH_ | sort; false; exit")))
    # No command and no terminal: a login shell that reads its orders from a pipe.
    user.same(lambda: user.piped(user.ssh(user.host), b"echo on; false; exit 4\n"))
    if user.kind.name == "bash":
        # Else the comparison would prove nothing.
        user.startup("echo read\n")
        assert user.piped(user.ssh(user.host, "echo on"))[1] == b"read\non\n"


@EVERY
def test_scp_sftp_and_rsync(user: User) -> None:
    data = bytes(range(256)) * 400
    home = user.person.home
    (home / "data").write_bytes(data)
    port = ["-P", str(user.machine.sshd.port)]

    def copied(argv: list[str], given: bytes = b"") -> tuple[int, bytes, bytes]:
        (home / "up").unlink(missing_ok=True)
        code, out, err = user.piped(argv, given)
        assert (home / "up").exists(), (argv, err)
        assert (home / "up").read_bytes() == data
        return code, out, err

    there = f"{user.host}:{home}"
    scp = ["scp", *user.options, *port]
    batch = f"put {home}/data {home}/up\nget {home}/data {home}/down\n".encode()
    shell = " ".join(user.ssh())
    for argv, given in (
        ([*scp, f"{home}/data", f"{there}/up"], b""),
        ([*scp, f"{there}/data", f"{home}/up"], b""),
        ([*scp, "-O", f"{home}/data", f"{there}/up"], b""),
        ([*scp, "-O", f"{there}/data", f"{home}/up"], b""),
        (["sftp", *user.options, *port, "-b", "-", user.host], batch),
        (["rsync", "-e", shell, f"{home}/data", f"{there}/up"], b""),
    ):
        if shutil.which(argv[0]) is None:
            continue
        code, _out, err = user.same(lambda argv=argv, given=given: copied(argv, given))  # type: ignore[misc]
        assert (code, err) == (0, b"")
    assert (home / "down").read_bytes() == data


@EVERY
def test_a_person_through_ssh(user: User) -> None:
    """The proof that the hook was there all the time: the same account, by a person, is greeted and asked, and a lost
    connection is told."""
    user.startup(None)
    terminal = user.person.opens(user.ssh("-tt", user.host), TERM="xterm")
    assert terminal.greeting.count("handwash: ") == 1
    terminal.child.sendline("exit 5")
    assert terminal.ends() == 5
    assert user.person.tree.said() == ["leave exit"]
    user.person.opens(user.ssh("-tt", user.host), TERM="xterm").close()
    until(lambda: user.person.tree.said()[-1] == "leave hup", "the lost connection was not told")
    assert user.person.tree.said() == ["leave exit", "leave hup"]


@EVERY
@pytest.mark.parametrize("env", [{"VSCODE_RESOLVING_ENVIRONMENT": "1", "ELECTRON_RUN_AS_NODE": "1"}, {}])
def test_an_editor_resolves_the_environment(user: User, env: dict[str, str]) -> None:
    options = ["-ic"] if user.kind.name == "tcsh" else ["-i", "-l", "-c"]
    before = time.monotonic()
    user.same_both([*user.kind.program, *options, "echo mark; env | sort; echo mark"], **env)
    assert time.monotonic() - before < 4 * 10
    if env:
        # Older releases type into an interactive shell instead.
        user.startup(None)
        terminal = user.person.shell(**env)
        assert "handwash: " not in terminal.greeting
        terminal.child.sendline("exit")
        terminal.ends()
        assert user.person.tree.calls() == []


@EVERY
def test_words_scripts_and_pipes(user: User) -> None:
    program = list(user.kind.program)
    (user.person.home / "script").write_text("echo on\nfalse\nexit\n")
    for argv, given in (
        ([*program, "-c", "echo on; false; exit"], b""),
        ([*program, "-c", "env | sort"], b""),
        ([*program, "./script"], b""),
        (program, b"echo on; false; exit\n"),
        ([*program, "-i"], b"echo on; false; exit\n"),
    ):
        user.same(lambda argv=argv, given=given: user.piped(argv, given))  # type: ignore[misc]
        if not given:
            user.same(lambda argv=argv: user.on_terminal(argv))  # type: ignore[misc]
    # cron: hardly any environment, no terminal.
    user.same(lambda: user.piped(["env", "-i", f"HOME={user.person.home}", *program, "-c", "env | sort"]))


@EVERY
def test_a_terminal_that_is_not_quite_one(user: User) -> None:
    user.startup(None)
    terminal = user.person.shell(TERM="dumb")
    assert "handwash: " not in terminal.greeting
    terminal.child.sendline("exit")
    terminal.ends()
    if user.kind.name == "zsh":
        return  # told to be interactive, it reads its orders from the terminal, whatever its input is
    program = " ".join(user.kind.argv())
    user.same(lambda: user.on_terminal(["/bin/sh", "-c", f"echo 'exit 3' | {program} 2>/dev/null"]))
    user.same(lambda: user.on_terminal(["/bin/sh", "-c", f"echo 'exit 3' | {program} 2>&1 | cat"]))


@EVERY
def test_script_c(user: User) -> None:
    if shutil.which("script") is None:
        pytest.skip("script is not installed")
    user.same_both(["script", "-qec", "env -u COLUMNS -u LINES | sort; exit 5", "/dev/null"], SHELL=user.login_shell)


@EVERY
def test_su_and_sudo(user: User) -> None:
    for program, argv in (
        ("su", ["su", user.name, "-c", "echo on; exit 4"]),
        ("su", ["su", "-", user.name, "-c", "env | sort; exit 4"]),
        ("sudo", ["sudo", "-n", "-i", "-u", user.name, "sh", "-c", "env | sort"]),
        ("sudo", ["sudo", "-n", "-i", "-u", user.name, user.login_shell, "-c", "exit 4"]),
    ):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
        user.same_both(user.machine.within(*argv))


@EVERY
def test_tmux_panes_windows_and_the_end_of_the_server(user: User) -> None:
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("tmux is not installed")
    # As in a session whose login has shown the banner. A pane is a person's shell: it may ask, but it adds nothing.
    env = {**user.person.env, "HANDWASH_SHOWN": f"{socket.gethostname()}::1", "TMUX_TMPDIR": str(user.person.home)}
    (user.person.home / ".tmux.conf").write_text(f"set -g default-shell {user.login_shell}\nset -g status off\n")

    def order(*words: str) -> str:
        done = subprocess.run(
            [tmux, "-u", "-f", str(user.person.home / ".tmux.conf"), *words],
            env=env, cwd=user.person.home, capture_output=True, text=True, timeout=30, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shown() -> str:
        return order("capture-pane", "-p", "-t", "s").rstrip()

    def scene() -> list[str]:
        order("new-session", "-d", "-s", "s", "-x", "100", "-y", "20")
        seen = []
        try:
            for more in ((), ("split-window", "-t", "s"), ("new-window", "-t", "s")):
                if more:
                    order(*more)
                until(lambda: shown().endswith("[0]>"), "no prompt in the pane")
                order("send-keys", "-t", "s", "echo on", "Enter")
                until(lambda: re.search(r"^on$", shown(), re.M) and shown().endswith("[0]>"), "no answer in the pane")
                seen.append(shown())
            pids = [int(pid) for pid in order("list-panes", "-s", "-t", "s", "-F", "#{pane_pid}").split()]
        finally:
            order("kill-server")
        until(lambda: all(map(gone, pids)), "a pane outlived its server")
        return seen

    outcomes = []
    for hook in ("", None):
        user.startup(hook)
        outcomes.append(scene())
    assert outcomes[0] == outcomes[1]
    assert set(user.person.tree.said()) <= {"leave hup"}


@EVERY
def test_screen(user: User) -> None:
    screen = shutil.which("screen")
    if screen is None:
        pytest.skip("screen is not installed")
    folder = user.person.home / "screens"
    folder.mkdir(mode=0o700, exist_ok=True)
    env = {"SCREENDIR": str(folder), "HANDWASH_SHOWN": f"{socket.gethostname()}::1", "SHELL": user.login_shell}
    user.startup(None)
    terminal = user.person.opens([screen, "-S", "s"], expect_prompt=False, **env)
    # screen may move the cursor after the prompt.
    terminal.child.expect_exact("[0]> ")
    assert "handwash" not in str(terminal.child.before)
    terminal.child.send("exit 4\r")
    terminal.ends()
    assert user.person.tree.said() == ["leave exit"]
