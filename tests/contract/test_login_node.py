"""Work on a login node over the site's limits: named in the banner, by check and at exit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.contract.test_front_door import MAIN, World, until
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


def test_over_the_limit_of_cores(world: World, tmp_path: Path) -> None:
    """One that computes is named, one that sleeps is not. In a copy that asks for less CPU time before it believes it."""
    limits = copy_of_handwash(tmp_path) / "limits.py"
    text = limits.read_text()
    limits.write_text(text.replace("login_cpu_s: float = 60.0", "login_cpu_s: float = 0.3"))
    assert limits.read_text() != text
    main = str(limits.with_name("__main__.py"))
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, start_new_session=True)
        for code in ("while True: pass", "import time; time.sleep(60)")
    ]
    busy, asleep = children
    # Others on this machine may compute too; these limits are far above what a test of theirs needs in memory and threads.
    env = {**world.env, "HANDWASH_ON_EXIT": "warn", "HANDWASH_LOGIN_MEMORY": "4000", "HANDWASH_LOGIN_THREADS": "4000"}

    def said(*words: str, cores: str) -> str:
        done = subprocess.run(
            [sys.executable, "-I", "-S", main, *words], env={**env, "HANDWASH_LOGIN_CORES": cores},
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=30,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    try:
        until(lambda: str(busy.pid) in said("check", cores="0.2"))
        for words in (["check"], ["banner"], ["leave", "exit"]):
            (line,) = [line for line in said(*words, cores="0.2").splitlines() if SAID in line]
            assert "cores kept busy, 0.2 are allowed: " in line and f"{busy.pid} " in line, (words, line)
            assert str(asleep.pid) not in line
        assert SAID not in said("check", cores="500")
    finally:
        for child in children:
            child.kill()
            child.wait()


def copy_of_handwash(folder: Path) -> Path:
    """The package, in this folder."""
    place = folder / "copy" / "handwash"
    shutil.copytree(MAIN.parent, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


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
            assert world.json("clean", "--dry-run")[1].get("would_end", []) == []
            assert world.json("clean", "--yes")[1]["ended"] == [] and worker.poll() is None
        finally:
            worker.kill()
