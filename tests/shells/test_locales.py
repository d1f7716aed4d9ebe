"""Each hook in the locales that people have: its words in the right language, nothing broken in one without UTF-8."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.shells.terminal import KINDS, Person

HOST = platform.node().split(".")[0]
ENGLISH = f"handwash: {HOST}: in job 7, on its compute node n2"
LINES = {
    "C": ENGLISH,
    "C.UTF-8": ENGLISH,
    "zh_CN.UTF-8": f"handwash：{HOST}：作业 7，在它的计算节点 n2 上",
}


@pytest.fixture(scope="session")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one, compiled: machines of other countries have no Chinese."""
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales/zh_CN").exists():
        pytest.skip("the sources of the C library's locales are not installed")
    folder = tmp_path_factory.mktemp("locales")
    subprocess.run(["localedef", "-i", "zh_CN", "-f", "UTF-8", str(folder / "zh_CN.UTF-8")], check=True)
    return folder


@pytest.mark.parametrize("locale", LINES)
@pytest.mark.parametrize("somebody", list(KINDS), indirect=True)
def test_a_session_in_a_locale(somebody: Person, locale: str, locales: Path) -> None:
    somebody.env.update(LC_ALL=locale, SLURM_JOB_ID="7", SLURMD_NODENAME="n2")
    if locale not in ("C", "C.UTF-8"):
        somebody.env["LOCPATH"] = str(locales)
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    terminal = somebody.shell()
    assert terminal.greeting.endswith(f"{LINES[locale]}\r\nthe rest\r\n")
    assert terminal.run("exit 4").strip() == ""
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
