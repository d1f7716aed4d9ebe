"""GPUs that do nothing while a safe-srun session runs: one line on its terminal, from the nodes' own looks, and no harm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from tests.testbed import processes
from tests.testbed.cluster import Cluster
from tests.testbed.driver.fake import FakeDriver
from tests.testbed.processes import wait_until

pytestmark = pytest.mark.usefixtures("handwash_venv")

QUIET = ",".join(["0"] * 60)
# Seconds of `idle_after`, which also time the looks.
AFTER = 1.2
LINE = (
    r"handwash: job (\d+): 1 GPU \(n1: 0\) has done nothing for the last \d+ s, and was not seen busy since \d\d:\d\d; "
)
RECEIPT = "handwash: job [0-9]+: nothing was left running; the job has left the queue"


@contextmanager
def at_terminal(
    cluster: Cluster, driver: FakeDriver, *words: str, behind: str = 'exec "$@"', **env: str
) -> Iterator[pexpect.spawn]:
    """safe-srun at a terminal of alice's, started by a shell's script."""
    everything = {
        **cluster.env("alice"), **driver.env(), "HANDWASH_LANG": "en", "HANDWASH_IDLE_AFTER": str(AFTER / 60), **env,
    }  # fmt: skip
    argv = ["-c", behind, "sh", "safe-srun", "-w", "n1", *words]
    become = cluster.become("alice")
    child = pexpect.spawn(
        "/bin/sh", argv, env=everything, preexec_fn=become, timeout=30, encoding="utf-8", dimensions=(30, 200)
    )
    try:
        yield child
    finally:
        child.close(force=True)


def looking(cluster: Cluster) -> list[int]:
    return [pid for pid in cluster.processes("alice") if "idle-look" in processes.arguments(pid)]


def looks_of(cluster: Cluster) -> list[str]:
    """What the guardians have written of idle GPUs."""
    folder = Path(cluster.home("alice")) / ".local" / "state" / "handwash" / "sessions"
    texts = []
    for path in folder.glob("*.part"):
        try:
            texts += [line for line in path.read_text().splitlines() if line.startswith("idle\t")]
        except OSError:
            pass
    return texts


def until_over(folder: Path) -> str:
    """A command that does nothing until the test says that it is over."""
    os.mkfifo(folder / "over")
    (folder / "over").chmod(0o666)
    return f"read -r word <{folder}/over"


def is_over(folder: Path) -> None:
    (folder / "over").write_text("yes\n")


def test_one_line_and_a_clean_end(cluster: Cluster, fake_driver: FakeDriver) -> None:
    """Under each kind of process tracking; once, however many looks follow; nothing of the looks is left or counted."""
    driver = fake_driver.gpus(2, samples=QUIET)
    wait = until_over(driver.directory)
    with at_terminal(cluster, driver, "--gres=gpu:1", "sh", "-c", wait) as child:
        child.expect(LINE)
        job = child.match.group(1)
        child.expect_exact(f"each hour costs 1 GPU-hour; to end the job: scancel {job}\r\n")
        # Another look that finds the same says nothing.
        assert wait_until(lambda: looking(cluster), 30) and wait_until(lambda: not looking(cluster), 30)
        is_over(driver.directory)
        child.expect(RECEIPT)
        assert "done nothing" not in child.before
        child.expect(pexpect.EOF)
        child.wait()
    assert child.exitstatus == 0 and not looking(cluster)


def test_busy_then_idle_then_busy(any_cluster: Cluster, fake_driver: FakeDriver) -> None:
    """Nothing while there is work; what was said is taken back where the nodes' words are kept, for the next stretch."""
    driver = fake_driver.gpus(2, samples=f"{QUIET},80")
    with at_terminal(any_cluster, driver, "--gres=gpu:1", "sh", "-c", until_over(driver.directory)) as child:
        assert wait_until(lambda: looking(any_cluster), 30) and wait_until(lambda: not looking(any_cluster), 30)
        assert looks_of(any_cluster) == []
        driver.gpus(2, samples=QUIET)
        child.expect(LINE)
        assert "done nothing" not in child.before and len(looks_of(any_cluster)) == 1
        driver.gpus(2, samples=f"{QUIET},80")
        assert wait_until(lambda: looks_of(any_cluster) == [], 60)
        is_over(driver.directory)
        child.expect(pexpect.EOF)
        assert "done nothing" not in child.before


@pytest.mark.parametrize("why", ["quiet", "pty", "no gpu", "no terminal", "MIG", "no driver", "hangs"])
def test_where_nothing_is_said(any_cluster: Cluster, fake_driver: FakeDriver, why: str) -> None:
    """Nobody to tell, or nothing that could be told: no line; where no look can help, there is none, or no second one."""
    # A look takes long enough to be seen.
    driver = fake_driver.gpus(2, samples=QUIET).delay("nvmlInitWithFlags", 0.5)
    wait = until_over(driver.directory)
    words = [] if why == "no gpu" else ["--gres=gpu:1"]
    words += {"quiet": ["--quiet"], "pty": ["--pty"]}.get(why, [])
    env = {"HANDWASH_DEADLINE": "1"} if why == "hangs" else {}
    if why == "MIG":
        driver.mig(0, gi=1)
    elif why == "no driver":
        driver.fault("nvmlInitWithFlags", "DRIVER_NOT_LOADED")
    elif why == "hangs":
        driver.heal().delay("nvmlInitWithFlags", "forever")
    behind = '"$@" 2>/dev/null' if why == "no terminal" else 'exec "$@"'
    with at_terminal(any_cluster, driver, *words, "sh", "-c", wait, behind=behind, **env) as child:
        looked = why in ("MIG", "no driver", "hangs")
        if looked:
            assert wait_until(lambda: looking(any_cluster), 30) and wait_until(lambda: not looking(any_cluster), 30)
        assert not wait_until(lambda: looking(any_cluster), 4 * AFTER, 0.05)
        is_over(driver.directory)
        child.expect(pexpect.EOF)
        assert "done nothing" not in child.before, child.before


def test_the_end_in_the_middle_of_a_look(cluster: Cluster, fake_driver: FakeDriver) -> None:
    """It is interrupted, and so is what it has started: the session ends as soon as it would have."""
    driver = fake_driver.gpus(2, samples=QUIET).delay("nvmlInitWithFlags", "20")
    wait = until_over(driver.directory)
    with at_terminal(cluster, driver, "--gres=gpu:1", "sh", "-c", wait, HANDWASH_DEADLINE="60") as child:
        assert wait_until(lambda: len(looking(cluster)) > 1, 30)
        is_over(driver.directory)
        child.expect(RECEIPT, timeout=10)
        child.expect(pexpect.EOF)
        assert wait_until(lambda: not looking(cluster), 5)


def test_a_check_beside_a_look(any_cluster: Cluster, fake_driver: FakeDriver) -> None:
    """The look is handwash's own, never somebody's leftover."""
    driver = fake_driver.gpus(2, samples=QUIET).delay("nvmlInitWithFlags", "3")
    with at_terminal(any_cluster, driver, "--gres=gpu:1", "sh", "-c", until_over(driver.directory)) as child:
        assert wait_until(lambda: looking(any_cluster), 30)
        first = min(looking(any_cluster))
        done = any_cluster.run(["handwash", "check", "--json"], user="alice")
        assert f'"pid": {first},' not in done.stdout and re.search(r'"verdict": "(clean|unknown)"', done.stdout), done
        is_over(driver.directory)
        child.expect(pexpect.EOF)
