"""install and uninstall on real files: which ones, what they become, what they keep."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handwash import messages, paths, world
from handwash.shell import block, detect, hooks, install, rewrite, startup_files

BASH = shutil.which("bash") or "/bin/bash"


class Lines(list[str]):
    """Stands for the terminal."""

    def __call__(self, line: str = "") -> None:
        self.append(line)

    def text(self) -> str:
        return "\n".join(self)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    messages.choose("en")
    yield folder


def installed(**options: bool) -> tuple[int, str]:
    said = Lines()
    return install.install(shell="bash", out=said, **options), said.text()


def uninstalled(**options: bool) -> tuple[int, str]:
    said = Lines()
    return install.uninstall(shell="bash", out=said, **options), said.text()


def tree(home: Path) -> dict[str, bytes]:
    """The start-up files, without the backups."""
    return {p.name: p.read_bytes() for p in home.iterdir() if p.is_file() and not p.name.endswith(rewrite.BACKUP)}


def holders(home: Path) -> set[str]:
    return {name for name, content in tree(home).items() if block.has(content)}


SOURCING = [
    ". ~/.bashrc",
    "source ~/.bashrc",
    '[ -f "$HOME/.bashrc" ] && . "$HOME/.bashrc"',
    'if [ -f ~/.bashrc ]; then\n\t. "${HOME}"/.bashrc\nfi',
    "test -r ~/.bashrc&&source $HOME/.bashrc;true",
    "{ . ~/.bashrc; }",
]
NOT_SOURCING = ["# . ~/.bashrc", "echo ~/.bashrc", ". ~/.bashrc.d/one", "x=1 # then . ~/.bashrc", "vi ~/.bashrc", ""]


@pytest.mark.parametrize("text", SOURCING)
def test_a_login_file_that_sources_bashrc_is_left_alone(home: Path, text: str) -> None:
    (home / ".bash_profile").write_text(text + "\n")
    assert installed()[0] == 0
    assert holders(home) == {".bashrc"}


@pytest.mark.parametrize("text", NOT_SOURCING)
def test_a_login_file_that_does_not_gets_the_block_too(home: Path, text: str) -> None:
    (home / ".bash_profile").write_text(text + "\n")
    assert installed()[0] == 0
    assert holders(home) == {".bashrc", ".bash_profile"}


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ((".bash_profile", ".bash_login", ".profile"), ".bash_profile"),
        ((".bash_login", ".profile"), ".bash_login"),
        ((".profile",), ".profile"),
        ((), ".profile"),
    ],
)
def test_the_first_login_file_that_bash_would_read(home: Path, there: tuple[str, ...], chosen: str) -> None:
    for name in there:
        (home / name).write_text("x=1\n")
    assert installed()[0] == 0
    assert holders(home) == {".bashrc", chosen}


@pytest.mark.parametrize("content", [b"", b"x=1\n", b"no end", b"dos\r\n", b"\xff\xfe\x00\n", "名=字\n".encode()])
def test_there_and_back_every_byte_is_the_same(home: Path, content: bytes) -> None:
    (home / ".bashrc").write_bytes(content)
    (home / ".profile").write_bytes(b". ~/.bashrc")
    before = tree(home)
    assert installed()[0] == 0
    once = tree(home)
    assert once != before
    code, said = installed()
    assert code == 0
    assert "has the hook already" in said
    assert tree(home) == once
    assert uninstalled()[0] == 0
    assert tree(home) == before
    code, said = uninstalled()
    assert (code, said) == (0, "No start-up file has the hook.")


def test_files_that_install_made_are_removed(home: Path) -> None:
    assert installed()[0] == 0
    assert holders(home) == {".bashrc", ".profile"}
    assert uninstalled()[0] == 0
    assert list(home.iterdir()) == []


def test_the_backup_holds_what_was_there(home: Path) -> None:
    (home / ".bashrc").write_text("x=1\n")
    (home / ".bashrc").chmod(0o640)
    _code, said = installed()
    backup = home / (".bashrc" + rewrite.BACKUP)
    assert backup.read_text() == "x=1\n"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert str(backup) in said


def test_a_link_planted_where_the_backup_goes_is_not_followed(home: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (home / ".bashrc").write_text("x=1\n")
    (home / (".bashrc" + rewrite.BACKUP)).symlink_to(victim)
    assert installed()[0] == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o400])
def test_mode_and_owner_are_kept(home: Path, mode: int) -> None:
    rc = home / ".bashrc"
    rc.write_text("x=1\n")
    if os.geteuid() == 0:
        os.chown(rc, 64999, 64998)
    rc.chmod(mode)
    before = rc.stat()
    assert installed()[0] == 0
    after = rc.stat()
    assert block.has(rc.read_bytes())
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_symbolic_links_are_written_through(home: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "bashrc").write_text("x=1\n")
    (dotfiles / "middle").symlink_to("bashrc")
    (home / ".bashrc").symlink_to(dotfiles / "middle")
    (home / ".profile").symlink_to(dotfiles / "not-there-yet")
    assert installed()[0] == 0
    assert (home / ".bashrc").is_symlink()
    assert (dotfiles / "middle").is_symlink()
    assert block.has((dotfiles / "bashrc").read_bytes())
    assert block.has((dotfiles / "not-there-yet").read_bytes())
    assert uninstalled()[0] == 0
    assert (dotfiles / "bashrc").read_text() == "x=1\n"
    assert not (dotfiles / "not-there-yet").exists()


def test_hard_links_stay_one_file(home: Path, tmp_path: Path) -> None:
    (home / ".bashrc").write_text("x=1\n")
    os.link(home / ".bashrc", tmp_path / "other-name")
    assert installed()[0] == 0
    assert block.has((tmp_path / "other-name").read_bytes())
    assert uninstalled()[0] == 0
    assert (tmp_path / "other-name").read_text() == "x=1\n"


def test_extended_attributes_are_kept(home: Path) -> None:
    rc = home / ".bashrc"
    rc.write_text("x=1\n")
    try:
        os.setxattr(rc, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert installed()[0] == 0
    assert os.getxattr(rc, "user.note") == b"mine"


@pytest.mark.parametrize("text", [block.BEGIN, block.END, block.END + b"\n" + block.BEGIN, block.BEGIN * 1 + b"\nx\n"])
def test_an_unbalanced_marker_is_refused_before_anything_is_written(
    home: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".profile").write_bytes(text + b"\n")
    before = tree(home)
    assert installed()[0] == 1
    assert uninstalled()[0] == 1
    assert tree(home) == before
    assert "without the other" in capsys.readouterr().err


def test_what_is_no_file_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for make in (lambda p: p.mkdir(), os.mkfifo, lambda p: p.symlink_to("/dev/null"), lambda p: p.symlink_to(p.name)):
        rc = home / ".bashrc"
        make(rc)
        assert installed()[0] == 1
        assert capsys.readouterr().err.startswith("handwash: ")
        rc.rmdir() if rc.is_dir() else rc.unlink()
    assert tree(home) == {}


def test_a_failed_write_leaves_the_file_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rc = home / ".bashrc"
    rc.write_text("x=1\n")
    os.link(rc, home / "second-name")
    real, calls = os.write, []

    def full(handle: int, content: bytes) -> int:
        calls.append(content)
        if len(calls) == 1:
            return real(handle, bytes(content)[:3])
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(handle, content)

    monkeypatch.setattr(rewrite.os, "write", full)
    assert installed()[0] == 1
    assert rc.read_text() == "x=1\n"


def test_dry_run_shows_the_change_and_writes_nothing(home: Path) -> None:
    (home / ".bashrc").write_bytes(b"x=1\n\x1b[31mred\xff\n")
    before = tree(home)
    code, said = installed(dry_run=True)
    assert code == 0
    assert tree(home) == before
    assert list(home.glob("*" + rewrite.BACKUP)) == []
    assert f"--- {home}/.bashrc" in said
    assert "+# >>> handwash >>>" in said
    assert "--- /dev/null" in said
    assert "\x1b" not in said
    installed()
    code, said = uninstalled(dry_run=True)
    assert "-# >>> handwash >>>" in said
    assert holders(home) == {".bashrc", ".profile"}


def test_an_unknown_shell_is_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Lines()
    assert install.install(shell="elvish", out=said) == 2
    assert install.uninstall(shell="elvish\x1b[2J", out=said) == 2
    assert hooks.init(shell="elvish", out=said) == 2
    assert said == []
    assert "\x1b" not in capsys.readouterr().err


def test_the_shell_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shellingham

    def lost() -> tuple[str, str]:
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(detect, "_name_of", lambda pid: "mksh")
    assert detect.shell_name() == "mksh"
    monkeypatch.setattr(detect, "_name_of", lambda pid: "make")
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    assert detect.shell_name() == "bash"
    monkeypatch.setattr(shellingham, "detect_shell", lost)
    monkeypatch.setitem(world.env, "SHELL", "/usr/bin/zsh")
    assert detect.shell_name() == "zsh"
    monkeypatch.setitem(world.env, "SHELL", "")
    assert detect.shell_name() is None
    assert install.install(out=Lines()) == 2


def bash(*words: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm", **env}
    return subprocess.run([BASH, *words], env=clean, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("options", ["set -eu", "set -o posix", "set -a", "set -euo pipefail; set -C", "IFS=/"])
def test_the_line_is_silent_and_succeeds_everywhere(home: Path, options: str, tmp_path: Path) -> None:
    hook = tmp_path / 'it\'s a "hook" $x `y`'
    line = startup_files.SHELLS["bash"].line("/a b/python", str(hook))
    hook.write_text('echo "$__handwash_python"\n')
    for program in ("bash", "dash", "zsh", "ksh", "mksh"):
        if shutil.which(program) is None or (program != "bash" and "set -e" not in options and options != "IFS=/"):
            continue
        if "pipefail" in options and program == "dash":
            continue
        done = subprocess.run([program, "-c", f"{options}\n{line}\necho on"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == ("/a b/python\non\n" if program == "bash" else "on\n")
    hook.unlink()
    done = bash("-c", f"{options}\n{line}\necho on", home=home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_the_line_names_this_installation(home: Path) -> None:
    installed()
    line = (home / ".bashrc").read_text().splitlines()[1]
    assert f"__handwash_python={sys.executable} " in line
    assert os.path.join(paths.shellhooks_dir(), "handwash.bash") in line


def test_init_is_the_hook_and_harms_no_start_up_file(home: Path) -> None:
    said = Lines()
    assert hooks.init(shell="bash", out=said) == 0
    text = said.text() + "\n"
    assert Path(paths.shellhooks_dir(), "handwash.bash").read_text() in text
    (home / "init").write_text(text)
    for words in (("-c", 'eval "$(cat ~/init)"; echo on'), ("-c", ". ~/init; echo on"), ("-n", str(home / "init"))):
        done = bash(*words, home=home)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == ("" if words[0] == "-n" else "on\n")
    if shutil.which("shellcheck"):
        checked = subprocess.run(["shellcheck", "-s", "bash", str(home / "init")], capture_output=True, text=True)
        assert checked.stdout == ""
