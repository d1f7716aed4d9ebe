"""Settings: which one wins, and that no mistake in a file or a variable costs more than one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handwash import config, paths, world
from handwash.config import Config


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the site's and the person's file; answers the settings under an environment."""

    def load(site: str | bytes | None = None, own: str | bytes | None = None, **env: str) -> Config:
        for folder, content in (("site", site), ("own", own)):
            path = tmp_path / folder / "handwash" / "handwash.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        places = {"XDG_CONFIG_DIRS": str(tmp_path / "site"), "XDG_CONFIG_HOME": str(tmp_path / "own")}
        monkeypatch.setattr(world, "env", {**places, **env})
        return config.load()

    return load


def test_nothing_is_set(files) -> None:
    """The defaults of the contract."""
    assert files() == Config(False, "full", "ask", 3.0, 5.0, None, ())


def test_the_later_one_wins(files) -> None:
    """Site, then person, then environment."""
    site = 'banner = "off"\ndeadline = 1\ngrace = 2.5\non_exit = "warn"'
    own = 'deadline = 2\non_exit = "clean"'
    found = files(site, own, HANDWASH_ON_EXIT="off", HANDWASH_LANG="zh_CN")
    assert found == Config(False, "off", "off", 2.0, 2.5, "zh_CN", ())


def test_a_file_by_name(files, tmp_path: Path) -> None:
    """HANDWASH_CONFIG takes the place of the person's file, and has to exist."""
    other = tmp_path / "other.toml"
    other.write_text("grace = 9")
    assert files(own="grace = 1", HANDWASH_CONFIG=str(other)).grace == 9
    missing = files(HANDWASH_CONFIG=str(tmp_path / "none.toml"))
    assert len(missing.complaints) == 1 and "none.toml" in missing.complaints[0]


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("deadline = 'soon'", 1),
        ("deadline = -1", 1),
        ("deadline = 0", 1),
        ("deadline = nan", 1),
        ("deadline = inf", 1),
        ("deadline = true", 1),
        ("deadline = 1" + "0" * 400, 1),
        ("deadline = [3]", 1),
        ("grace = -0.1", 1),
        ("login_cores = 0", 1),
        ("login_memory = 'much'", 1),
        ("login_threads = -4", 1),
        ("idle_after = 'never'", 1),
        ("idle_after = -1", 1),
        ("banner = 'loud'", 1),
        ("banner = ['full']", 1),
        ("on_exit = 'never'\nbanner = 'x'", 2),
        ("disable = 'yes'", 1),
        ("lang = 5", 1),
        ("colour = 'red'", 1),
        ("[section]\nx = 1", 1),
        ("banner = ", 1),
        ("\x00", 1),
        ("a = " + "[" * 100_000, 1),
        ("#" * 300_000, 1),
        (b"\xff\xfe", 1),
        ("", 0),
        ("# nothing\n", 0),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_mistake_costs_a_line(files, text: str | bytes, complaints: int) -> None:
    """The setting before stays in force, each mistake is told once."""
    found = files(own=text)
    assert len(found.complaints) == complaints
    assert found == Config(complaints=found.complaints)


def test_a_folder_in_place_of_a_file(files, tmp_path: Path) -> None:
    """A file that cannot be read is told, not stumbled over."""
    found = files(HANDWASH_CONFIG=str(tmp_path))
    assert len(found.complaints) == 1 and found == Config(complaints=found.complaints)


def test_one_mistake_leaves_the_rest(files) -> None:
    """Good settings beside a bad one are taken."""
    found = files(own='banner = "loud"\ngrace = 7')
    assert (found.banner, found.grace, len(found.complaints)) == ("full", 7.0, 1)


@pytest.mark.parametrize(
    ("text", "disabled"), [("1", True), ("yes", True), ("0", False), ("false", False), ("no", False), ("", False)]
)
def test_disabled(files, text: str, disabled: bool) -> None:
    """Set means disabled, except for a plain no. Set and empty, the file decides."""
    assert files(HANDWASH_DISABLE=text).disable is disabled
    assert files(site="disable = true", HANDWASH_DISABLE=text).disable is (disabled or not text)


def test_disabled_by_the_site_enabled_by_the_person(files) -> None:
    """The environment can say no to the site's yes."""
    assert files(site="disable = true").disable
    assert not files(site="disable = true", HANDWASH_DISABLE="0").disable


variables = st.sampled_from(
    ["BANNER", "ON_EXIT", "DEADLINE", "GRACE", "LANG", "DISABLE", "IDLE_AFTER", "SCHEDULER", "SLURM_NAMES"]
)
# What an environment can hold: any bytes but NUL, decoded as Python does it.
values = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))


@given(st.dictionaries(variables, values))
@example({"DEADLINE": "1e400", "GRACE": "٣"})
@example({"DEADLINE": "\udcff"})
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_environment(files, chosen: dict[str, str]) -> None:
    """Whatever the variables hold: usable settings."""
    found = files(**{f"HANDWASH_{name}": value for name, value in chosen.items()})
    assert found.banner in config.BANNERS and found.on_exit in config.ON_EXIT
    assert 0.1 <= found.deadline <= 600 and 0 <= found.grace <= 600 and 0 <= found.idle_after <= 1e6


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
@example(10**400)
@example(-(10**400))
@example("3")
def test_any_value(value: Any) -> None:
    """Any value for any setting is taken, or complained about and changes nothing."""
    names = ("disable", "banner", "on_exit", "deadline", "grace", "lang", "scheduler", "slurm_names", "other")
    for name in names:
        found = config._with_value(Config(), name, value, "here")
        if found.complaints:
            assert config.replace(found, complaints=()) == Config()
        else:
            taken = getattr(found, name)
            assert taken == value or (name in ("deadline", "grace") and taken == float(value))


def test_the_file_has_the_name_of_the_contract() -> None:
    """handwash.toml."""
    assert paths.user_config_file().endswith("/handwash/handwash.toml")


def test_the_login_nodes_limits(files) -> None:
    """The site's, in cores, GiB and threads; the judge gets bytes."""
    found = files("login_cores = 2\nlogin_memory = 16", HANDWASH_LOGIN_THREADS="64").policy
    assert (found.login_cores, found.login_memory, found.login_threads) == (2.0, 16.0 * 1024**3, 64)


def test_how_long_a_gpu_may_do_nothing(files) -> None:
    """In minutes; none at all is a choice too."""
    assert (files().idle_after, files("idle_after = 2.5").idle_after) == (10.0, 2.5)
    assert files("idle_after = 30", HANDWASH_IDLE_AFTER="0").idle_after == 0


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("auto", ""),
        ("slurm", "slurm"),
        ("pbs", "pbs"),
        ("a_site.of_ours", "a_site.of_ours"),
        ("a site", None),
        ("", None),
    ],
)
def test_the_scheduler(files, text: str, taken: str | None) -> None:
    """A name of ours, or what can be the name of a module."""
    found = files(own=f'scheduler = "{text}"')
    assert found.scheduler == (taken or "") and (taken is None) == bool(found.complaints)
