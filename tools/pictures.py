"""The terminal pictures of the README, from a real run: `python tools/pictures.py` (root, Slurm, a C compiler).

It starts a throw-away cluster with a fake driver, lets a job leave its workers behind, runs `handwash`, `handwash doctor`
and `handwash clean` under a terminal, and writes what they print to docs/pictures/.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import pexpect
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.testbed import processes  # noqa: E402
from tests.testbed.cluster import Cluster  # noqa: E402
from tests.testbed.driver.fake import GIB, FakeDriver  # noqa: E402
from tests.testbed.processes import wait_until  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 124
WORKERS = 24
DEVICES = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
# A picture in a page loads nothing from elsewhere: the reader's own monospaced font will do.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def at_terminal(cluster: Cluster, argv: list[str], env: dict[str, str], answer: str = "") -> str:
    """What a command prints at a terminal of alice's, its answer to the one question included."""
    whole = {**cluster.env("alice"), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), **env}
    shell = pexpect.spawn(
        argv[0], argv[1:], env=whole, preexec_fn=cluster.become("alice"), encoding="utf-8", timeout=60,
        dimensions=(60, COLUMNS),
    )  # fmt: skip
    said = ""
    if answer:
        shell.expect(r"\[y/N\] ")
        said = shell.before + shell.after
        shell.sendline(answer)
    shell.expect(pexpect.EOF)
    shell.close()
    return said + shell.before


def draw(name: str, command: str, said: str) -> None:
    """One picture, with the prompt before it."""
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w"), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi(said.replace("\r\n", "\n").rstrip("\n")))
    PICTURES.mkdir(parents=True, exist_ok=True)
    console.save_svg(
        str(PICTURES / f"{name}.svg"), title=command, theme=MONOKAI, code_format=FORMAT, unique_id=f"handwash-{name}"
    )
    print(PICTURES / f"{name}.svg")


def leave_workers(cluster: Cluster) -> None:
    """A job that is over, with its main process dead and its workers alive."""
    home = cluster.home("alice")
    script, out = home / "train.py", home / "out"
    script.write_text((cluster.programs / "crowd.py").read_text())
    words = f"python3 {script} workers {WORKERS} {' '.join(DEVICES)}"
    line = f"setsid -f {words} </dev/null >{out} 2>/dev/null; until [ -s {out} ]; do :; done"
    cluster.run(["srun", "-J", "train", "--gres=gpu:2", "-w", "n1", "bash", "-c", line], user="alice", check=True)
    assert wait_until(lambda: not cluster.jobs(), 90)


def main() -> None:
    """Draws all three."""
    with tempfile.TemporaryDirectory(prefix="handwash-driver-") as folder, Cluster("linuxproc") as cluster:
        Path(folder).chmod(0o755)
        cluster.install_handwash(ROOT)
        driver = FakeDriver(folder).gpus(2, name="NVIDIA A100-SXM4-40GB", memory_total=40 * GIB, utilisation=3)
        driver.holders(GIB)
        try:
            cluster.run(["handwash", "install", "--shell", "bash"], user="alice", check=True)
            login = {"HANDWASH_SHOWN": "login1::1", "HOSTNAME": "login1"}
            become = "hostname login1; exec setpriv --reuid={0.pw_uid} --regid={0.pw_gid} --init-groups handwash doctor"
            entry = cluster.account("alice")
            whole = {**cluster.env("alice"), **login, "TERM": "xterm-256color"}
            child = pexpect.spawn(
                "unshare", ["--uts", "bash", "-c", become.format(entry)], env=whole, encoding="utf-8", timeout=60,
                cwd=entry.pw_dir, dimensions=(60, COLUMNS),
            )  # fmt: skip
            child.expect(pexpect.EOF)
            draw("doctor", "handwash doctor", child.before)
            child.close()
            leave_workers(cluster)
            step = ["srun", "--quiet", "-w", "n1", "--gres=gpu:1", "-J", "bash", "--pty"]
            draw("handwash", "handwash", at_terminal(cluster, [*step, "bash", "-c", "handwash; true"], driver.env()))
            draw("clean", "handwash clean", at_terminal(cluster, [*step, "handwash", "clean"], driver.env(), "y"))
        finally:
            processes.end_all(lambda: cluster.processes("alice"))
            cluster.clear()


if __name__ == "__main__":
    main()
