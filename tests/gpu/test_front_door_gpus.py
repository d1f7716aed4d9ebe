"""`handwash status` as a person starts it, on real processes that hold device files, with the real nvidia-ml-py over the
fake driver: what it says of each GPU, and what it still says when the driver does not answer."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.testbed import machine, processes
from tests.testbed.driver.fake import GIB, V3_LISTS, FakeDriver
from tests.testbed.processes import Identity, identity, wait_until

PROGRAMS = Path(__file__).parents[1] / "testbed" / "programs"
ALICE, BOB = 61101, 61102  # numbers without an account: nothing else of theirs runs here
DEVICES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm")
DEAD = 4194303


def own_proc(hidepid: int) -> list[str]:
    """A /proc of the program's own, which hides other people's processes or does not, however this machine's is mounted."""
    mount = f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$@"'
    return ["/usr/bin/unshare", "--mount", "/usr/bin/env", "PATH=/usr/bin:/bin", "/bin/sh", "-c", mount, "sh"]


class Node:
    """A machine with four GPUs' device files, on which two people run programs, and one asks."""

    def __init__(self, driver: FakeDriver, venv: Path, folder: Path) -> None:
        self.driver = driver
        self.python = venv / "bin" / "python"
        self.command = venv / "bin" / "handwash"
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.seen: list[Identity] = []

    def hold(self, *devices: str, uid: int = ALICE) -> int:
        """A program with these files open."""
        code = (PROGRAMS / "hold_gpu.py").read_text()
        child = self.start([str(self.python), "-I", "-S", "-c", code, *(devices or DEVICES)], uid)
        assert child.stdout is not None
        assert child.stdout.readline()
        return child.pid

    def start(self, argv: list[str], uid: int) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            argv, user=uid, group=uid, extra_groups=[], cwd="/", env={}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.started.append(child)
        return child

    def run(self, *words: str, prefix: Sequence[str] = (), **env: str) -> subprocess.CompletedProcess[str]:
        everything = {
            "PATH": str(self.folder),  # no scheduler
            "HANDWASH_LANG": "en",
            "HANDWASH_DEADLINE": "20",
            "XDG_STATE_HOME": str(self.folder / "state"),
            **self.driver.env(),
            **env,
        }
        set_person = ["/usr/bin/setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"]
        # The environment goes to handwash alone: the programs before it need a PATH.
        mine = ["/usr/bin/env", f"PATH={self.folder}", str(self.command), *words]
        argv = [*(prefix or own_proc(0)), *set_person, *mine]
        return subprocess.run(argv, env=everything, cwd="/", capture_output=True, text=True, timeout=60)

    def status(self, prefix: Sequence[str] = (), **env: str) -> tuple[int, dict[str, Any]]:
        done = self.run("status", "--json", prefix=prefix, **env)
        assert done.stderr == ""
        answer: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer

    def text(self, **env: str) -> str:
        done = self.run("status", **env)
        assert done.stderr == ""
        return " ".join(done.stdout.split())


@pytest.fixture
def node(fake_driver: FakeDriver, handwash_venv: Path, tmp_path: Path) -> Iterator[Node]:
    if subprocess.run([*own_proc(0), "true"], capture_output=True).returncode:
        pytest.skip("no permission for a mount namespace, so no /proc of which we know whom it hides")
    folder = fake_driver.directory / "empty"
    folder.mkdir(mode=0o755)
    try:
        with machine.fake_devices():
            made = Node(fake_driver.gpus(2), handwash_venv, folder)
            try:
                yield made
            finally:
                for who in made.seen:
                    processes.send(who, 9)
                for child in made.started:
                    child.kill()
                    child.wait()
                    if child.stdout is not None:
                        child.stdout.close()
    except machine.Unavailable as missing:
        pytest.skip(str(missing))


def holders(answer: dict[str, Any], gpu: int = 0) -> dict[int, tuple[str, str, str | None]]:
    return {one["pid"]: (one["by"], one["word"], one["user"]) for one in answer["gpus"]["items"][gpu]["holders"]}


def test_who_is_on_each_gpu(node: Node) -> None:
    mine, loader, theirs = node.hold(), node.hold(), node.hold(uid=BOB)
    monitor = node.hold("/dev/nvidia0", "/dev/nvidiactl")
    node.driver.process(0, mine, 3 * GIB).process(0, theirs, GIB).process(1, DEAD, 2 * GIB, ghost=True)
    code, answer = node.status()
    assert code == 1 and answer["verdict"] == "leftover"
    assert holders(answer) == {
        mine: ("both", "", str(ALICE)),
        theirs: ("driver", "", str(BOB)),
        loader: ("files", "unlisted", str(ALICE)),
        monitor: ("files", "monitor", str(ALICE)),
    }
    assert holders(answer, 1) == {
        DEAD: ("driver", "dead", None),
        mine: ("files", "elsewhere", str(ALICE)),
        loader: ("files", "unlisted", str(ALICE)),
    }
    rows = {one["pid"]: one for one in answer["processes"]["items"]}
    assert rows[theirs]["whose"] == "other-user" and not rows[theirs]["leftover"]
    assert rows[mine]["gpus"] == [0, 1] and rows[mine]["leftover"] and rows[loader]["leftover"]
    assert {"user", "command", "started", "cpu_s", "job", "session", "whose", "state", "ppid"} <= set(rows[mine])
    text = node.text()
    assert f"{mine} hold_gpu" in text or f"{mine} python" in text
    assert f"the driver lists a process that is dead ({DEAD})" in text
    assert "1 holds its device file open and is not in the driver's list" in text
    assert "3.0 GiB" in text and "CPU time" in text


def test_a_notebook_s_kernel_is_named_as_one(node: Node) -> None:
    """Forgotten, on a GPU that it does not use: in the table, in the GPU's line, and in the reason."""
    modules = node.driver.directory / "modules"
    modules.mkdir(mode=0o755)
    (modules / "ipykernel_launcher.py").write_text((PROGRAMS / "hold_gpu.py").read_text())
    words = [str(node.python), "-m", "ipykernel_launcher", *DEVICES]
    kernel = node.start(["/usr/bin/env", f"PYTHONPATH={modules}", *words], ALICE)
    assert kernel.stdout is not None and kernel.stdout.readline()
    node.driver.process(0, kernel.pid, GIB)
    code, answer = node.status()
    (row,) = [one for one in answer["processes"]["items"] if one["pid"] == kernel.pid]
    assert code == 1 and row["leftover"] and row["why"].startswith("A notebook's kernel. It holds a GPU")
    text = node.text()
    assert f"{kernel.pid} ipykernel_launcher ({ALICE}, a notebook's kernel)" in text
    assert re.search(rf"{kernel.pid} {ALICE} .*ipykernel_launcher .* \(a notebook's kernel\) 0,1 1.0 GiB", text)


def test_126_loaders_that_hold_every_file_while_the_driver_lists_the_dead(node: Node) -> None:
    node.driver.gpus(4)
    for number in range(4):
        node.driver.process(number, DEAD - number, GIB, ghost=True)
    every = (*(f"/dev/nvidia{number}" for number in range(4)), "/dev/nvidia-uvm", "/dev/nvidiactl")
    code = (PROGRAMS / "crowd.py").read_text()
    child = node.start([str(node.python), "-I", "-S", "-c", code, "workers", "126", *every], ALICE)
    assert child.stdout is not None
    pids = {int(word) for word in child.stdout.readline().split()[1:]}
    node.seen += [who for who in map(identity, pids) if who]
    child.wait()
    assert len(pids) == len(node.seen) == 126
    status, answer = node.status()
    assert status == 1
    for number in range(4):
        found = holders(answer, number)
        assert {pid for pid, told in found.items() if told == ("files", "unlisted", str(ALICE))} == pids
        assert found[DEAD - number] == ("driver", "dead", None)
    left = {one["pid"] for one in answer["processes"]["items"] if one["leftover"]}
    assert left == pids
    assert "126 hold its device file open and are not in the driver's list" in node.text()


def test_a_zombie_in_the_driver_s_list_holds_no_gpu(node: Node) -> None:
    code = "import os, time\nif os.fork(): print(1, flush=True); time.sleep(100)"
    child = node.start([str(node.python), "-I", "-S", "-c", code], ALICE)
    assert child.stdout is not None and child.stdout.readline()
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    (zombie,) = map(int, children)
    assert wait_until(lambda: Path(f"/proc/{zombie}/stat").read_text().rpartition(")")[2].split()[0] == "Z", 10)
    node.driver.process(0, zombie, GIB, ghost=True)
    _code, answer = node.status()
    assert holders(answer) == {zombie: ("driver", "zombie", str(ALICE))}
    (row,) = [one for one in answer["processes"]["items"] if one["pid"] == zombie]
    assert (row["state"], row["ppid"], row["leftover"]) == ("Z", child.pid, False)


def test_another_person_s_process_that_proc_hides(node: Node) -> None:
    theirs = node.hold(uid=BOB)
    code = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(1, flush=True); time.sleep(100)"
    own = node.start([str(node.python), "-I", "-S", "-c", code], ALICE)  # not dumpable: PR_SET_DUMPABLE
    assert own.stdout is not None and own.stdout.readline()
    for pid in (theirs, own.pid, DEAD):
        node.driver.process(0, pid, GIB, ghost=True)
    for hidepid, user in ((2, None), (1, str(BOB))):
        _code, answer = node.status(prefix=own_proc(hidepid))
        found = holders(answer)
        assert found.pop(own.pid) == ("driver", "hidden", str(ALICE))
        assert found == {theirs: ("driver", "hidden", user), DEAD: ("driver", "dead", None)}
    assert theirs not in {one["pid"] for one in answer["processes"]["items"]}


def test_in_a_container_the_driver_s_numbers_are_nobody_s_and_the_files_decide(node: Node) -> None:
    # In the namespace the holder has a small number; the driver says the host's, which means another process there.
    node.driver.process(0, 1, GIB, ghost=True).process(1, DEAD, GIB, ghost=True)
    script = (
        'mount -t proc proc /proc && { setpriv --reuid=61101 --regid=61101 --clear-groups "$HOLD_PYTHON" -I -S -c "$HOLD" '
        '/dev/nvidia0 /dev/nvidia-uvm & } && sleep 0.01; "$@"; code=$?; kill $!; exit $code'
    )
    waits = "import os, signal, sys, time\n"
    waits += "[os.open(path, 2) for path in sys.argv[1:]]\nopen('/proc/self/comm', 'w').write('held')\ntime.sleep(100)"
    inside = ["/usr/bin/unshare", "--mount", "--pid", "--fork", "/bin/sh", "-c", script, "sh"]
    until = [
        "/bin/sh", "-c", "while ! grep -qsx held /proc/[0-9]*/comm; do sleep 0.05; done; exec \"$@\"", "sh",
    ]  # fmt: skip
    prefix = ["/usr/bin/env", "PATH=/usr/bin:/bin", *inside, *until]
    _code, answer = node.status(prefix=prefix, HOLD=waits, HOLD_PYTHON=str(node.python))
    found = answer["gpus"]["items"][0]["holders"]
    assert [(one["pid"], one["word"]) for one in found if one["by"] == "driver"] == [(1, "foreign")]
    (held,) = [one for one in found if one["by"] == "files"]
    rows = {one["pid"]: one for one in answer["processes"]["items"]}
    assert rows[held["pid"]]["gpus"] == [0] and "/dev/nvidia0" in rows[held["pid"]]["devices"]
    assert [one["word"] for one in answer["gpus"]["items"][1]["holders"]] == ["foreign"]


def test_a_wedged_gpu_is_named(node: Node) -> None:
    node.driver.gpu(1, utilisation=100, samples=",".join(["100"] * 60), memory_used=0)
    code, answer = node.status()
    assert (code, answer["verdict"]) == (3, "unknown")
    assert [gpu["trouble"] for gpu in answer["gpus"]["items"]] == [[], ["wedged"]]
    assert "GPU 1 is wedged: 100 % busy" in node.text()


def test_both_numberings(node: Node) -> None:
    node.driver.gpu(0, minor=1).gpu(1, minor=0)
    _code, answer = node.status(CUDA_VISIBLE_DEVICES="1,7,0")
    assert answer["gpus"]["visible"] == {
        "kind": "list", "value": "1,7,0", "order": [1], "rejected": "7", "ignored": ["0"], "certain": True,
    }  # fmt: skip
    assert [(gpu["index"], gpu["node_index"], gpu["visible_index"]) for gpu in answer["gpus"]["items"]] == [
        (0, 1, None),
        (1, 0, 0),
    ]
    text = node.text(CUDA_VISIBLE_DEVICES="1,7,0")
    assert "number 1 on this node, hidden from programs started here" in text
    assert "number 0 on this node, number 0 for programs started here" in text
    for value, kind in (("NoDevFiles", "no-dev-files"), ("", "none")):
        assert node.status(CUDA_VISIBLE_DEVICES=value)[1]["gpus"]["visible"]["kind"] == kind
    assert "this job asked for no GPU" in node.text(CUDA_VISIBLE_DEVICES="NoDevFiles")
    assert "is set and empty" in node.text(CUDA_VISIBLE_DEVICES="")
    assert "names no GPU that is here, which hides it and all after it" in node.text(CUDA_VISIBLE_DEVICES="1,7,0")
    node.driver.gpus(0)
    assert node.status(CUDA_VISIBLE_DEVICES="NoDevFiles")[1]["gpus"]["visible"]["kind"] == "no-dev-files"


def test_sharing_is_said(node: Node) -> None:
    client = node.hold()
    node.driver.process(0, client, GIB, kind="mps").mig(1, gi=2, ci=0, uuid="MIG-x", memory_used=GIB)
    _code, answer = node.status(CUDA_VISIBLE_DEVICES="GPU-,MIG-x", SLURM_SHARDS_ON_NODE="1")
    first, instance = answer["gpus"]["items"]
    assert first["sharing"] == ["mps", "shard"] and first["holders"][0]["kind"] == "mps"
    assert instance["instance"] == [2, 0] and instance["uuid"] == "MIG-x" and instance["utilisation"] is None
    assert instance["sharing"] == ["mig", "shard"] and instance["shared"]
    text = node.text(CUDA_VISIBLE_DEVICES="MIG-x", SLURM_SHARDS_ON_NODE="1")
    assert (
        "MPS client" in text
        and "1 GI 2 CI 0: NVIDIA" in text
        and "MIG: a part of a GPU" in text
        and "gres/shard" in text
    )


def breakages() -> dict[str, tuple[Any, str, int]]:
    """What is done to the driver, the cause that is told, and how many GPUs are told with their names all the same."""
    return {
        "never answers": (lambda driver: driver.delay("nvmlInitWithFlags", "forever"), "driver-hangs", 0),
        "hangs in mid-list": (lambda driver: driver.delay(V3_LISTS[0], "forever", gpu=1), "driver-hangs", 1),
        "hangs at the second of a pair": (
            lambda driver: driver.process(0, DEAD, GIB, ghost=True).delay(V3_LISTS[0], "forever", after=1),
            "driver-hangs",
            0,
        ),
        "crashes": (lambda driver: driver.crash(V3_LISTS[1]), "driver-crashed", 0),
        "crashes at the start": (lambda driver: driver.crash("nvmlInitWithFlags"), "driver-crashed", 0),
        "not loaded": (lambda driver: driver.fault("nvmlInitWithFlags", "DRIVER_NOT_LOADED"), "driver-not-loaded", 0),
        "mismatch": (lambda driver: driver.fault("nvmlInitWithFlags", "LIB_RM_VERSION_MISMATCH"), "driver-mismatch", 0),
        "lost at the start": (lambda driver: driver.fault("nvmlInitWithFlags", "GPU_IS_LOST"), "gpu-lost", 0),
    }


@pytest.mark.parametrize("breakage", breakages())
def test_all_else_is_still_shown(node: Node, breakage: str) -> None:
    """Within the deadline: where, which jobs, which processes; and the device files name the GPUs and who holds them."""
    breaks, cause, named = breakages()[breakage]
    breaks(node.driver)
    mine = node.hold()
    deadline = 3.0 if "hangs" in breakage or "never" in breakage else 20.0
    begin = time.monotonic()
    code, answer = node.status(HANDWASH_DEADLINE=str(deadline))
    assert time.monotonic() - begin < deadline + 10
    assert code == 1 and answer["verdict"] == "leftover"
    assert answer["node"]["kind"] and answer["jobs"]["known"] and answer["processes"]["known"]
    gpus = answer["gpus"]
    assert (gpus["known"], gpus["cause"]) == (False, cause) and gpus["why"]
    assert sum(bool(gpu["name"]) for gpu in gpus["items"]) == named
    assert {0, 1} <= {gpu["index"] for gpu in gpus["items"]}
    (row,) = [one for one in answer["processes"]["items"] if one["pid"] == mine]
    assert row["gpus"] == [0, 1] and row["leftover"]
    assert mine in holders(answer, 0)


@pytest.mark.parametrize("nonsense", ["count", "names", "lists", "lost in mid-call"])
def test_nonsense_and_loss_cost_their_own_values(node: Node, nonsense: str) -> None:
    mine = node.hold()
    node.driver.process(1, mine, GIB)
    if nonsense == "count":
        node.driver.fault("nvmlDeviceGetCount_v2", 77)
    elif nonsense == "names":
        node.driver.gpu(0, name="\udcff\udcfe", utilisation=4000, memory_used=999 * GIB)
    elif nonsense == "lists":
        node.driver.process(0, mine, GIB).grow(V3_LISTS[0], gpu=0, count=9999)
    else:
        node.driver.fault("*", "GPU_IS_LOST", gpu=0, after=4)
    code, answer = node.status()
    assert code == 1
    if nonsense == "count":
        assert answer["gpus"]["cause"] == "driver-error" and answer["gpus"]["items"]
        return
    assert answer["gpus"]["known"]
    assert holders(answer, 1)[mine] == ("both", "", str(ALICE))
    assert answer["gpus"]["items"][0]["notes"]
    assert (answer["gpus"]["items"][0]["trouble"] == ["lost"]) == (nonsense == "lost in mid-call")


# Of /dev and /sys only what is made here; the program that holds the files is told of by the made-up kernel too.
OTHER_VENDORS = """
mount -t proc -o hidepid=0 proc /proc && mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 || exit 99
mkdir /dev/dri
for name in kfd dri/renderD128 davinci0 davinci1 davinci_manager; do mknod -m 666 /dev/$name c 1 3; done
mount -t tmpfs tmpfs /sys
kfd=/sys/class/kfd/kfd node=/sys/class/kfd/kfd/topology/nodes/0 card=/sys/class/drm/renderD128/device
mkdir -p $kfd/proc $node $card
echo 15209 >$node/gpu_id
printf 'vendor_id 7572\ndrm_render_minor 128\n' >$node/properties
echo 68719476736 >$card/mem_info_vram_total; echo 3221225472 >$card/mem_info_vram_used
echo 50 >$card/gpu_busy_percent
mkfifo -m 666 /dev/ready
setpriv --reuid=61101 --regid=61101 --clear-groups "$HOLD_PYTHON" -I -S -c "$HOLD" \
    /dev/kfd /dev/dri/renderD128 /dev/davinci1 >/dev/ready &
read -r line </dev/ready
mkdir $kfd/proc/$!
echo 1073741824 >$kfd/proc/$!/vram_15209
printf '| Chip  Phy-ID | Bus-Id | AICore(%%)  Memory-Usage(MB)  HBM-Usage(MB) |\n' >/dev/table
for n in 0 1; do
    printf "| $n  910B4 | OK | 8 4 0 / 0 |\n| 0  $n | 0000:C$n:00.0 | 0 0 / 0 2847 / 32768 |\n" >>/dev/table
done
printf "| NPU Chip | Process id | Process name | Process memory(MB) |\n| 1  0 | $! |  | 512 |\n" >>/dev/table
"$@"
code=$?
kill $!
exit $code
"""


def test_other_vendors(node: Node) -> None:
    """A Hygon card by the kernel's folders, two Ascend cards by their tool's table, one program on both by its files."""
    node.driver.gpus(0)
    (node.folder / "npu-smi").write_text('#!/bin/sh\nwhile read -r line; do echo "$line"; done </dev/table\n')
    (node.folder / "npu-smi").chmod(0o755)
    prefix = ["/usr/bin/env", "PATH=/usr/bin:/bin", "/usr/bin/unshare", "--mount", "/bin/sh", "-c", OTHER_VENDORS, "sh"]
    hold = (PROGRAMS / "hold_gpu.py").read_text()
    code, answer = node.status(prefix=prefix, HOLD=hold, HOLD_PYTHON=str(node.python))
    assert code == 1 and answer["gpus"]["known"]
    hygon, idle, used = answer["gpus"]["items"]
    assert (hygon["vendor"], hygon["device"]) == ("Hygon", "/dev/dri/renderD128")
    assert (hygon["memory_used"], hygon["memory_total"], hygon["utilisation"]) == (3 * GIB, 64 * GIB, 0.5)
    (holder,) = hygon["holders"]
    assert (holder["by"], holder["word"], holder["memory"]) == ("both", "", GIB)
    assert (idle["name"], idle["holders"], idle["memory_used"]) == ("Ascend 910B4", [], 2847 << 20)
    assert [(one["pid"], one["by"], one["memory"]) for one in used["holders"]] == [(holder["pid"], "both", 512 << 20)]
    (row,) = [one for one in answer["processes"]["items"] if one["pid"] == holder["pid"]]
    assert row["leftover"] and {"/dev/kfd", "/dev/davinci1"} <= set(row["devices"])
