"""What the doctor knows. Pure data."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.limits import Excess
from handwash.model import Judged, Survey, Unknown
from handwash.schedulers.base import Partition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union


@frozen
class Smi:
    """`nvidia-smi -L`. `path`: on the PATH, or None; `elsewhere`: where it lies off the PATH. `gpus`: how many it names."""

    path: str | None = None
    elsewhere: str | None = None
    code: int | None = None
    gpus: int | None = None
    said: str = ""
    timed_out: bool = False

    @property
    def outcome(self) -> str:
        """missing, no-gpu, gpus, error, no-answer."""
        if self.path is None:
            return "missing"
        if self.timed_out:
            return "no-answer"
        if self.gpus:
            return "gpus"
        # 6: no such device; 0 with no GPU on the list.
        return "no-gpu" if self.code in (0, 6) else "error"


@frozen
class Machine:
    """This node's hardware and driver, and the CUDA runtime of this shell. `hardware`: an NVIDIA GPU on the bus, or unknown.

    `kernel_driver`: the version of the loaded driver. `modules`: what the module system has loaded; `module_system`: how it
    shows itself. `runtime`: where libcudart is found. `cuda_visible`: CUDA_VISIBLE_DEVICES, None where it is not set.
    """

    device_files: tuple[str, ...] = ()
    hardware: bool | None = None
    kernel_driver: str | None = None
    library: bool = False
    module_system: str | None = None
    modules: tuple[str, ...] = ()
    runtime: str | None = None
    cuda_visible: str | None = None


@frozen
class SetUp:
    """How handwash is set up for this person. Times in seconds.

    `shell`: its name; `blocks`: start-up files that have the hook; `shown`: whether this shell's chain has shown the banner.
    `exit_lines`: own definitions of `exit`, as FILE:LINE: TEXT. `interpreter`: what the hook calls; `interpreter_why`: what
    is wrong with it. `state_why`: why the state folder cannot be written. `file_skew`, `controller_skew`: how far the file
    server's and the controller's clock is ahead of this node's.
    """

    shell: str | None = None
    terminal: bool = False
    blocks: tuple[str, ...] = ()
    shown: bool = False
    disabled: str | None = None
    banner_off: bool = False
    exit_lines: tuple[str, ...] = ()
    interpreter: str | None = None
    interpreter_why: str | None = None
    state_dir: str = ""
    state_why: str | None = None
    file_skew: float | None = None


@frozen
class Evidence:
    """Everything; what could not be looked at is Unknown with the reason. `partitions`: None where it was not asked.

    `left_over`, `over_limits`: what `check` says of one's own processes here, at `now` (seconds since the epoch).
    """

    survey: Survey
    smi: Union[Smi, Unknown]
    machine: Union[Machine, Unknown]
    set_up: Union[SetUp, Unknown]
    partitions: Union[tuple[Partition, ...], Unknown, None] = None
    controller_skew: float | None = None
    left_over: tuple[Judged, ...] = ()
    over_limits: tuple[Excess, ...] = ()
    now: float = 0.0


@frozen
class Finding:
    """`severity`: problem, notice. `remedy`: the next thing to do, with the command to type."""

    id: str
    severity: str
    what: str
    evidence: str
    remedy: str
