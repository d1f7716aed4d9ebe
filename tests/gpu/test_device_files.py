"""The look at open device files: on trees made for it, and on real device nodes in a mount namespace of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gpu.asking import run_code
from tests.testbed.driver.fake import FakeDriver

from handwash.accelerators import device_files

KNOWN = (
    "/dev/nvidia0",
    "/dev/nvidia13",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/kfd",
    "/dev/dri/renderD128",
    "/dev/davinci0",
    "/dev/davinci_manager",
    "/dev/mkfd",
    "/dev/cambricon_dev2",
    "/dev/cambricon_ctl",
    "/dev/mxcd",
    "/dev/mtgpu.3",
    "/dev/iluvatar2",
    "/dev/gcu0",
    "/dev/xpu1",
    "/dev/xpuctrl",
)
UNKNOWN = (
    "/dev/null",
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-caps/nvidia-cap1",
    "/dev/nvidia",
    "/dev/nvidia²",
    "/dev/nvidia1x",
    "/dev/dri/card0",
    "/dev/davinci",
    "/dev/cambricon_ipcm0",
    "/dev/mtgpu",
    "/dev/mtgpu3",
    "/dev/gcu0vid1",
    "/dev/xpu",
    "/home/dev/nvidia0",
    "socket:[42]",
    "anon_inode:[eventfd]",
)


def hold(root: Path, pid: int, *targets: str) -> None:
    """A process of a made-up /proc that holds `targets` open."""
    folder = root / str(pid) / "fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def test_what_a_process_holds_is_told_in_order_and_once(tmp_path: Path) -> None:
    hold(
        tmp_path, 7, "/dev/pts/0", "/dev/nvidia10", "/dev/nvidia2", "/dev/nvidia-uvm", "/dev/nvidia2", "/dev/nvidiactl"
    )
    assert device_files.devices_of(7, str(tmp_path)) == (
        "/dev/nvidia2",
        "/dev/nvidia10",
        "/dev/nvidia-uvm",
        "/dev/nvidiactl",
    )


def test_the_table_is_the_whole_table(tmp_path: Path) -> None:
    hold(tmp_path, 7, *KNOWN, *UNKNOWN)
    assert set(device_files.devices_of(7, str(tmp_path)) or ()) == set(KNOWN)


def test_nothing_held_is_not_the_same_as_nothing_seen(tmp_path: Path) -> None:
    hold(tmp_path, 7, "/dev/null", "pipe:[1]")
    assert device_files.devices_of(7, str(tmp_path)) == ()
    assert device_files.devices_of(8, str(tmp_path)) is None


def test_another_person_s_files_are_not_seen() -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            os.write(write_end, repr(device_files.devices_of(1)).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        assert answer.read() == "None"
    os.waitpid(child, 0)


def test_a_removed_device_file_is_still_held(tmp_path: Path) -> None:
    hold(tmp_path, 7, "/dev/nvidia0 (deleted)", "/dev/nvidia-uvm (deleted)")
    assert device_files.devices_of(7, str(tmp_path)) == ("/dev/nvidia0", "/dev/nvidia-uvm")


def test_a_render_node_alone_is_a_display_s(tmp_path: Path) -> None:
    hold(tmp_path, 7, "/dev/dri/renderD128")
    hold(tmp_path, 8, "/dev/dri/renderD128", "/dev/kfd")
    assert device_files.devices_of(7, str(tmp_path)) == ()
    assert device_files.devices_of(8, str(tmp_path)) == ("/dev/dri/renderD128", "/dev/kfd")


@pytest.mark.parametrize(
    ("devices", "context"),
    [
        (("/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidiactl"), True),
        (("/dev/nvidia0", "/dev/nvidiactl"), False),  # nvidia-smi, nvtop, nvitop
        (("/dev/nvidiactl",), False),
        (("/dev/dri/renderD128", "/dev/kfd"), True),
        (("/dev/davinci3",), True),
        (("/dev/davinci_manager",), False),
        (("/dev/cambricon_dev0",), True),
        (("/dev/cambricon_ctl",), False),
        (("/dev/dri/renderD128", "/dev/mxcd"), True),
        (("/dev/mtgpu.0",), True),
        (("/dev/iluvatar0",), True),
        (("/dev/gcu0",), True),
        (("/dev/xpuctrl",), False),
        ((), False),
    ],
)
def test_a_context_is_told_from_a_monitor(devices: tuple[str, ...], context: bool) -> None:
    assert device_files.holds_context(devices) is context


def test_the_node_s_own_files(tmp_path: Path) -> None:
    for path in (*KNOWN, *(path for path in UNKNOWN if path.startswith("/dev/"))):
        file = tmp_path / path[len("/dev/") :]
        if not file.is_dir():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    assert set(device_files.present(str(tmp_path))) == set(KNOWN)
    (tmp_path / "kfd").unlink()
    assert set(device_files.present(str(tmp_path))) == {p for p in KNOWN if p != "/dev/kfd"}  # a MetaX node, then
    (tmp_path / "mxcd").unlink()
    assert not [path for path in device_files.present(str(tmp_path)) if "dri" in path]
    assert device_files.present(str(tmp_path / "nowhere")) == ()


def test_the_pci_bus_knows_a_gpu_without_its_driver(tmp_path: Path) -> None:
    assert device_files.nvidia_hardware(str(tmp_path)) is None
    for place, vendor, kind in (
        ("00", "0x8086", "0x030000"),
        ("01", "0x10de", "0x068000"),
        ("02", "0x10de", "0x030200"),
    ):
        folder = tmp_path / "bus" / "pci" / "devices" / f"0000:{place}:00.0"
        folder.mkdir(parents=True)
        assert device_files.nvidia_hardware(str(tmp_path)) is False
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    assert device_files.nvidia_hardware(str(tmp_path)) is True


@given(st.integers(min_value=0, max_value=2**20))
def test_a_minor_number_is_read_back(minor: int) -> None:
    assert device_files.gpu_minor(f"/dev/nvidia{minor}") == minor
    assert device_files.vendor_and_number(f"/dev/davinci{minor}") == (device_files.VENDORS[3], minor)
    assert device_files.gpu_minor(f"/dev/davinci{minor}") is None


@given(st.sampled_from(["", *(vendor.numbered for vendor in device_files.VENDORS)]), st.text())
def test_no_path_upsets_the_table(beginning: str, rest: str) -> None:
    found = device_files.vendor_and_number(beginning + rest)
    if found:
        assert rest.isdecimal() or beginning == ""
        assert int(rest.rpartition("/")[2].lstrip("abcdefghijklmnopqrstuvwxyzD_.")) == found[1]
    assert device_files.holds_context((beginning + rest,)) in (True, False)


@given(st.sets(st.sampled_from(KNOWN + UNKNOWN)))
def test_the_order_is_a_matter_of_the_files_alone(paths: set[str]) -> None:
    once = device_files._accelerators(paths)
    assert device_files._accelerators(set(once)) == once
    assert set(once) <= paths & set(KNOWN)


# ---- real device nodes


def need_own_mounts() -> None:
    """Skips where this user may not have a /dev of their own; one made in a mount namespace goes with its processes."""
    try:
        allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("no permission for a mount namespace, so no /dev of our own to put device nodes in")


# Null devices under the names of a GPU's: to a scan of /proc/PID/fd they look the same.
OWN_DEV = """
import ctypes, stat
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
assert libc.unshare(CLONE_NEWNS) == 0
assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
assert libc.mount(b"none", b"/dev", b"tmpfs", 0, None) == 0
for name in ("null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
    os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
held = [os.open(f"/dev/{name}", os.O_RDWR) for name in ("nvidia1", "nvidiactl", "nvidia-uvm")]
"""


def test_an_own_process_s_devices_are_what_psutil_and_readlink_say() -> None:
    need_own_mounts()
    out = run_code(
        OWN_DEV
        + """
world.add_site_packages()
import psutil
devices = device_files.devices_of(os.getpid())
assert devices == ("/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidiactl"), devices
assert device_files.holds_context(devices)
assert device_files.present() == ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidiactl")
# psutil counts open files but leaves devices out of its list of them: by hand, then.
folder = "/proc/self/fd"
assert psutil.Process().num_fds() == len(os.listdir(folder))
links = {os.readlink(f"{folder}/{name}") for name in os.listdir(folder) if os.path.lexists(f"{folder}/{name}")}
assert {link for link in links if link.startswith("/dev/nvidia")} == set(devices)
print("fine")
"""
    )
    assert out == "fine\n"


def test_without_the_library_the_files_stand_for_the_gpus() -> None:
    need_own_mounts()
    out = run_code(
        OWN_DEV
        + """
nvml.library_present = lambda: False
seen = gpus.read(run.looks({"gpus": gpus.look}, 10)["gpus"]["gpus"])
assert [(gpu.index, gpu.minor, gpu.device, gpu.name, gpu.memory_used) for gpu in seen] == [
    (0, 0, "/dev/nvidia0", "", None), (1, 1, "/dev/nvidia1", "", None)], seen
assert all(not gpu.uses_known and "library" in gpu.notes[0] for gpu in seen)
assert gpus.indices_of(device_files.devices_of(os.getpid()), seen) == (1,)
print("fine")
"""
    )
    assert out == "fine\n"


def test_one_process_is_seen_by_both_looks(fake_driver: FakeDriver) -> None:
    need_own_mounts()
    # The driver numbers by bus, the files by age: here the two orders are opposite.
    fake_driver.gpu(0, minor=1).gpu(1, minor=0).holders(2**30)
    out = run_code(
        OWN_DEV
        + """
seen = gpus.read(run.looks({"gpus": gpus.look}, 10)["gpus"]["gpus"])
# Another test's process may be on them as well.
assert [os.getpid() in [use.pid for use in gpu.uses] for gpu in seen] == [True, False], seen
assert [gpu.memory_used for gpu in seen] == [2**30 * len(gpu.uses) for gpu in seen]
assert gpus.indices_of(device_files.devices_of(os.getpid()), seen) == (0,)
print("fine")
""",
        fake_driver.env(),
    )
    assert out == "fine\n"
