"""The few kernel calls that the node's side needs and Python has no light name for. Imported under every task."""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    # `signal` costs half a bare interpreter start (it builds enums); its C half, builtin in every CPython, does not.
    import _signal

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

# getrlimit(2): the limit on file locks has had no effect since Linux 2.4.25. It is inherited over fork and exec, an emptied
# environment does not take it away, and /proc/PID/limits shows it even of a process that is not dumpable.
RLIMIT_LOCKS = 10
LIMITS_ROW = b"\nMax file locks "

# si_code of siginfo_t (sigaction(2)): sent by the kernel itself, as the terminal does to its foreground group.
SI_KERNEL = 0x80

# All that can be waited for instead of handled. KILL and STOP cannot, and real-time signals are passed on like the others.
ALL_SIGNALS = frozenset(range(1, _signal.NSIG)) - {_signal.SIGKILL, _signal.SIGSTOP, 32, 33}


def call_libc(name: str, *arguments: "int | bytes") -> bool:
    """Calls a function of the C library through the C half of ctypes (ctypes itself costs 3 to 5 ms; `resource` costs too).

    True where it answered 0; False where it failed or there is no way to call it.
    """
    try:
        import _ctypes
    except ImportError:
        return False
    call, find = getattr(_ctypes, "call_function", None), getattr(_ctypes, "dlsym", None)
    if call is None or find is None:
        return False
    try:
        result: int = call(find(_ctypes.dlopen(None, 0), name), arguments)  # type: ignore[arg-type]
    except OSError:
        return False
    return result == 0


def prctl(option: int, value: "int | bytes") -> bool:
    """prctl(2)."""
    return call_libc("prctl", option, value, 0, 0, 0)


def become_subreaper(yes: bool = True) -> bool:
    """Orphans below this process become its children (Linux 3.4), or no longer do."""
    return prctl(PR_SET_CHILD_SUBREAPER, int(yes))


def mark(value: int) -> bool:
    """Marks this process and all that descend from it, whatever they do. False where that cannot be done."""
    if sys.maxsize < 2**32:
        # rlim_t has another size there.
        return False
    endless = (2**64 - 1).to_bytes(8, sys.byteorder)
    # Refused where somebody has lowered the hard limit before.
    return call_libc("setrlimit", RLIMIT_LOCKS, value.to_bytes(8, sys.byteorder) + endless)


def has_mark(limits: bytes, value: int) -> bool:
    """Whether the content of a /proc/PID/limits has the mark."""
    row = limits.partition(LIMITS_ROW)[2].split(None, 1)
    return row[:1] == [str(value).encode()]


def block_all() -> "set[int]":
    """Blocks every signal, to be taken one by one with `next_signal`; answers the mask to restore for the command."""
    # With SIGCHLD ignored by whoever started us, children would vanish without a status.
    if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    return set(_signal.pthread_sigmask(_signal.SIG_BLOCK, ALL_SIGNALS))


def next_signal() -> "tuple[int, int, int]":
    """The next signal as (number, si_code, sender's pid)."""
    info = _signal.sigwaitinfo(ALL_SIGNALS)
    return info.si_signo, info.si_code, info.si_pid


def pending_signal() -> int:
    """A signal that has come already; 0 for none."""
    info = _signal.sigtimedwait(ALL_SIGNALS, 0)
    return info.si_signo if info is not None else 0


def alarm(seconds: float) -> bool:
    """SIGALRM from the kernel after that time, once. In place of a timeout: `sigtimedwait` of a process that was stopped until
    after its time answers with whatever was in memory (CPython 3.9 to 3.13).

    False where whoever started us has one running, which goes on over exec: that is meant for the command.
    """
    if any(_signal.getitimer(_signal.ITIMER_REAL)):
        return False
    _signal.setitimer(_signal.ITIMER_REAL, seconds)
    return True


def wait_child_signal(timeout: float) -> None:
    """Sleeps until a child changes state or the time is up; other signals stay pending."""
    _signal.sigtimedwait({_signal.SIGCHLD}, max(timeout, 0.0))


def forget(*numbers: int) -> None:
    """Signals that have come and wait, blocked, are no more: an ignored one is forgotten (POSIX, sigaction)."""
    for number in numbers:
        _signal.signal(number, _signal.SIG_IGN)
        _signal.signal(number, _signal.SIG_DFL)


def restore_for_exec(mask: "set[int]", ignored_chld: bool = False) -> None:
    """Before exec: signals as the command would have found them without us."""
    # Python ignores these two, and ignored signals stay ignored over exec.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    if ignored_chld:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def die_by(number: int) -> None:
    """Ends this process by the signal, without a core file: the one to keep is the command's. Returns if that fails."""
    try:
        # The first is a file of Python's own, which may have been replaced while a session ran.
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        pass
    try:
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
        posix.kill(posix.getpid(), number)
    except (OSError, ValueError):
        # 32 and 33 are the C library's own.
        pass


def keep_pages() -> None:
    """For what lives long: three processes share an interpreter's pages, and none of them makes garbage worth collecting. A
    collection would only copy the pages."""
    import gc

    gc.disable()


def reap() -> bool:
    """Collects every child that has ended. True when no child is left at all."""
    while True:
        try:
            pid, _status = posix.waitpid(-1, posix.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def exit_like(status: int) -> None:
    """Ends this process as a child with this wait status ended. Does not return."""
    if posix.WIFSIGNALED(status):
        die_by(posix.WTERMSIG(status))
        posix._exit(128 + posix.WTERMSIG(status))
    posix._exit(posix.WEXITSTATUS(status))
