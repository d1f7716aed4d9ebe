"""What CUDA_VISIBLE_DEVICES lets a program see, and under which numbers. Pure: environment and GPUs in, numbering out.

The rules are CUDA's (programming guide, "CUDA Environment Variables"): entries are numbers, relative to what the control
group shows, or beginnings of UUIDs, or MIG ids; the first entry that names no GPU hides it and all after it.
"""

from __future__ import annotations

from handwash.frozen import replace
from handwash.model import Visibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handwash.model import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NO_DEVICE = "NoDevFiles"  # what Slurm puts there in a job that asked for no GPU


def read(env: Mapping[str, str], gpus: Sequence[Gpu]) -> Visibility:
    """What the variable in `env` means for a program that starts where the GPUs are numbered as in `gpus`."""
    cuda = [place for place, gpu in enumerate(gpus) if gpu.vendor == "NVIDIA"]
    # Fastest first is CUDA's own order, so that equal GPUs keep the driver's; of MIG instances it numbers but the first.
    names = {gpus[place].name for place in cuda}
    certain = len(names) < 2 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    certain = certain and not any("mig" in gpus[place].sharing for place in cuda)
    value = env.get(VARIABLE)
    if value is None:
        return Visibility("all", "", tuple(cuda), certain=certain)
    if not value.strip():
        return Visibility("none", value, ())
    if value.strip() == _NO_DEVICE:
        return Visibility("no-dev-files", value, ())
    entries = [entry.strip() for entry in value.split(",")]
    order: list[int] = []
    for number, entry in enumerate(entries):
        place = _named(entry, gpus, cuda)
        if place is None:
            return Visibility("list", value, tuple(order), entry, tuple(entries[number + 1 :]), _sure(entries, certain))
        if place in order:
            # Named twice: CUDA shows none at all.
            return Visibility("repeated", value, (), entry, tuple(entries[number + 1 :]))
        order.append(place)
    return Visibility("list", value, tuple(order), certain=_sure(entries, certain))


def _sure(entries: Sequence[str], certain: bool) -> bool:
    """UUIDs say which GPU is meant whatever CUDA's order is."""
    return certain or all(entry.startswith(("GPU-", "MIG-")) for entry in entries)


def _named(entry: str, gpus: Sequence[Gpu], cuda: Sequence[int]) -> int | None:
    """The place in `gpus` that one entry names, None where it names none, or more than one."""
    if entry.isascii() and entry.isdigit():
        return cuda[int(entry)] if int(entry) < len(cuda) else None
    if entry.startswith("MIG-GPU-"):  # the form of drivers before 470: MIG-GPU-<uuid>/<gpu instance>/<compute instance>
        _uuid, _slash, numbers = entry[len("MIG-") :].partition("/")
        ids = numbers.split("/")
        if len(ids) != 2 or not all(one.isascii() and one.isdigit() for one in ids):
            return None
        wanted = (int(ids[0]), int(ids[1]))
        # An instance carries its own id, not that of its GPU: enough where one GPU alone has such an instance.
        found = [place for place in cuda if gpus[place].instance == wanted]
        return found[0] if len(found) == 1 else None
    if entry.startswith(("GPU-", "MIG-")):
        found = [place for place in cuda if gpus[place].uuid.lower().startswith(entry.lower())]
        return found[0] if len(found) == 1 else None
    return None


def numbered(gpus: Sequence[Gpu], visibility: Visibility, env: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs with their numbers for programs, and marked where the job holds but a share of them (gres/shard)."""
    place_of = {place: number for number, place in enumerate(visibility.order)}
    told = []
    for place, gpu in enumerate(gpus):
        if visibility.certain and place in place_of:
            gpu = replace(gpu, visible=place_of[place])
        # srun(1): set in a job that asked for shards, from Slurm 22.05 on; the GPUs are then those it is shown.
        if env.get("SLURM_SHARDS_ON_NODE") and place in place_of and "shard" not in gpu.sharing:
            gpu = replace(gpu, sharing=(*gpu.sharing, "shard"), shared=True)
        told.append(gpu)
    return tuple(told)
