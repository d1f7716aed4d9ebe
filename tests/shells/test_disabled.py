"""HANDWASH_DISABLE means the same to the hook of every shell, banner, check at exit, doctor and safe-srun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, REPO, Person

# What the variable is set to, and whether that switches handwash off.
VALUES = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True, "00": True}
EVERY = pytest.mark.parametrize("somebody", list(KINDS), indirect=True)
MAIN = REPO / "src" / "handwash" / "__main__.py"


@EVERY
def test_the_hook_at_login(somebody: Person) -> None:
    """The first line is the shell's own: no program takes part in it."""
    somebody.env["HANDWASH_BANNER"] = "line"
    silent = {value: "handwash" not in somebody.shell(HANDWASH_DISABLE=value).greeting for value in VALUES}
    assert silent == VALUES


@EVERY
def test_the_hook_on_the_way_out(somebody: Person) -> None:
    """The variable is set after the hook was read."""
    somebody.env["HANDWASH_BANNER"] = "off"
    form = {"fish": "set -gx HANDWASH_DISABLE '{}'", "tcsh": "setenv HANDWASH_DISABLE '{}'"}
    setting = form.get(somebody.kind.name, "export HANDWASH_DISABLE='{}'")
    asked = {}
    for value in VALUES:
        terminal = somebody.shell()
        terminal.run(setting.format(value))
        before = len(somebody.tree.said())
        terminal.child.sendline("exit 0")
        terminal.ends()
        asked[value] = len(somebody.tree.said()) > before
    assert asked == {value: not disabled for value, disabled in VALUES.items()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a PATH of one folder, in which srun is a script that tells its words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").write_text('#!/bin/sh\necho "plain: $*"\n')
    (folder / "srun").chmod(0o755)
    return tmp_path


def says(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    variables = {"HOME": str(home), "PATH": str(home / "bin"), "LANG": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-I", "-S", str(MAIN), *words],
        env={**variables, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def is_silent(home: Path, **env: str) -> dict[str, bool]:
    """Whether each of the programs takes handwash for switched off."""
    doctor = json.loads(says(home, "doctor", "--json", **env).stdout)
    hook = [one["what"] for one in doctor["findings"] if one["id"] == "hook-inactive"]
    return {
        "banner": says(home, "banner", **env).stderr == "",
        "doctor": any("switched off" in what for what in hook),
        "safe-srun --local": "HANDWASH_SESSION="
        not in says(home, "safe-srun", "--local", "/usr/bin/env", **env).stdout,
        # Supervised, srun's words hold the supervisor's.
        "safe-srun": says(home, "safe-srun", "true", **env).stdout == "plain: true\n",
    }


@pytest.mark.parametrize(("value", "disabled"), VALUES.items())
def test_the_programs(home: Path, value: str, disabled: bool) -> None:
    found = is_silent(home, HANDWASH_DISABLE=value)
    assert found == dict.fromkeys(found, disabled)


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("false", False)])
def test_the_file_says_so(home: Path, value: str, disabled: bool) -> None:
    """`disable` of the settings file, for all programs."""
    (home / "settings.toml").write_text(f"disable = {value}\n")
    found = is_silent(home, HANDWASH_CONFIG=str(home / "settings.toml"))
    assert found == dict.fromkeys(found, disabled)
    again = is_silent(home, HANDWASH_CONFIG=str(home / "settings.toml"), HANDWASH_DISABLE="no")
    assert again == dict.fromkeys(again, False)


def test_the_language_of_the_file(home: Path) -> None:
    """`lang` of the settings file is safe-srun's too, and HANDWASH_LANG goes before it."""
    (home / "settings.toml").write_text('lang = "zh_CN"\n')
    env = {"HANDWASH_CONFIG": str(home / "settings.toml")}
    assert "没有残留进程" in says(home, "safe-srun", "--local", "/bin/true", **env).stderr
    assert "nothing was left" in says(home, "safe-srun", "--local", "/bin/true", **env, HANDWASH_LANG="en").stderr
