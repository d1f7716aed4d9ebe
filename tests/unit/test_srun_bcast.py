"""`--bcast` taken over: which command lines can be, what is left of them for srun, and how srun finds the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from handwash import world
from handwash.srun import bcast, launch
from handwash.srun.arguments import parse


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program, and a PATH with another one and with Slurm's sbcast."""
    (tmp_path / "bin").mkdir()
    for name in ("prog", "bin/other", "bin/sbcast"):
        (tmp_path / name).touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(world, "env", {"PATH": f"{tmp_path}/bin"})
    return tmp_path


def test_the_option_and_the_program_change_places(home: Path) -> None:
    """All else stays as it was typed."""
    words = ["-N2", "--bcast=/tmp/copy", "-J", "name", "--compress", "--", "./prog", "--bcast=x", "a b"]
    copy = bcast.plan(parse(words))
    assert copy is not None
    assert copy.line.words() == ["-N2", "-J", "name", "--compress", "--", "/tmp/copy", "--bcast=x", "a b"]
    assert (copy.source, copy.target) == (f"{home}/./prog", "/tmp/copy")
    assert copy.command == (f"{home}/bin/sbcast", "--force", "--preserve", "--compress")


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--bcast"], {}),
        (["--bcast="], {}),
        (["--bcast=copy"], {}),
        (["--bcast=/tmp/"], {}),
        (["--bcast=/tmp/a\nb"], {}),
        (["--bcast=/tmp/copy", "--bcast"], {}),
        (["--bcast"], {"SLURM_BCAST": "/tmp/copy"}),
        ([], {"SLURM_BCAST": ""}),
        (["--export=NONE"], {"SLURM_BCAST": "/tmp/copy"}),
        ([], {"SLURM_BCAST": "/tmp/copy", "SLURM_EXPORT_ENV": "HOME"}),
        (["--bcast=/tmp/copy", "--send-libs"], {}),
        (["--bcast=/tmp/copy", "--bcast-exclude=/lib"], {}),
        (["--bcast=/tmp/copy"], {"SLURM_SEND_LIBS": "yes"}),
        (["--bcast=/tmp/copy", "-Mother"], {}),
        (["--bcast=/tmp/copy"], {"SLURM_CLUSTERS": "other"}),
        (["--bcast=/tmp/copy", "--het-group=1"], {}),
        (["--bcast=/tmp/copy"], {"SLURM_HET_SIZE": "2"}),
        (["--bcast=/tmp/copy", "./prog", ":"], {}),
        (["--bcast=/tmp/copy", "--multi-prog"], {}),
        (["--bcast=/tmp/copy"], {"SLURM_SRUN_MULTI": "1"}),
        (["--bcast=/tmp/copy"], {"PATH": "/nowhere"}),
        (["--bcast=/tmp/copy", "-D/nowhere"], {}),
    ],
)
def test_what_only_srun_can_do(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], env: dict[str, str]
) -> None:
    """A folder as the target, other clusters, libraries, several components, files of programs; no sbcast; no program."""
    monkeypatch.setattr(world, "env", {**world.env, **env})
    way = launch.choose(parse([*words, "./prog"]))
    assert not way.plain and not way.supervised and way.copy is None and "--bcast" in way.warning


def test_the_rest_is_supervised(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over the variable."""
    monkeypatch.setattr(world, "env", {**world.env, "SLURM_BCAST": "/tmp/variable"})
    for words, target in (([], "/tmp/variable"), (["--bcast=/tmp/a", "--bcast=/tmp/option"], "/tmp/option")):
        way = launch.choose(parse([*words, "--export=ALL,A=b", "./prog"]))
        assert way.supervised and way.copy is not None and way.copy.target == target
    assert launch.choose(parse(["--container=x", "./prog"])).copy is None


def test_compression() -> None:
    """What srun refuses or takes for none leaves it to the site, for sbcast as for srun."""
    for words, expected in (
        (["--compress"], ("--compress",)),
        (["--compress=lz4"], ("--compress=lz4",)),
        (["--compress=none"], ()),
        (["--compress=bad"], ()),
        ([], ()),
    ):
        assert bcast.compression(parse([*words, "x"])) == expected


def test_the_program_is_found_as_srun_finds_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In PATH before the working directory; what is in PATH need not be executable, by another name it must be."""
    (home / "bin" / "text").touch(0o644)
    (home / "text").touch(0o644)
    (home / "folder").mkdir()
    for command, found in (
        ("other", f"{home}/bin/other"),
        ("text", f"{home}/bin/text"),
        ("./text", ""),
        (f"{home}/text", ""),
        (f"{home}/prog", f"{home}/prog"),
        ("prog", f"{home}/prog"),
        ("bin/other", f"{home}/bin/other"),
        ("folder", ""),
        ("./folder", ""),
        ("none", ""),
        ("", ""),
    ):
        assert bcast.find(command, str(home)) == found, command
    monkeypatch.setattr(world, "env", {"PATH": "./bin::/nowhere"})
    assert bcast.find("other", str(home)) == f"{home}/./bin/other"
    monkeypatch.setattr(world, "env", {})
    assert bcast.find("prog", str(home)) == f"{home}/prog"
