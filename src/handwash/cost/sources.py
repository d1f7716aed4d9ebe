"""What a verdict may have to ask: each a call, made only where the answer needs it."""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.model import Gpu, Job, Node, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Union

    from handwash.cost.count import Partitions
    from handwash.cost.pbs_count import Server


@frozen
class Here:
    """This node: its kind, its GPUs, and the person's jobs. `gpus_in_part`: those known of where `gpus` is not."""

    node: Union[Node, Unknown]
    gpus: Union[tuple[Gpu, ...], Unknown]
    jobs: Union[tuple[Job, ...], Unknown]
    gpus_in_part: tuple[Gpu, ...] = ()


@frozen
class Sources:
    """`partitions` takes a cluster's name ("" for this one); `pbs` gives the server's settings; `text` takes a path, and gives
    a file's text; `script` a word as sbatch takes it and the folder of --chdir, and gives a batch script's text; `program` a
    path, and gives the beginning of a file's text, "" where it is compiled, None where there is none; `find` a program's name
    and the PATH, None for this shell's, and gives its path. `keeps_environment`: sudo was told to.
    """

    partitions: Callable[[str], Partitions]
    pbs: Callable[[], Server]
    jobs: Callable[[], Union[tuple[Job, ...], Unknown]]
    here: Callable[[], Here]
    text: Callable[[str], Union[str, Unknown]]
    script: Callable[[str, str], Union[str, Unknown]]
    program: Callable[[str], Union[str, Unknown, None]]
    find: Callable[[str, Union[str, None]], Union[str, None]]
    keeps_environment: bool = False
