"""Work on a login node over the site's limits: named in the banner, by check and at exit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.contract.test_front_door import World, until
from tests.contract.test_front_door import world as world

COMPLETING = Path(__file__).parent / "slurm" / "completing.txt"
SAID = "Over this login node's limits: "


def test_over_the_limits(world: World) -> None:
    """Memory and threads, thresholds from the site's file; a process within them is not named."""
    site = world.folder / "etc" / "handwash" / "handwash.toml"
    site.parent.mkdir(parents=True)
    code = (
        "import time, threading\n"
        "held = bytearray(300 << 20)\n"
        "for _ in range(50): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(1, flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.stdout and child.stdout.readline()
        for text, words in (
            ("login_memory = 0.25\nlogin_threads = 4000", "of memory, 256 MiB are allowed"),
            ("login_memory = 4000\nlogin_threads = 40", "threads, 40 are allowed"),
        ):
            site.write_text(text + "\nlogin_cores = 1000\n")
            for command in ("banner", "check", "leave exit"):
                _code, out, err = world.run(*command.split(), env={"HANDWASH_ON_EXIT": "warn"})
                assert SAID in out + err and words in out + err and str(child.pid) in out + err, (command, out, err)
            code_, answer = world.json("check")
            assert (
                code_ == 1
                and answer["over_limits"]
                and child.pid in [one["pid"] for one in answer["processes"]["items"] if one["leftover"]]
            )
        site.write_text("login_memory = 4000\nlogin_threads = 4000\nlogin_cores = 1000\n")
        until(lambda: SAID not in world.run("check")[1])
        assert world.json("check")[1]["over_limits"] == []
    finally:
        child.kill()
        child.wait()


def test_a_job_that_is_on_its_way_out(world: World) -> None:
    """In state CG with its program alive: said so, never called gone, and nothing of it is ended."""
    world.script("squeue", f"exec /bin/cat {COMPLETING}")
    inside = {"SLURM_JOB_ID": "21", "SLURMD_NODENAME": "n1"}
    with subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL, env=inside, start_new_session=True) as worker:
        try:
            assert "21 COMPLETING" in world.run("check")[1]
            code, answer = world.json("check")
            (item,) = [one for one in answer["processes"]["items"] if one["pid"] == worker.pid]
            assert (code, item["whose"], item["leftover"]) == (0, "living-job", False)
            assert world.json("clean", "--yes")[1]["ended"] == [] and worker.poll() is None
        finally:
            worker.kill()
