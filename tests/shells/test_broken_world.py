"""Whatever is broken, a person gets out: every shell, by `exit` and by Ctrl-D, within the deadline and with its status."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, Person

from handwash.shell import startup_files

EVERY = pytest.mark.parametrize("somebody", list(KINDS), indirect=True)
# What a shell or a program says when the hook trips.
COMPLAINTS = ("not found", "Unknown command", "No such file", "syntax", "Undefined", "denied", "parameter", "handwash.")
# Without capabilities root has to obey modes like everybody.
POWERLESS = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


def set_in(somebody: Person, **variables: str) -> str:
    """Start-up lines, for after the hook."""
    form = {"fish": "set -gx {0} '{1}'", "tcsh": "setenv {0} '{1}'"}.get(somebody.kind.name, "export {0}='{1}'")
    return "\n".join(form.format(name, value) for name, value in variables.items())


def gets_out(
    somebody: Person, *, limit: float = 5, before: list[str] | None = None, complaints: bool = True
) -> list[str]:
    """Leaves by `exit` and by Ctrl-D, side by side; what was shown."""
    somebody.env["HANDWASH_BANNER"] = "off"
    argv = [*(before or []), *somebody.kind.argv()]
    terminals = [somebody.opens(argv), somebody.opens(argv)]
    terminals[0].child.sendline("exit 5")
    terminals[1].child.sendeof()
    start = time.monotonic()
    statuses = [terminal.ends() for terminal in terminals]
    assert time.monotonic() - start < limit
    assert statuses == [5, 0]
    shown = [terminal.rest for terminal in terminals]
    if complaints:
        for text in shown:
            assert not [word for word in COMPLAINTS if word in text], text
    return shown


def asks(somebody: Person) -> int:
    """How often `gets_out` meets the check: tcsh runs nothing on Ctrl-D."""
    return 1 if somebody.kind.name == "tcsh" else 2


def asked(somebody: Person) -> bool:
    return bool(somebody.tree.said())


@EVERY
def test_pythonhome_and_pythonpath(somebody: Person) -> None:
    somebody.startup(after=set_in(somebody, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere"))
    gets_out(somebody)
    assert len(somebody.tree.said()) == asks(somebody)


@EVERY
def test_modules_in_the_working_directory(somebody: Person) -> None:
    for name in ("json", "psutil", "os", "sitecustomize"):
        (somebody.home / f"{name}.py").write_text("raise SystemExit(99)\n")
    gets_out(somebody)
    assert len(somebody.tree.said()) == asks(somebody)


@EVERY
def test_libraries_of_somebody_else(somebody: Person, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.mkdir()
    for name in ("libm.so.6", "libz.so.1", "libexpat.so.1"):
        (junk / name).write_bytes(b"\x7fELF junk")
    # Set once the shell runs, as `module load` and `conda activate` do.
    somebody.startup(after=set_in(somebody, LD_LIBRARY_PATH=str(junk)))
    gets_out(somebody)
    calls = [call for call in somebody.tree.calls() if call["argv"] != ["banner"]]
    assert len(calls) == asks(somebody)
    for call in calls:
        assert call["env"]["HANDWASH_LD_LIBRARY_PATH"] == str(junk)  # type: ignore[index]
        assert not call["env"].get("LD_LIBRARY_PATH")  # type: ignore[attr-defined]


@EVERY
@pytest.mark.parametrize("path", ["", "/nowhere", "."])
def test_path_leads_nowhere(somebody: Person, path: str) -> None:
    (somebody.home / "handwash").write_text("#!/bin/sh\necho evil; exit 75\n")
    (somebody.home / "handwash").chmod(0o755)
    somebody.startup(after=set_in(somebody, PATH=path))
    assert "evil" not in "".join(gets_out(somebody))
    assert len(somebody.tree.said()) == asks(somebody)
    # And where no interpreter is known either.
    hook = somebody.tree.hook.parent / somebody.kind.hook
    somebody.startup(hook=f"{somebody.kind.dot} '{hook}'\n", after=set_in(somebody, PATH=path))
    assert "evil" not in "".join(gets_out(somebody))


def with_everything_there(
    somebody: Person, act: Callable[[], object], before: list[str] | None = None, complaints: bool = True
) -> None:
    """Breaks something between the start of a shell and the way out of it."""
    somebody.env["HANDWASH_BANNER"] = "off"
    argv = [*(before or []), *somebody.kind.argv()]
    terminals = [somebody.opens(argv), somebody.opens(argv)]
    act()
    terminals[0].child.sendline("exit 5")
    terminals[1].child.sendeof()
    assert [terminal.ends() for terminal in terminals] == [5, 0]
    for terminal in terminals:
        assert not complaints or not [word for word in COMPLAINTS if word in terminal.rest], terminal.rest


@EVERY
def test_the_interpreter_is_removed(somebody: Person) -> None:
    python = somebody.home / "python"
    python.symlink_to(sys.executable)
    somebody.startup(hook=somebody.tree.line(str(python), somebody.kind))
    with_everything_there(somebody, python.unlink)
    assert not asked(somebody)
    # A shell that starts without it.
    gets_out(somebody)
    assert not asked(somebody)


@EVERY
def test_the_package_is_removed_while_a_shell_is_open(somebody: Person) -> None:
    """pip uninstall: open shells stay harmless, and so do the start-up files that are left."""
    with_everything_there(somebody, lambda: shutil.rmtree(somebody.tree.folder))
    row = startup_files.SHELLS[somebody.kind.name]
    somebody.startup(hook=row.line(sys.executable, str(somebody.tree.hook.parent / row.hook)) + "\n")
    terminal = somebody.shell()
    assert terminal.status == 0
    assert not [word for word in COMPLAINTS if word in terminal.greeting], terminal.greeting
    gets_out(somebody)


@EVERY
def test_handwash_cannot_be_read(somebody: Person) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    before = POWERLESS if os.geteuid() == 0 else []

    def close() -> None:
        (somebody.tree.package / "__main__.py").chmod(0)
        for file in somebody.tree.hook.parent.iterdir():
            file.chmod(0)

    # To busybox's `test` root may read everything, capability or not: there Python is the one to find out.
    with_everything_there(somebody, close, before, complaints=somebody.kind.name != "ash")
    assert not asked(somebody)


@EVERY
def test_a_home_that_is_read_only(somebody: Person) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    for folder, _folders, _files in os.walk(somebody.home):
        Path(folder).chmod(0o500)
    try:
        # fish says by itself that it cannot keep its variables.
        gets_out(somebody, before=POWERLESS if os.geteuid() == 0 else [], complaints=somebody.kind.name != "fish")
        assert len(somebody.tree.said()) == asks(somebody)
    finally:
        for folder, _folders, _files in os.walk(somebody.home):
            Path(folder).chmod(0o700)


@EVERY
def test_a_home_that_is_full(somebody: Person, tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("needs root and mount namespaces")
    script = tmp_path / "full"
    script.write_text(
        f"cp -a {somebody.home} {tmp_path}/saved.$$ && mount -t tmpfs -o size=256k tmpfs {somebody.home} &&\n"
        f"cp -a {tmp_path}/saved.$$/. {somebody.home}/ && cd {somebody.home} || exit 9\n"
        "dd if=/dev/zero of=filler bs=4k 2>/dev/null\n"
        'exec "$@"\n'
    )
    before = ["unshare", "--mount", "--propagation", "private", "sh", str(script)]
    gets_out(somebody, before=before, complaints=somebody.kind.name != "fish")
    assert len(somebody.tree.said()) == asks(somebody)


@EVERY
@pytest.mark.parametrize(
    "leave",
    [
        {"code": 1, "say": "Traceback (most recent call last):"},
        {"code": 70},
        {"code": 126},
        {"code": 127},
        {"code": 255},
        {"code": 0, "say": "\x07\x1b]0;title\x07garbage $(exit 9) `exit 9` \"'"},
        {"signal": int(signal.SIGSEGV)},
        {"signal": int(signal.SIGKILL)},
    ],
    ids=lambda leave: "-".join(
        f"{key}{value}" if value != "say" else key for key, value in leave.items() if key != "say"
    ),
)
def test_leave_crashes_or_prints_garbage(somebody: Person, leave: dict[str, object]) -> None:
    somebody.tree.behave(leave=leave)
    gets_out(somebody, complaints=False)
    assert len(somebody.tree.said()) == asks(somebody)


@EVERY
def test_leave_hangs(somebody: Person) -> None:
    somebody.tree.behave(leave={"hang": True})
    somebody.env["HANDWASH_DEADLINE"] = "0"
    start = time.monotonic()
    shown = gets_out(somebody, limit=8)
    assert time.monotonic() - start >= 1.9
    for text in shown[: asks(somebody)]:
        assert "did not finish in time" in text


@EVERY
def test_leave_hangs_at_the_end_of_the_terminal(somebody: Person) -> None:
    somebody.tree.behave(leave={"hang": True})
    somebody.env.update(HANDWASH_DEADLINE="0", HANDWASH_BANNER="off")
    terminal = somebody.shell()
    start = time.monotonic()
    terminal.hang_up()
    assert time.monotonic() - start < 8
