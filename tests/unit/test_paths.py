"""Where things lie, compared with platformdirs; files are whole and private, or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs
import pytest

from handwash import paths, world


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": "/home/alice"},
        {"HOME": "/home/alice", "XDG_STATE_HOME": "/data/state", "XDG_CONFIG_HOME": "/data/config"},
        {"HOME": "/home/alice", "XDG_CONFIG_DIRS": "/site/a:/site/b"},
        {"HOME": "/home/alice", "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": "  ", "XDG_CONFIG_DIRS": ""},
        {"HOME": "/家/小明 x"},
    ],
)
def test_the_folders_are_those_of_platformdirs(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """State, the person's configuration, the site's."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(world, "env", env)
    assert paths.state_dir() == platformdirs.user_state_dir("handwash")
    assert paths.user_config_file() == platformdirs.user_config_dir("handwash") + "/handwash.toml"
    assert paths.site_config_file() == platformdirs.site_config_dir("handwash") + "/handwash.toml"


@pytest.mark.parametrize("home", [None, "", ".", "relative/home", "~"])
def test_without_a_usable_home(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME missing or relative: the account's own, never the working directory."""
    env = {"XDG_STATE_HOME": "relative", "XDG_CONFIG_HOME": ".", "XDG_CONFIG_DIRS": "also/relative:/x"}
    monkeypatch.setattr(world, "env", env if home is None else {**env, "HOME": home})
    for path in (paths.state_dir(), paths.user_config_file(), paths.site_config_file()):
        assert os.path.isabs(path)
    assert paths.site_config_file() == "/etc/xdg/handwash/handwash.toml"


def test_an_account_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uid without an entry, in a container for instance."""
    monkeypatch.setattr(world, "env", {})
    monkeypatch.setattr(world, "uid", lambda: 3_999_999_999)
    assert paths.state_dir() == "/.local/state/handwash"
    assert world.user_name(3_999_999_999) == "3999999999"


def test_a_file_is_whole_and_private(tmp_path: Path) -> None:
    """Mode 0600 in 0700 under any umask, replaced in one step, with nothing beside it."""
    path = tmp_path / "a" / "b" / "file"
    before = os.umask(0)
    try:
        paths.write_whole(str(path), b"one")
        paths.write_whole(str(path), b"two" * 100_000)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"two" * 100_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["file"]


def test_a_careless_umask(tmp_path: Path) -> None:
    """With umask 0 the folders above would be everybody's to write."""
    before = os.umask(0)
    try:
        paths.write_whole(str(tmp_path / ".local" / "state" / "handwash" / "sessions" / "a"), b"")
    finally:
        os.umask(before)
    for folder in (tmp_path / ".local").rglob("*/"):
        assert not folder.is_dir() or stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    assert stat.S_IMODE((tmp_path / ".local").stat().st_mode) == 0o700


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """What somebody else put under the scratch name is not written through."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"file.{os.getpid()}.new").symlink_to(victim)
    with pytest.raises(OSError):
        paths.write_whole(str(tmp_path / "file"), b"x")
    assert victim.read_text() == "precious"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """An OSError, and no half file."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError):
        paths.write_whole(str(tmp_path / "file" / "state"), b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        paths.write_whole(str(tmp_path / "folder"), b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_the_hooks_are_found() -> None:
    """The folder of the hook files, in this checkout or in a wheel."""
    assert "handwash.bash" in os.listdir(paths.shellhooks_dir())
