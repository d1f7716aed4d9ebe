"""What is not loaded where every login, exit and task would pay for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.test_front_door import MAIN, World
from tests.contract.test_front_door import world as world
from tests.testbed.driver.fake import GIB, FakeDriver

from handwash.node.wire import Orders

PACKAGE = MAIN.parent
# Each costs several bare interpreter starts.
HEAVY = {"psutil", "pynvml", "platformdirs", "rich", "shellingham", "tomli", "ctypes", "subprocess", "json", "argparse"}


def loaded(argv: list[str], env: dict[str, str]) -> set[str]:
    """The top packages that this program of ours imports itself, children left aside: those have no standard error."""
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", done.stderr, re.MULTILINE)
    assert len(names) > 5, done.stderr
    return {name.partition(".")[0] for name in names}


# As the hook starts it; and as a person does, with every package of the installation within reach.
@pytest.mark.parametrize("options", [["-I", "-S"], ["-I"]], ids=" ".join)
@pytest.mark.parametrize("words", [["banner"], ["leave", "exit"], ["leave", "hup"], ["check"], ["where"]], ids=" ".join)
def test_on_the_way_to_the_banner_and_out(
    world: World, fake_driver: FakeDriver, options: list[str], words: list[str]
) -> None:
    """With jobs in the queue and GPUs here, and nothing left over."""
    world.jobs()
    env = {**world.env, **fake_driver.gpus(2, memory_total=40 * GIB).env()}
    found = loaded([sys.executable, *options, "-X", "importtime", str(MAIN), *words], env)
    assert "handwash" in found and not found & HEAVY
    if "-S" in options:
        # Or they could be had after all.
        assert "site" not in found


@pytest.mark.parametrize("words", [["banner"], ["leave", "exit"], ["check"]], ids=" ".join)
def test_nor_in_a_look(world: World, fake_driver: FakeDriver, words: list[str]) -> None:
    """Each look is a process of its own, and all are waited for; the driver's bindings are that of the GPUs' alone."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    world.jobs()
    env = {**world.env, **fake_driver.gpus(2, memory_total=40 * GIB).env(), "HANDWASH_DEADLINE": "20"}
    trace = world.folder / "trace"
    # strace itself must not find the test's stand-ins first.
    argv = [
        strace,
        "-f",
        "-qq",
        "-e",
        "trace=open,openat",
        "-o",
        str(trace),
        sys.executable,
        "-I",
        "-S",
        str(MAIN),
        *words,
    ]
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 0
    opened = re.findall(
        r'^(\d+) +open(?:at)?\(.*?"[^"]*/site-packages/(?:__pycache__/)?(\w+)', trace.read_text(), re.MULTILINE
    )
    assert {name for _pid, name in opened} == {"pynvml"}, opened
    first = trace.read_text().split()[0]
    assert len({pid for pid, _name in opened}) == 1 and first not in dict(opened)


def test_in_a_task(tmp_path: Path) -> None:
    """The supervisors and their guardian, with something to end, in a session that lives long enough to load for that."""
    orders = Orders("20260101-000000-0123456789ab", 0.5, str(tmp_path), {}).pack()
    script = "/bin/sleep 60 >/dev/null 2>&1 & /bin/sleep 1.2"
    argv = [sys.executable, "-I", "-S", "-X", "importtime", str(PACKAGE / "node" / "task.py"), orders]
    found = loaded([*argv, "/bin/sh", "-c", script], {"HOME": str(tmp_path), "PATH": os.defpath})
    assert "handwash" in found and not found & {*HEAVY, "site"}


def test_in_safe_srun(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", "-X", "importtime", str(PACKAGE / "srun" / "entry.py")]
    script = "/bin/sleep 60 >/dev/null 2>&1 & exit 0"
    found = loaded([*argv, "--local", "/bin/sh", "-c", script], {"HOME": str(tmp_path), "PATH": os.defpath})
    assert "handwash" in found and not found & {*HEAVY, "site"}
