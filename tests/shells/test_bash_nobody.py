"""Where no person sits: the same bytes come out with the hook in .bashrc and without it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.shells.terminal import BASH, Person, until

SSH_TOOLS = ("sshd", "ssh", "ssh-keygen")


def same(somebody: Person, run: Callable[[], object], *, silent: bool = True) -> object:
    """Runs without the hook, with it, and compares; handwash must not have been called either."""
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append(run())
    assert outcomes[0] == outcomes[1]
    if silent:
        assert somebody.tree.calls() == []
    return outcomes[1]


def piped(somebody: Person, argv: list[str], given: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
    """Runs a program without a terminal."""
    done = subprocess.run(
        argv, input=given, capture_output=True, env={**somebody.env, **env}, cwd=somebody.home, start_new_session=True
    )
    return done.returncode, done.stdout, done.stderr


def on_terminal(somebody: Person, argv: list[str], **env: str) -> tuple[int, str]:
    """Runs a program to its end on a terminal; its status and what was shown."""
    terminal = somebody.opens(argv, expect_prompt=False, **env)
    return terminal.ends(), terminal.rest


@pytest.mark.parametrize("options", ["-c", "-lc", "-ic", "-lic", "-ilc"])
@pytest.mark.parametrize("command", ["env -u _", "exit 7", "false; exit", "printf 'a\\0b'", "trap -p; declare -F"])
def test_bash_c_on_a_terminal_and_without(somebody: Person, options: str, command: str) -> None:
    same(somebody, lambda: on_terminal(somebody, [BASH, options, command]))
    # Without a terminal bash names the process group that it cannot have.
    same(somebody, lambda: re.sub(rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, options, command])))


def test_vs_code_resolves_the_environment(somebody: Person) -> None:
    env = {"VSCODE_RESOLVING_ENVIRONMENT": "1", "ELECTRON_RUN_AS_NODE": "1"}
    before = time.monotonic()
    same(
        somebody,
        lambda: re.sub(
            rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, "-ilc", "echo mark; env -u _; echo mark"], **env)
        ),
    )
    assert time.monotonic() - before < 10
    same(somebody, lambda: on_terminal(somebody, [BASH, "-ilc", "env -u _"], **env))
    # Older releases type into an interactive shell instead.
    terminal = somebody.shell("-il", **env)
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


def test_a_shell_fed_through_a_pipe(somebody: Person) -> None:
    words = b"echo on; trap -p; declare -F; false; exit\n"
    for options in ([], ["-l"], ["-s"], ["-s", "a", "b"]):
        assert same(somebody, lambda options=options: piped(somebody, [BASH, *options], words))[0] == 1  # type: ignore[index, misc]
    same(somebody, lambda: re.sub(rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, [BASH, "-i"], words)))


def test_stderr_or_stdin_is_no_terminal(somebody: Person) -> None:
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"echo 'trap -p; exit 3' | {BASH} -i 2>/dev/null"]))
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"{BASH} -i 2>/dev/null <<<'' 3<&0 || :"]))
    same(somebody, lambda: on_terminal(somebody, ["/bin/sh", "-c", f"echo 'declare -F' | {BASH} -i 2>&1 | cat"]))


def test_a_dumb_terminal(somebody: Person) -> None:
    terminal = somebody.shell(TERM="dumb")
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


def test_cron_like_and_bash_env(somebody: Person) -> None:
    (somebody.home / "script").write_text("#!/bin/bash\necho on; trap -p\nfalse\nexit\n")
    rc = str(somebody.home / ".bashrc")
    same(somebody, lambda: piped(somebody, ["/bin/sh", "-c", f"{BASH} ./script"], TERM=""))
    same(somebody, lambda: piped(somebody, [BASH, "./script"], BASH_ENV=rc))
    same(somebody, lambda: on_terminal(somebody, [BASH, "./script"], BASH_ENV=rc))
    same(somebody, lambda: on_terminal(somebody, [BASH, "-i", "./script"]))
    (somebody.home / "script").chmod(0o755)
    (somebody.home / "script").write_text(f"#!{BASH} -i\necho on; trap -p; declare -F\nfalse\nexit\n")
    same(somebody, lambda: on_terminal(somebody, ["./script", "a", "b"]))


@pytest.mark.parametrize("options", ["-i -o vi", "-iO extglob", "--rcfile .bashrc -i", "-is word", "--noprofile -i --"])
def test_options_and_their_words_are_no_script(somebody: Person, options: str) -> None:
    terminal = somebody.shell(*options.split(), HANDWASH_BANNER="off")
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("stdin", ["terminal", "none"])
def test_script_c(somebody: Person, stdin: str) -> None:
    if shutil.which("script") is None:
        pytest.skip("script is not installed")
    argv = ["script", "-qec", "env -u _ -u COLUMNS -u LINES; exit 5", "/dev/null"]
    if stdin == "terminal":
        assert same(somebody, lambda: on_terminal(somebody, argv))[0] == 5  # type: ignore[index]
    else:
        assert same(somebody, lambda: piped(somebody, argv))[0] == 5  # type: ignore[index]


def test_script_for_a_person_is_a_person(somebody: Person) -> None:
    if shutil.which("script") is None:
        pytest.skip("script is not installed")
    terminal = somebody.opens(["script", "-q", "/dev/null"])
    assert "handwash: " in terminal.greeting
    terminal.child.sendline("exit 5")
    terminal.ends()
    assert somebody.tree.said() == ["leave exit"]


def test_su_c(somebody: Person) -> None:
    if os.geteuid() != 0 or shutil.which("su") is None:
        pytest.skip("needs root, for a su without a password")
    me = pwd.getpwuid(0).pw_name
    for words in (["-c", "echo on; exit 4"], ["-c", f"{BASH} -lc 'exit 4'"]):
        argv = ["su", "-m", "-s", BASH, me, *words]
        assert same(somebody, lambda argv=argv: piped(somebody, argv))[0] == 4  # type: ignore[index, misc]
        assert same(somebody, lambda argv=argv: on_terminal(somebody, argv))[0] == 4  # type: ignore[index, misc]


def test_sudo(somebody: Person) -> None:
    if os.geteuid() != 0 or shutil.which("sudo") is None:
        pytest.skip("needs root and sudo")
    argv = ["sudo", "-n", "-E", f"HOME={somebody.home}", BASH, "-lc", "exit 4"]
    assert same(somebody, lambda: piped(somebody, argv))[0] == 4  # type: ignore[index]


def test_screen_window(somebody: Person) -> None:
    screen = shutil.which("screen")
    if screen is None:
        pytest.skip("screen is not installed")
    folder = somebody.home / "screens"
    folder.mkdir(mode=0o700)
    seen = somebody.shell(HANDWASH_BANNER="line").run("echo $HANDWASH_SHOWN").strip()
    env = {"SCREENDIR": str(folder), "HANDWASH_SHOWN": seen}
    terminal = somebody.opens([screen, "-S", "s", BASH, "-l"], expect_prompt=False, **env)
    # screen may move the cursor after the prompt.
    terminal.child.expect_exact("[0]> ")
    assert "handwash" not in str(terminal.child.before)
    terminal.child.sendline("(exit 4)")
    terminal.child.expect_exact("[4]> ")
    terminal.child.sendeof()
    terminal.ends()
    assert somebody.tree.said() == ["leave eof"]


# --- through a real sshd ----------------------------------------------------------------------------------------------


class Sshd:
    """An sshd of our own on 127.0.0.1, that gives whoever runs the tests a home folder of our choice."""

    def __init__(self, somebody: Person, folder: Path) -> None:
        self.somebody = somebody
        self.folder = folder
        folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        sftp = next(
            (p for p in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server") if Path(p).exists()),
            "internal-sftp",
        )
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nSubsystem sftp {sftp}\n"
            f"SetEnv HOME={somebody.home} INPUTRC={somebody.home}/.inputrc LC_ALL=C.UTF-8\n"
        )
        self.options = [
            *("-F", "none", "-i", str(folder / "user"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
        ]
        self.made_run = False
        if os.geteuid() == 0 and not Path("/run/sshd").exists():
            # sshd as root wants an empty folder there.
            Path("/run/sshd").mkdir(mode=0o755)
            self.made_run = True
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    str(shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")),
                    "-D",
                    "-e",
                    "-f",
                    f"{folder}/sshd_config",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: self._answers() or self.process.poll() is not None, "sshd does not listen")
        assert self.process.poll() is None, (folder / "log").read_text()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ssh(self, *words: str) -> list[str]:
        return ["ssh", *self.options, "-p", str(self.port), *words]

    @property
    def host(self) -> str:
        return f"{pwd.getpwuid(os.geteuid()).pw_name}@127.0.0.1"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.made_run:
            Path("/run/sshd").rmdir()


@pytest.fixture
def sshd(somebody: Person, tmp_path: Path) -> Iterator[Sshd]:
    missing = [t for t in SSH_TOOLS if shutil.which(t, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed")
    if Path(pwd.getpwuid(os.geteuid()).pw_shell).name != "bash":
        pytest.skip("the login shell of whoever runs this is not bash")
    server = Sshd(somebody, tmp_path / "sshd")
    try:
        yield server
    finally:
        server.stop()


def test_ssh_host_command(somebody: Person, sshd: Sshd) -> None:
    commands = [
        ["printf 'a\\0b\\377'; exit 7"],
        ["env | grep -v ^SSH_ | grep -v ^_="],
        ["trap -p; declare -F; shopt login_shell; echo $-; false; exit"],
        ["-t", "echo on; trap -p; false; exit"],
        ["-tt", "bash -ic 'echo on; exit 6' </dev/null"],
        ["cat; exit 2"],
        ["bash -lic 'env | grep -v ^SSH_ | grep -v ^_= | grep -i wash; exit 3'"],
    ]
    for words in commands:
        options, command = words[:-1], words[-1]
        argv = sshd.ssh(*options, sshd.host, command)
        same(somebody, lambda argv=argv: re.sub(rb"\(\d+\)", b"", b"%d %s %s" % piped(somebody, argv, b"given\n")))  # type: ignore[misc]
    same(somebody, lambda: on_terminal(somebody, sshd.ssh("-t", sshd.host, "echo on; false; exit")))
    same(somebody, lambda: piped(somebody, sshd.ssh(sshd.host), b"echo on; false; exit\n"))


def test_the_hook_was_read_by_ssh_host_command(somebody: Person, sshd: Sshd) -> None:
    """Else the comparison above would prove nothing."""
    somebody.startup(hook="echo read\n")
    assert piped(somebody, sshd.ssh(sshd.host, "echo on"))[1] == b"read\non\n"


def test_scp_sftp_and_rsync(somebody: Person, sshd: Sshd) -> None:
    data = bytes(range(256)) * 400
    (somebody.home / "data").write_bytes(data)
    port = ["-P", str(sshd.port)]

    def copied(argv: list[str], name: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        target = somebody.home / name
        target.unlink(missing_ok=True)
        code, out, err = piped(somebody, argv, given)
        assert target.exists() and target.read_bytes() == data, (code, err)
        return code, out, err

    here, there = str(somebody.home), f"{sshd.host}:{somebody.home}"
    scp = ["scp", *sshd.options, *port]
    for argv in (
        [*scp, f"{here}/data", f"{there}/up"],
        [*scp, f"{there}/data", f"{here}/up"],
        [*scp, "-O", f"{here}/data", f"{there}/up"],
        [*scp, "-O", f"{there}/data", f"{here}/up"],
    ):
        assert same(somebody, lambda argv=argv: copied(argv, "up")) == (0, b"", b"")  # type: ignore[misc]
    batch = f"put {here}/data {here}/up\nget {here}/data {here}/down\n".encode()
    code, _out, err = same(  # type: ignore[misc]
        somebody, lambda: copied(["sftp", *sshd.options, *port, "-b", "-", sshd.host], "up", batch)
    )
    assert (code, err) == (0, b"")
    assert (somebody.home / "down").read_bytes() == data
    if shutil.which("rsync"):
        shell = " ".join(["ssh", *sshd.options, "-p", str(sshd.port)])
        argv = ["rsync", "-e", shell, f"{here}/data", f"{there}/up"]
        assert same(somebody, lambda: copied(argv, "up")) == (0, b"", b"")


def test_a_person_through_ssh(somebody: Person, sshd: Sshd) -> None:
    """The login shell of an ssh session greets, asks and is told of a lost connection."""
    somebody.startup(before="PS1='[$?]> '")
    terminal = somebody.opens(sshd.ssh("-tt", sshd.host), TERM="xterm")
    assert terminal.greeting.count("handwash: ") == 1
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert somebody.tree.said() == ["leave logout"]
    terminal = somebody.opens(sshd.ssh("-tt", sshd.host), TERM="xterm")
    terminal.close()
    until(lambda: somebody.tree.said()[-1] == "leave hup", "the lost connection was not told")
    assert somebody.tree.said() == ["leave logout", "leave hup"]
