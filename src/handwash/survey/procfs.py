"""What /proc says of one process (proc(5)), read without psutil, which costs three bare interpreter starts; a test compares.

Reading another person's process gives less, reading one that has just ended gives nothing: both are None, never an error.
"""

from __future__ import annotations

import os

from handwash import world
from handwash.teardown.identity import real_uid, slurp

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# One that has its words and still no variables was started without any: that needs no more than the first few of these.
_EXEC_PAUSES_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01)
_WITH_WORDS_S = 0.0005


def stat_fields(pid: int) -> tuple[str, list[bytes]] | None:
    """(name, the fields of /proc/PID/stat from the state on). A name may hold `)`, spaces and newlines."""
    content = slurp(f"/proc/{pid}/stat")
    if not content:
        return None
    before, _closing, after = content.rpartition(b")")
    return before.partition(b"(")[2].decode("utf-8", "replace"), after.split()


def ancestors(pid: int) -> list[tuple[int, str]]:
    """(pid, name) of `pid` itself and of each of its parents, up to and without process 1."""
    chain: list[tuple[int, str]] = []
    while pid > 1 and len(chain) < 128:
        fields = stat_fields(pid)
        if fields is None:
            break
        chain.append((pid, fields[0]))
        pid = int(fields[1][1])
    return chain


def arguments(pid: int) -> list[str]:
    content = slurp(f"/proc/{pid}/cmdline") or b""
    return [word.decode("utf-8", "replace") for word in content.rstrip(b"\0").split(b"\0")] if content else []


def environment(pid: int, names: tuple[bytes, ...]) -> dict[str, str]:
    """Some variables of the environment that a process was started with. Empty where it cannot be read."""
    content = _environ(pid)
    found: dict[str, str] = {}
    if not content or not any(name in content for name in names):
        return found
    for entry in content.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in names:
            found.setdefault(name.decode(), value.decode("utf-8", "replace"))
    return found


def _environ(pid: int) -> bytes | None:
    """While a process becomes another program it has no words yet and no variables (binfmt_elf.c, `create_elf_tables`; seen on
    6.18): it would seem to be in no job. So nothing is taken for an answer only when it stays nothing for some milliseconds."""
    content = slurp(f"/proc/{pid}/environ")
    for pause in _EXEC_PAUSES_S if content == b"" else ():
        world.pause(pause)
        content = slurp(f"/proc/{pid}/environ")
        if content != b"" or (pause > _WITH_WORDS_S and slurp(f"/proc/{pid}/cmdline")):
            break
    return content


def groups(pid: int | str) -> bytes | None:
    """The control groups of a process, as /proc/PID/cgroup has them (cgroups(7)); None where it cannot be read."""
    return slurp(f"/proc/{pid}/cgroup")


def own_terminal() -> tuple[str, int] | None:
    """This process's controlling terminal by path and device number, where that is a pseudo-terminal; None without one.

    By the device number in /proc/PID/stat, whose minor part is in two pieces (proc(5)); pseudo-terminals have the majors 136 to
    143 (Documentation/admin-guide/devices.txt).
    """
    stat = stat_fields(os.getpid())
    number = int(stat[1][4]) if stat else 0
    major, minor = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return (f"/dev/pts/{(major - 136) * 256 + minor}", number) if 136 <= major <= 143 else None


def has_open(pid: int, paths: tuple[str, ...]) -> bool:
    """Whether a process holds one of these files open; False too where its open files may not be seen."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}") in paths:
                return True
        except OSError:
            continue  # closed since
    return False


def pids() -> list[int]:
    """Every process of this PID namespace that /proc shows (hidepid hides other people's)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_host_namespace() -> bool:
    """Whether pids are the host's here, as a driver's are: PROC_PID_INIT_INO (include/linux/proc_ns.h).

    Only here does a pid that somebody tells with this host's name say anything. The name is no sign of it: a namespace of
    names of one's own (uts_namespaces(7)) begins with the host's.
    """
    try:
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return False


def owner(pid: int) -> int | None:
    """The real uid of a process, or None.

    The folder's owner is it, at the price of one call, except for a process that is not dumpable (ssh-agent, anything
    setuid): its folder belongs to root, and only /proc/PID/status tells (proc(5), prctl(2) PR_SET_DUMPABLE).
    """
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    return uid if uid != 0 else real_uid(pid)
