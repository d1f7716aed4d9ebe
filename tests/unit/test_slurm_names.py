"""Under which name Slurm's programs are started and spoken of: what is on PATH decides, and the site's setting."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.testbed.other_names import SLURM, TIANHE
from tests.unit.test_messages import tool

from handwash import config, messages, run, slurm_names, world
from handwash.slurm_names import PROGRAMS

Site = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Puts programs of these names, and no others, on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(world, "env", {"PATH": str(folder)})

    def make(*names: str, setting: str | None = None) -> Path:
        for name in names:
            path = folder / name
            path.write_text('#!/bin/sh\necho "${0##*/} $*"\n')
            path.chmod(0o755)
        slurm_names.choose(setting)
        return folder

    yield make
    slurm_names.choose(None)


def called(*programs: str) -> list[str]:
    return [slurm_names.name(program) for program in programs]


USUAL = ("srun", "squeue", "sinfo", "scancel")


@pytest.mark.parametrize(
    ("there", "setting", "names"),
    [
        (USUAL, None, USUAL),
        (("yhrun", "yhqueue", "yhinfo", "yhcancel"), None, ("yhrun", "yhqueue", "yhinfo", "yhcancel")),
        # The short ones alone.
        (("yhrun", "yhq", "yhi", "yhcancel"), None, ("yhrun", "yhq", "yhi", "yhcancel")),
        # Both sets: Slurm's own, unless the site says otherwise.
        ((*USUAL, "yhrun", "yhqueue", "yhinfo", "yhcancel"), None, USUAL),
        ((*USUAL, "yhrun", "yhq", "yhi", "yhcancel"), "yh squeue=yhq sinfo=yhi", ("yhrun", "yhq", "yhi", "yhcancel")),
        # One by one, as each is there; one that is not here as the others would have it.
        (("srun", "yhqueue"), None, ("srun", "yhqueue", "yhinfo", "yhcancel")),
        (("yhrun",), None, ("yhrun", "yhqueue", "yhinfo", "yhcancel")),
        ((), None, USUAL),
        ((), "yh", ("yhrun", "yhqueue", "yhinfo", "yhcancel")),
        # A site with names of its own; a setting that is wrong takes nothing away.
        (
            ("run-it", "squeue", "jobs.stop"),
            "srun=run-it scancel=jobs.stop",
            ("run-it", "squeue", "sinfo", "jobs.stop"),
        ),
        (USUAL, "yh", USUAL),
        (("xrun", "xqueue", "yhinfo"), "x", ("xrun", "xqueue", "yhinfo", "xcancel")),
    ],
)
def test_the_names_here(site: Site, there: tuple[str, ...], setting: str | None, names: tuple[str, ...]) -> None:
    """What is started is what is said."""
    folder = site(*there, setting=setting)
    assert tuple(called(*USUAL)) == names
    for program, name in zip(USUAL, names):
        assert run.find(program) == (str(folder / name) if name in there else None)


def test_a_name_is_looked_for_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sentences there are; until the names are chosen anew, or PATH is another one."""
    folder = site("yhqueue")
    asked: list[str] = []
    real = world.on_path

    def on_path(program: str) -> str | None:
        asked.append(program)
        return real(program)

    monkeypatch.setattr(world, "on_path", on_path)
    assert messages._("no program of Slurm's") and asked == []
    for _ in range(9):
        assert messages._("squeue, srun, scancel") == "yhqueue, yhrun, yhcancel"
    assert len(asked) == len(set(asked)) > 0
    (folder / "squeue").symlink_to("yhqueue")
    slurm_names.choose("srun=run-it")
    assert messages._("squeue, srun") == "squeue, run-it"
    world.env["PATH"] = "/nonexistent"
    assert messages._("scancel") == "scancel"


def test_a_path_that_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sentence is said all the same, with the names that would be tried first; it is waited for once."""
    site("yhqueue", setting="srun=run-it")
    held = threading.Event()
    asked: list[str] = []

    def on_path(program: str) -> str | None:
        """As access(2) in a folder whose server is gone."""
        asked.append(program)
        held.wait()
        return None

    monkeypatch.setattr(world, "on_path", on_path)
    try:
        began = time.monotonic()
        for _ in range(9):
            assert messages._("squeue, srun, scancel") == "squeue, run-it, scancel"
        assert time.monotonic() - began < 5 and len(asked) == 1
    finally:
        held.set()


def test_a_program_of_slurms_is_started_by_its_name_here(site: Site) -> None:
    """It calls itself so where it complains. Others, and paths, are started as they are."""
    folder = site("yhqueue", "mine")
    assert run.run(["squeue", "--me"], timeout=10).out == b"yhqueue --me\n"
    assert run.run(["mine", "x"], timeout=10).out == b"mine x\n"
    assert run.run([str(folder / "yhqueue"), "x"], timeout=10).out == b"yhqueue x\n"
    with pytest.raises(FileNotFoundError):
        run.run(["sacct"], timeout=10)
    assert run.find("yhqueue") == str(folder / "yhqueue")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("  ", {}),
        ("yh", TIANHE),
        ("s", {program: program for program in SLURM}),
        ("srun=a sbatch=b-c", {"srun": "a", "sbatch": "b-c"}),
        # Whichever comes first.
        ("sinfo=yhi yh", {**TIANHE, "sinfo": "yhi"}),
        ("yhrun yhbatch", None),
        ("srun=", None),
        ("=a", None),
        ("srum=a", None),
        ("srun=/opt/a", None),
        ("srun=-a", None),
        ("-", None),
        ("srun={a}", None),
        ("srun=a\x1b[31m", None),
        ("天", None),
    ],
)
def test_the_setting(text: str, found: dict[str, str] | None) -> None:
    assert slurm_names.parse(text) == found


@given(st.text() | st.text(alphabet="srunyhbatch= -./"))
def test_a_setting_of_any_text_is_harmless(text: str) -> None:
    """It is understood or not; no name can be an option, a path, a placeholder or an escape sequence."""
    for program, name in (slurm_names.parse(text) or {}).items():
        assert program in SLURM and re.fullmatch(r"[A-Za-z0-9._+][A-Za-z0-9._+-]*", name)


def test_a_setting_that_cannot_be_used_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's stays in force."""
    (tmp_path / "handwash").mkdir()
    (tmp_path / "handwash" / "handwash.toml").write_text('slurm_names = "yh"')
    for value, name, complaints in (("x", "x", 0), ("a b", "yh", 1), ("", "yh", 0)):
        env = {"XDG_CONFIG_DIRS": str(tmp_path), "XDG_CONFIG_HOME": "/nonexistent", "HANDWASH_SLURM_NAMES": value}
        monkeypatch.setattr(world, "env", env)
        found = config.load()
        assert (found.slurm_names, len(found.complaints)) == (name, complaints)
    (tmp_path / "handwash" / "handwash.toml").write_text("slurm_names = ['yh']")
    monkeypatch.delitem(env, "HANDWASH_SLURM_NAMES")
    assert (config.load().slurm_names, len(config.load().complaints)) == (None, 1)


def test_every_name_is_known_for_what_it_is(site: Site) -> None:
    """Whatever is on PATH here: a program runs on another host, or is met in a script."""
    site(setting="srun=run-it")
    assert {slurm_names.own(name) for name in ("srun", "yhrun", "run-it")} == {"srun"}
    assert {slurm_names.own(name) for name in ("sinfo", "yhinfo", "yhi")} == {"sinfo"}
    assert {slurm_names.own(name) for name in ("squeue", "yhqueue", "yhq")} == {"squeue"}
    for other in ("python", "safe-srun", "yh", "yhx", "", "run"):
        assert slurm_names.own(other) == other
    # A name that the site gives to one program does not take it from another.
    slurm_names.choose("srun=sbatch")
    assert slurm_names.own("sbatch") == "sbatch"


# What a person reads

SENTENCES = [
    ("Try `squeue` yourself.", "Try `yhqueue` yourself."),
    ("srun's answer; squeue, sinfo.", "yhrun's answer; yhqueue, yhinfo."),
    ("用srun运行，再看squeue。", "用yhrun运行，再看yhqueue。"),
    ("sacct, not sacctmgr", "yhacct, not yhacctmgr"),
    ("scancel {job}", "yhcancel {job}"),
    # What is no program's name.
    ("safe-srun {srun} {srun!r} #SBATCH slurm.conf SLURM_JOB_ID", None),
    ("/usr/bin/srun job.sbatch sbatch.log my_srun srun2 srun-line srun/x slurmd", None),
]


@pytest.mark.parametrize(("sentence", "there"), SENTENCES)
def test_a_sentence(site: Site, sentence: str, there: str | None) -> None:
    site("yhqueue")
    assert slurm_names.here(sentence) == (there or sentence)
    assert messages._(sentence) == messages.ngettext(sentence, "", 1) == (there or sentence)


def test_with_slurms_own_names_nothing_changes(site: Site) -> None:
    site(*SLURM)
    for sentence, _there in SENTENCES:
        assert messages._(sentence) == sentence


FOREIGN = st.text() | st.text(alphabet=" .,:{}/-").flatmap(lambda edge: st.sampled_from(SLURM).map(lambda p: edge + p))


@given(FOREIGN)
@example("squeue: error: srun {job}")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_from_elsewhere_are_never_touched(site: Site, said: str) -> None:
    """They come into a sentence after that: a job's name, a path, what squeue has said."""
    site("yhqueue")
    sentence = messages._("squeue failed (exit code {code}): {said}")
    assert sentence.format(code=1, said=said) == f"yhqueue failed (exit code 1): {said}"


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_without_such_a_word_stays(site: Site, text: str) -> None:
    site("yhqueue")
    assert any(program in text for program in PROGRAMS) or slurm_names.here(text) == text


def test_every_sentence_of_the_catalogues(site: Site) -> None:
    """None keeps a name of Slurm's own, and each keeps its placeholders, in both languages."""
    site(*TIANHE.values())
    word = re.compile(rf"(?<!safe-)(?<![\w{{])(?:{'|'.join(SLURM)})(?![\w}}])", re.ASCII)
    changed = 0
    for message in tool.read(tool.catalogues()["zh_CN"], "zh_CN"):
        for text in (*tool._forms(message.id), *tool._forms(message.string)) if message.id else ():
            said = slurm_names.here(text)
            assert not word.search(said), said
            assert tool.placeholders(said) == tool.placeholders(text)
            assert said.count("safe-srun") == text.count("safe-srun")
            changed += said != text
    assert changed > 100
