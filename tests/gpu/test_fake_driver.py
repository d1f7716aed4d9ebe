"""The fake driver itself: other people's monitors run on it unchanged, and what a test says becomes true at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.gpu.asking import PREAMBLE, seen
from tests.testbed.driver.fake import GIB, FakeDriver


def monitor(name: str) -> str:
    """The path of a monitor, beside this interpreter or on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def output_of(command: list[str], driver: FakeDriver) -> str:
    env = {**os.environ, **driver.env(), "LC_ALL": "C.UTF-8", "COLUMNS": "120"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stderr
    assert "ERROR" not in done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def busy(fake_driver: FakeDriver) -> FakeDriver:
    fake_driver.gpus(2).gpu(1, name="NVIDIA H200", utilisation=37, memory_base=500 * 2**20, fan=30)
    return fake_driver.process(0, os.getpid(), 3 * GIB).mig(1, gi=1).process(1, os.getpid(), GIB, gi=1, ci=0)


def test_gpustat_runs_on_it(busy: FakeDriver) -> None:
    out = output_of([monitor("gpustat"), "--no-color", "-pcuF"], busy)
    assert "550.54.15" in out
    assert "3072 / 81920 MB" in out and f"/{os.getpid()}(3072M)" in out
    assert "NVIDIA H200" in out and "1524 / 81920 MB" in out


def test_nvitop_runs_on_it(busy: FakeDriver) -> None:
    out = output_of([monitor("nvitop"), "-1"], busy)
    assert "Driver Version: 550.54.15" in out and "CUDA Driver Version: 12.4" in out
    assert "3072MiB / 80.00GiB" in out and "GI/CI: 1/0" in out
    assert str(os.getpid()) in out


def test_memory_comes_back_when_the_process_ends(fake_driver: FakeDriver) -> None:
    holder = subprocess.Popen(["sleep", "100"])
    try:
        fake_driver.gpus(1, memory_base=2**20).process(0, holder.pid, GIB)
        assert seen(fake_driver.env())[0].memory_used == GIB + 2**20
        holder.kill()
        until = time.monotonic() + 10
        while Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < until
            time.sleep(0.01)
        (gpu,) = seen(fake_driver.env())  # it is a zombie now, and a zombie holds no GPU
        assert (gpu.memory_used, gpu.uses) == (2**20, ())
    finally:
        holder.kill()
        holder.wait()


def test_a_program_that_runs_sees_the_world_change(fake_driver: FakeDriver) -> None:
    code = (
        PREAMBLE
        + """
module = bindings.load()
module.nvmlInit()
for line in sys.stdin:
    try:
        print(module.nvmlDeviceGetCount(), flush=True)
    except module.NVMLError as error:
        print(error, flush=True)
"""
    )
    env = {**os.environ, **fake_driver.env()}
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None

        def count() -> str:
            assert program.stdin is not None and program.stdout is not None
            print("again", file=program.stdin, flush=True)
            return program.stdout.readline().strip()

        assert count() == "0"
        fake_driver.gpus(3)
        assert count() == "3"
        fake_driver.fault("nvmlDeviceGetCount_v2", "GPU_IS_LOST", after=1, count=2)
        assert [count() for _ in range(4)] == ["3", "GPU is lost", "GPU is lost", "3"]
        fake_driver.heal().gpus(1)
        assert count() == "1"
        program.stdin.close()
