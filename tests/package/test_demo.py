"""The demo of `make demo`: it shows what it says, on a cluster and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[1] / "testbed" / "demo.py"


def demo(*words: str) -> str:
    """What it shows. It ends with another code than 0 where anything that it claims was not so."""
    done = subprocess.run(
        [sys.executable, str(DEMO), *words],
        env={**os.environ, "HANDWASH_LANG": "en"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_scheduler() -> None:
    shown = demo("--local")
    assert "yes: 5 of 5 processes live on" in shown
    assert "yes: 0 of 5 processes live on" in shown
    assert "NO:" not in shown
    assert "\x1b" not in shown  # no terminal, no colour


def test_on_a_cluster() -> None:
    shown = demo()
    if "No Slurm cluster can be started here" in shown:
        pytest.skip(shown.strip().splitlines()[0])
    banner, plain, safe = (shown.partition(f"== {number}. ")[2].partition("\n== ")[0] for number in (1, 2, 3))
    assert "compute node, inside your job" in banner
    assert "its job is still RUNNING" in plain and "yes: 5 of 5 processes live on" in plain
    assert "yes: 0 of 5 processes live on" in safe and "yes: the queue is empty" in safe
    assert "the job has left the queue" in safe  # the receipt
    assert "NO:" not in shown
