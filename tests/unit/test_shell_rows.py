"""Each shell's row: which file, which line, there and back; and the files for everybody."""

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
from handwash.shell import block, hooks, install, rewrite, site_files, startup_files

NAMES = list(startup_files.SHELLS)
PROGRAMS = {"ash": ["busybox", "ash"], "tcsh": ["tcsh", "-f"]}
# Words that print a variable, where it is set.
SHOW = {"fish": "echo $__handwash_python", "tcsh": "if ( $?__handwash_python ) echo $__handwash_python:q"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("ENV", "ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delitem(world.env, name, raising=False)
    messages.choose("en")
    yield folder


@pytest.fixture
def hook_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All hooks, in a folder that is a trial for every quote."""
    folder = tmp_path / 'it\'s a "folder" $x `y` !z \\ 手'
    folder.mkdir()
    for row in startup_files.SHELLS.values():
        (folder / row.hook).write_text(SHOW.get(row.name, 'echo "$__handwash_python"') + "\n")
    monkeypatch.setattr(paths, "shellhooks_dir", lambda: str(folder))
    return folder


def act(command: str, *, shell: str | None = None, **options: object) -> tuple[int, str]:
    said: list[str] = []
    return getattr(install, command)(shell=shell, out=said.append, **options), "\n".join(said)


def files(home: Path) -> dict[str, bytes]:
    found = (p for p in home.rglob("*") if p.is_file() and not p.name.endswith(rewrite.BACKUP))
    return {str(p.relative_to(home)): p.read_bytes() for p in found}


def holders(home: Path) -> set[str]:
    return {name for name, content in files(home).items() if block.has(content)}


def started(shell: str, text: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs a text as that shell reads a file."""
    program = PROGRAMS.get(shell, [shell])
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    script = home.parent / "script"
    script.write_text(text)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return subprocess.run([*program, str(script)], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("shell", NAMES)
def test_the_line_reads_the_hook_and_is_silent_when_it_is_gone(shell: str, home: Path, hook_files: Path) -> None:
    row = startup_files.SHELLS[shell]
    python = "/it's a/python"
    hook = hook_files / row.hook
    line = row.line(python, str(hook))
    done = started(shell, f"{line}\necho on\n", home)
    # fish has no prompt in a script, and its line asks for one.
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n" if shell == "fish" else f"{python}\non\n", "")
    hook.unlink()
    done = started(shell, f"{line}\necho on\n", home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


@pytest.mark.parametrize("strict", ["set -eu", "set -a", "IFS=/", "set -C"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "ksh", "mksh", "dash", "ash"])
def test_the_line_bears_every_option(shell: str, strict: str, home: Path, hook_files: Path) -> None:
    row = startup_files.SHELLS[shell]
    line = row.line(sys.executable, str(hook_files / row.hook))
    done = started(shell, f"{strict}\n{line}\necho on\n", home)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{sys.executable}\non\n", "")
    (hook_files / row.hook).unlink()
    done = started(shell, f"{strict}\n{line}\necho on\n", home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", "")


def test_a_line_is_for_its_own_shells(home: Path, hook_files: Path) -> None:
    family = {name: row for name, row in startup_files.SHELLS.items() if row.name not in ("fish", "tcsh")}
    for name in family:
        for other in family.values():
            done = started(name, other.line("/python", str(hook_files / other.hook)) + "\n", home)
            expected = "/python\n" if other.hook == family[name].hook else ""
            assert (done.returncode, done.stdout, done.stderr) == (0, expected, ""), (name, other.name)


def test_fish_reads_the_line_for_a_person(home: Path, hook_files: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    row = startup_files.SHELLS["fish"]
    line = row.line("/it's a\\python", str(hook_files / row.hook))
    env = {
        **os.environ,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "LC_ALL": "C.UTF-8",
    }
    argv = ["fish", "--no-config", "-i", "-c", f"{line}\nset -S __handwash_python"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines()[0] == "/it's a\\python"
    assert "unexported" in done.stdout


@pytest.mark.parametrize("content", [None, b"", b"x=1\n", b"no end", b"dos\r\n", b"\xff\xfe\x00\n"])
@pytest.mark.parametrize("shell", NAMES)
def test_there_and_back(shell: str, content: bytes | None, home: Path, hook_files: Path) -> None:
    row = startup_files.SHELLS[shell]
    paths = row.files(str(home)) + [str(home / ".logout")] * (shell == "tcsh")
    if content is not None:
        for path in paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
    before = files(home)
    code, said = act("install", shell=shell)
    assert code == 0
    assert f"type: {row.dot} {row.files(str(home))[0]}" in said
    once = files(home)
    assert once != before
    assert act("install", shell=shell)[1].count("has the hook already") == len(paths)
    assert files(home) == once
    assert act("uninstall", shell=shell)[0] == 0
    assert files(home) == before


def test_the_files_of_each_shell(home: Path, monkeypatch: pytest.MonkeyPatch, hook_files: Path) -> None:
    def of(shell: str) -> list[str]:
        return [os.path.relpath(path, home) for path in startup_files.SHELLS[shell].files(str(home))]

    assert of("zsh") == [".zshrc"]
    monkeypatch.setitem(world.env, "ZDOTDIR", str(home / "z"))
    assert of("zsh") == ["z/.zshrc"]
    assert of("fish") == [".config/fish/conf.d/handwash.fish"]
    monkeypatch.setitem(world.env, "XDG_CONFIG_HOME", str(home / "c"))
    assert of("fish") == ["c/fish/conf.d/handwash.fish"]
    assert of("tcsh") == [".cshrc"]
    (home / ".tcshrc").write_text("")
    assert of("tcsh") == [".tcshrc"]
    assert [of(shell) for shell in ("ksh", "mksh", "dash", "ash")] == [
        [".kshrc"],
        [".mkshrc"],
        [".profile"],
        [".profile"],
    ]
    for named in ("$HOME/.shrc", "${HOME}/.shrc", str(home / ".shrc")):
        monkeypatch.setitem(world.env, "ENV", named)
        assert [of(shell) for shell in ("ksh", "mksh", "dash", "ash")] == [[".shrc"]] * 4
    for strange in (
        "${START[(_$-=1)+(_=0)-(_$-!=_${-%%*i*})]}",
        "relative",
        "/nowhere/at/all",
        "/proc/self/comm/x",
        "/etc",
    ):
        monkeypatch.setitem(world.env, "ENV", strange)
        assert of("ksh") == [".profile"], strange


def test_zdotdir_that_only_zsh_knows(home: Path, hook_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    monkeypatch.setitem(world.env, "HOME", str(home))
    (home / ".zshenv").write_text("ZDOTDIR=$HOME/elsewhere\n")
    assert act("install", shell="zsh")[0] == 0
    assert holders(home) == {"elsewhere/.zshrc"}
    assert act("uninstall")[0] == 0
    assert holders(home) == set()


def test_one_profile_for_several_shells(home: Path, hook_files: Path) -> None:
    (home / ".profile").write_text("x=1")
    assert act("install", shell="bash")[0] == 0
    only_bash = files(home)
    code, said = act("install", shell="dash")
    assert code == 0
    assert "export ENV" in said
    profile = (home / ".profile").read_text()
    assert profile.count(block.BEGIN.decode()) == 1
    assert "handwash.bash" in profile and "handwash.sh" in profile
    assert act("install", shell="ash")[1].count("has the hook already") == 1
    assert act("install", shell="bash")[1].count("has the hook already") == 2
    for shell in ("bash", "dash", "ksh"):
        assert started(shell, profile, home).stdout == f"{sys.executable}\n", shell
    assert act("uninstall", shell="dash")[0] == 0
    assert files(home) == only_bash
    assert act("install", shell="dash")[0] == 0
    assert act("uninstall")[0] == 0
    assert files(home) == {".profile": b"x=1"}


def test_ksh_and_dash_share_what_env_names(home: Path, hook_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(world.env, "ENV", str(home / ".shrc"))
    assert act("install", shell="ksh")[0] == 0
    assert "export ENV" not in act("install", shell="dash")[1]
    assert holders(home) == {".shrc"}


@pytest.mark.parametrize(("name", "row"), [("csh", "tcsh"), ("ksh93", "ksh"), ("busybox", "ash"), ("zsh", "zsh")])
def test_other_names(name: str, row: str) -> None:
    found = startup_files.find(name)
    assert found is not None
    assert found.name == row
    assert startup_files.find("elvish") is None


@pytest.mark.parametrize("shell", NAMES[1:])
def test_init_prints_the_line(shell: str, home: Path, hook_files: Path) -> None:
    said: list[str] = []
    assert hooks.init(shell=shell, out=said.append) == 0
    assert said == [startup_files.SHELLS[shell].line(hooks.interpreter(), hooks.hook_file(startup_files.SHELLS[shell]))]


# --- for everybody ----------------------------------------------------------------------------------------------------

DEBIAN = {
    "profile.d/x.sh": "", "bash.bashrc": "x=1\n", "zsh/zshrc": "bindkey -e\n", "fish/config.fish": "", "mkshrc": "",
    "csh.cshrc": "set dir=/etc/csh/cshrc.d\n", "csh/cshrc.d/.keep": "",
}  # fmt: skip
RED_HAT = {"profile.d/x.sh": "", "bashrc": "for i in /etc/profile.d/*.sh\n", "csh.cshrc": "/etc/profile.d/*.csh\n",
           "zshrc": "", "kshrc": "", "fish/conf.d/x.fish": ""}  # fmt: skip
BARE = {"hosts": ""}


def image(tmp_path: Path, content: dict[str, str]) -> str:
    etc = tmp_path / "image" / "etc"
    for name, text in content.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    return f"{tmp_path}/image/"


@pytest.fixture
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest's own folders are closed to others."""
    monkeypatch.setattr(site_files, "barrier", lambda path: None)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (
            DEBIAN,
            "profile.d/handwash.sh profile.d/handwash.csh bash.bashrc zsh/zshrc fish/conf.d/handwash.fish"
            " csh/cshrc.d/handwash.csh csh.logout mkshrc",
        ),
        (RED_HAT, "profile.d/handwash.sh profile.d/handwash.csh csh.logout zshrc fish/conf.d/handwash.fish kshrc"),
    ],
    ids=["debian", "red-hat"],
)
def test_for_everybody_and_back(
    system: dict[str, str], expected: str, tmp_path: Path, home: Path, hook_files: Path, open_to_all: None
) -> None:
    root = image(tmp_path, system)
    before = files(Path(root))
    dry = act("install", system=True, dry_run=True, root=root)
    assert dry[0] == 0 and files(Path(root)) == before
    old = os.umask(0o077)
    try:
        code, said = act("install", system=True, root=root)
    finally:
        os.umask(old)
    assert code == 0
    assert holders(Path(root)) == {f"etc/{name}" for name in expected.split()}
    for name in expected.split():
        assert f"+++ {root}etc/{name}" in dry[1]
        assert f"{root}etc/{name} is " in said
        assert stat.S_IMODE((Path(root) / "etc" / name).stat().st_mode) & 0o444 == 0o444
    once = files(Path(root))
    assert act("install", system=True, root=root)[1].count("has the hook already") == len(expected.split())
    assert files(Path(root)) == once
    assert holders(home) == set()
    assert act("uninstall", system=True, root=root)[0] == 0
    assert files(Path(root)) == before
    assert act("uninstall", system=True, root=root)[1] == "No start-up file has the hook."


def test_for_everybody_a_new_installation_leaves_no_backup_where_all_is_read(
    tmp_path: Path, home: Path, hook_files: Path, open_to_all: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = image(tmp_path, DEBIAN)
    assert act("install", system=True, root=root)[0] == 0
    monkeypatch.setattr(hooks, "interpreter", lambda: "/another/python")
    code, said = act("install", system=True, root=root)
    assert code == 0
    assert "profile.d/handwash.sh is changed." in said
    kept = [str(p.relative_to(root)) for p in Path(root).rglob("*" + rewrite.BACKUP)]
    assert sorted(kept) == [f"etc/{name}{rewrite.BACKUP}" for name in ("bash.bashrc", "mkshrc", "zsh/zshrc")]


def test_for_everybody_of_one_shell(tmp_path: Path, home: Path, hook_files: Path, open_to_all: None) -> None:
    root = image(tmp_path, DEBIAN)
    code, said = act("install", shell="zsh", system=True, root=root)
    assert code == 0 and "share" not in said
    assert holders(Path(root)) == {"etc/zsh/zshrc"}
    code, said = act("install", shell="mksh", system=True, root=root)
    assert code == 0 and "ksh, mksh, dash, ash share one hook" in said
    assert "handwash.bash" not in (Path(root) / "etc/profile.d/handwash.sh").read_text()
    assert act("uninstall", shell="zsh", system=True, root=root)[0] == 0
    assert holders(Path(root)) == {"etc/mkshrc", "etc/profile.d/handwash.sh"}


def test_for_everybody_where_there_is_no_place(tmp_path: Path, home: Path, hook_files: Path, open_to_all: None) -> None:
    root = image(tmp_path, BARE)
    code, said = act("install", system=True, root=root)
    assert code == 1
    assert "No place" in said


def test_for_everybody_but_closed_to_them(
    tmp_path: Path, home: Path, hook_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("")
    assert site_files.barrier("/etc/passwd") is None
    assert site_files.barrier(str(closed / "file")) is not None
    hook_files.chmod(0o700)
    root = image(tmp_path, DEBIAN)
    assert act("install", system=True, root=root)[0] == 1
    assert "closed to other users" in capsys.readouterr().err
    assert holders(Path(root)) == set()


def test_for_everybody_what_it_may_not_write_is_said(
    tmp_path: Path, home: Path, hook_files: Path, open_to_all: None, capsys: pytest.CaptureFixture[str]
) -> None:
    root = image(tmp_path, DEBIAN)
    (Path(root) / "etc/zsh/zshrc").write_bytes(block.BEGIN + b"\n")
    assert act("install", system=True, root=root)[0] == 1
    assert "without the other" in capsys.readouterr().err
    assert holders_or_unbalanced(root) == 0


def holders_or_unbalanced(root: str) -> int:
    return sum(b"__handwash" in content for content in files(Path(root)).values())
