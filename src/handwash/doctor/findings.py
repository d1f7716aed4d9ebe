"""From evidence to findings: why no GPU is visible, who else is on them. Pure; the set-up's part is in `set_up`."""

from __future__ import annotations

from handwash import opened, render, schedulers, slurm_names, tell
from handwash.doctor import set_up
from handwash.doctor.evidence import Evidence, Finding, Machine, Smi
from handwash.messages import _, ngettext
from handwash.model import Gpu, Job, Judged, Node, Process, Unknown
from handwash.remarks import outlived_job
from handwash.schedulers.base import Partition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM, NOTICE = "problem", "notice"
# Of more processes left over than these the rest is for `check` to show.
_MOST_LEFT = 3
# What is told of a driver that cannot be asked, by the cause that the survey gives.
_DRIVER = {
    "driver-hangs": "driver-hangs",
    "driver-crashed": "driver-crashed",
    "driver-not-loaded": "driver-not-loaded",
    "driver-mismatch": "driver-mismatch",
    "driver-too-old": "driver-too-old",
    "driver-nonsense": "driver-broken",
    "driver-error": "driver-broken",
    "library-missing": "driver-library-missing",
    "library-broken": "driver-library-broken",
    "gpu-lost": "gpu-lost",
    "no-permission": "driver-no-permission",
    "bindings": "bindings-missing",
}


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Every finding, in the order in which a person should take them: where one is, the driver, the environment, set-up."""
    return tuple(
        found
        for part in (_place, _login_work, _scheduler, _smi, _driver, _visibility, _cuda, _gpus, set_up.findings)
        for found in part(evidence)
    )


def unsure(evidence: Evidence) -> tuple[str, ...]:
    """What could not be looked at, in words."""
    looks = (evidence.survey.node, evidence.survey.gpus, evidence.smi, evidence.machine, evidence.set_up)
    return tuple(look.why for look in (*looks, evidence.partitions) if isinstance(look, Unknown))


def try_line(evidence: Evidence) -> str | None:
    """A line that gets a GPU here; None where there is none to be had, or that could not be told."""
    wanted = best(evidence)
    return None if wanted is None else schedulers.here().partition_line(wanted) or None


def best(evidence: Evidence) -> Partition | None:
    """The partition of that line."""
    return evidence.partitions[0] if evidence.partitions and not isinstance(evidence.partitions, Unknown) else None


def own_job(evidence: Evidence) -> Job | None:
    """The row of the job that this shell is in."""
    node, jobs = evidence.survey.node, evidence.survey.jobs
    if isinstance(node, Unknown) or isinstance(jobs, Unknown) or node.job is None:
        return None
    return next((job for job in jobs if job.number == node.job), None)


def _get_one(evidence: Evidence) -> str:
    return (
        try_line(evidence)
        or schedulers.here().shell_line()
        or _("Ask for a job with a GPU, as this cluster's own pages say.")
    )


def _place(evidence: Evidence) -> Iterator[Finding]:
    node = evidence.survey.node
    if isinstance(node, Unknown):
        return
    why = " ".join(node.why)
    if node.kind == "login":
        what = _("This is a login node: it is for editing and submitting, its GPUs are on the compute nodes.")
        yield Finding("login-node", NOTICE, what, why, _get_one(evidence))
    elif node.kind == "allocation-shell":
        if node.held:
            what = ngettext(
                "You hold {count} GPU in job {job}, but this shell is on the login node: programs see it only through srun.",
                "You hold {count} GPUs in job {job}, but this shell is on the login node: programs see them only through srun.",
                node.held,
            )
        else:
            what = _(
                "You hold job {job}, but this shell is still on the login node: programs see its GPUs only through srun."
            )
        what = what.format(count=node.held, job=node.job)
        # Known of Slurm alone, whose salloc leaves its shell where it was.
        yield Finding("allocation-shell", NOTICE, what, why, slurm_names.here("srun --pty bash"))
    elif node.kind == "compute" and node.job is None:
        what = _("This is a compute node, but this shell is not inside a job of yours: no GPU of it is yours to use.")
        yield Finding("no-job", PROBLEM, what, why, _get_one(evidence))
    old = outlived_job(evidence.survey)
    if old is not None:
        what = _("This shell outlives its job {job}.")
        said = _("Job {job} is no longer in the queue.").format(job=old)
        yield Finding("shell-outlives-job", PROBLEM, what.format(job=old), said, "exit")
    beside = opened.over(evidence.survey)
    if old is None and beside is not None:
        what = _("This shell outlives your job {job}, which ran on this node when it was opened.")
        said = _("Job {job} is no longer in the queue.").format(job=beside)
        yield Finding("shell-outlives-job", PROBLEM, what.format(job=beside), said, "exit")
    job = own_job(evidence)
    asked_none = _variable(evidence) == "NoDevFiles"
    if node.kind == "compute" and (asked_none or (job is not None and job.gpus == 0)):
        what = _("This job asked for no GPU.")
        said = "CUDA_VISIBLE_DEVICES=NoDevFiles" if asked_none else _("Job {job} holds 0 GPUs.").format(job=node.job)
        yield Finding(
            "no-gpu-requested",
            PROBLEM,
            what,
            said,
            _("Leave it and ask for one: {line}").format(line=_get_one(evidence)),
        )
    yield from _container(evidence, node)


def _login_work(evidence: Evidence) -> Iterator[Finding]:
    """What `check` finds on a login node: left over is a problem, over the site's limits with somebody at it is a notice."""
    node, left, over = evidence.survey.node, evidence.left_over, evidence.over_limits
    if isinstance(node, Unknown) or node.kind not in ("login", "allocation-shell"):
        return
    said = [_left_over(one, evidence.now) for one in left[:_MOST_LEFT]] + ["…"] * (len(left) > _MOST_LEFT)
    said += [tell.over_limit(excess) for excess in over]
    if left:
        what = ngettext(
            "{count} process of yours is left over on this login node.",
            "{count} processes of yours are left over on this login node.",
            len(left),
        )
        yield Finding("login-work", PROBLEM, what.format(count=len(left)), " ".join(said), "handwash clean")
    elif over:
        what = _("Your processes are over this login node's limits, and everybody shares it.")
        remedy = _("Run it in a job: {line}").format(line=_get_one(evidence))
        yield Finding("login-work", NOTICE, what, " ".join(said), remedy)


def _left_over(one: Judged, now: float) -> str:
    """Which process, how old, how much it has computed, and why it counts."""
    sentence = _("{pid} {name}, {age} old, {cpu} of CPU time: {why}")
    process = one.process
    age, cpu = render.duration(now - process.started), render.duration(process.cpu_s)
    return sentence.format(pid=process.pid, name=process.name, age=age, cpu=cpu, why=one.why)


def _container(evidence: Evidence, node: Node) -> Iterator[Finding]:
    machine = evidence.machine
    if not node.container or isinstance(machine, Unknown) or machine.device_files:
        return
    if not isinstance(evidence.survey.gpus, Unknown) and evidence.survey.gpus:
        # The driver answers in here and names them.
        return
    job = own_job(evidence)
    if machine.hardware or (job is not None and job.gpus):
        what = _("This container was started without its GPUs.")
        said = _("The node has GPUs, and there is no /dev/nvidia* in here.")
        remedy = _(
            "Start it with the GPUs: apptainer exec --nv …, docker run --gpus all …, podman run --device nvidia.com/gpu=all …"
        )
        yield Finding("container-without-gpu", PROBLEM, what, said, remedy)


def _scheduler(evidence: Evidence) -> Iterator[Finding]:
    jobs = evidence.survey.jobs
    if isinstance(jobs, Unknown):
        what = _("The scheduler does not answer, so nothing is known of your jobs.")
        remedy = schedulers.here().server_line() or _("Send this to the administrator.")
        yield Finding("scheduler-unreachable", PROBLEM, what, jobs.why, remedy)


def _smi(evidence: Evidence) -> Iterator[Finding]:
    smi, node = evidence.smi, evidence.survey.node
    if isinstance(smi, Unknown):
        return
    at_login = not isinstance(node, Unknown) and node.kind in ("login", "allocation-shell")
    needed = not at_login and _has_hardware(evidence.machine)
    severity = PROBLEM if needed else NOTICE
    if smi.outcome == "missing":
        if smi.elsewhere:
            said = _("It lies at {path}, which is not on the PATH.").format(path=smi.elsewhere)
            remedy = f"export PATH=$PATH:{smi.elsewhere.rpartition('/')[0]}"
        else:
            said = _("nvidia-smi: command not found")
            remedy = _get_one(evidence) if at_login else _modules_hint(evidence.machine)
        what = (
            _("nvidia-smi is not installed on this login node, which says nothing of the compute nodes.")
            if at_login
            else _("nvidia-smi is not on the PATH here.")
        )
        yield Finding("nvidia-smi-missing", severity, what, said, remedy)
    elif smi.outcome == "no-gpu":
        what = (
            _("nvidia-smi runs and shows no GPU: none of this login node is yours to use.")
            if at_login
            else _("nvidia-smi runs and shows no GPU: none is handed to this shell.")
        )
        yield Finding("nvidia-smi-no-gpu", severity, what, _smi_said(smi), _get_one(evidence))
    elif smi.outcome == "error" and not isinstance(evidence.survey.gpus, Unknown):
        # The driver's own library has answered handwash, so it is the program that fails.
        what = _("nvidia-smi fails, though the driver answers.")
        yield Finding("nvidia-smi-fails", NOTICE, what, _smi_said(smi), f"{smi.path} -L")


def _smi_said(smi: Smi) -> str:
    code = "-" if smi.code is None else smi.code
    return _("nvidia-smi -L: exit code {code}: {said}").format(code=code, said=smi.said or "-")


def _has_hardware(machine: Machine | Unknown) -> bool:
    return not isinstance(machine, Unknown) and bool(machine.hardware or machine.device_files or machine.kernel_driver)


def _modules_hint(machine: Machine | Unknown) -> str:
    has = not isinstance(machine, Unknown) and machine.module_system
    return "module avail cuda" if has else "ls /usr/bin/nvidia-smi /usr/local/*/bin/nvidia-smi"


def _driver(evidence: Evidence) -> Iterator[Finding]:
    gpus, machine = evidence.survey.gpus, evidence.machine
    if not isinstance(gpus, Unknown):
        for gpu in gpus:
            if "lost" in gpu.trouble or "reset" in gpu.trouble:
                yield Finding("gpu-lost", PROBLEM, _lost(gpu), _notes(gpu), _tell_administrator())
            if "wedged" in gpu.trouble:
                what = _("GPU {index} is wedged: busy with nothing.").format(index=gpu.index)
                yield Finding("gpu-wedged", PROBLEM, what, _notes(gpu), _tell_administrator())
        return
    known = _DRIVER.get(gpus.cause)
    if known is None:
        return
    version = "" if isinstance(machine, Unknown) or not machine.kernel_driver else machine.kernel_driver
    said = gpus.why
    if version:
        said += " " + _("The loaded driver is {version}.").format(version=version)
    if not isinstance(evidence.smi, Unknown) and evidence.smi.said:
        said += " " + _smi_said(evidence.smi)
    what, remedy = _driver_words(known)
    yield Finding(known, PROBLEM, what, said, remedy)


def _driver_words(known: str) -> tuple[str, str]:
    administrator = _tell_administrator()
    return {
        "driver-hangs": (_("The NVIDIA driver does not answer."), administrator),
        "driver-crashed": (_("The NVIDIA driver's library crashes when it is asked."), administrator),
        "driver-not-loaded": (_("The NVIDIA driver is not loaded on this node."), administrator),
        "driver-mismatch": (
            _("The NVIDIA driver was updated and the node not rebooted: driver and library do not match."),
            administrator,
        ),
        "driver-too-old": (_("The NVIDIA driver is too old to be asked."), administrator),
        "driver-library-missing": (_("The NVIDIA driver's library is missing."), administrator),
        "driver-library-broken": (
            _("The NVIDIA driver's library cannot be loaded; another one on LD_LIBRARY_PATH may be in its way."),
            "env -u LD_LIBRARY_PATH nvidia-smi -L",
        ),
        "gpu-lost": (_("The NVIDIA driver has lost a GPU."), administrator),
        "driver-no-permission": (_("There is no permission to ask the NVIDIA driver."), "ls -l /dev/nvidia*"),
        "bindings-missing": (
            _("The Python package that asks the driver is missing or hidden."),
            "pip install --force-reinstall nvidia-ml-py",
        ),
    }.get(known, (_("The NVIDIA driver's answer makes no sense."), administrator))


def _tell_administrator() -> str:
    line = schedulers.here().other_node_line()
    if not line:
        return _("Send this to the administrator.")
    return _("Send this to the administrator, and ask for another node meanwhile: {line}").format(line=line)


def _lost(gpu: Gpu) -> str:
    if "reset" in gpu.trouble:
        return _("GPU {index} needs a reset.").format(index=gpu.index)
    return _("GPU {index} is lost: it has fallen off the bus.").format(index=gpu.index)


def _notes(gpu: Gpu) -> str:
    return " ".join((f"{gpu.index}: {gpu.uuid or '-'} {gpu.name}.", *gpu.notes))


def _visibility(evidence: Evidence) -> Iterator[Finding]:
    seen, value = evidence.survey.visibility, _variable(evidence)
    if value is not None and not value.strip() and not _asked_for_none(evidence):
        what = _("CUDA_VISIBLE_DEVICES is set and empty: it hides every GPU from programs started here.")
        yield Finding(
            "cuda-visible-devices-empty", PROBLEM, what, "CUDA_VISIBLE_DEVICES=", "unset CUDA_VISIBLE_DEVICES"
        )
    elif seen is None:
        return
    elif seen.rejected is not None and seen.kind == "repeated":
        what = _("CUDA_VISIBLE_DEVICES names a GPU twice: programs started here see none.")
        yield Finding(
            "cuda-visible-devices-invalid", PROBLEM, what, f"CUDA_VISIBLE_DEVICES={seen.value}", _reset(evidence)
        )
    elif seen.rejected is not None:
        what = _("CUDA_VISIBLE_DEVICES names a GPU that is not here: {entry}. It is hidden, and so are all after it.")
        count = 0 if isinstance(evidence.survey.gpus, Unknown) else len(evidence.survey.gpus)
        said = ngettext("This shell is shown {count} GPU", "This shell is shown {count} GPUs", count).format(
            count=count
        )
        said = f"CUDA_VISIBLE_DEVICES={seen.value}. {said}{f', 0-{count - 1}' if count else ''}."
        yield Finding(
            "cuda-visible-devices-invalid", PROBLEM, what.format(entry=repr(seen.rejected)), said, _reset(evidence)
        )


def _variable(evidence: Evidence) -> str | None:
    """CUDA_VISIBLE_DEVICES as it is; unset hides nothing, set and empty hides all."""
    return None if isinstance(evidence.machine, Unknown) else evidence.machine.cuda_visible


def _asked_for_none(evidence: Evidence) -> bool:
    """Some releases leave the variable empty in a job without a GPU: that is no mistake of the person's."""
    job = own_job(evidence)
    return job is not None and job.gpus == 0


def _reset(evidence: Evidence) -> str:
    gpus = evidence.survey.gpus
    count = 0 if isinstance(gpus, Unknown) else sum(gpu.vendor == "NVIDIA" for gpu in gpus)
    if not count:
        return "unset CUDA_VISIBLE_DEVICES"
    return "export CUDA_VISIBLE_DEVICES=" + ",".join(str(number) for number in range(count))


def _cuda(evidence: Evidence) -> Iterator[Finding]:
    machine = evidence.machine
    if isinstance(machine, Unknown) or machine.module_system is None or machine.runtime is not None:
        return
    loaded = [name for name in machine.modules if any(word in name.lower() for word in ("cuda", "nvhpc"))]
    if not loaded:
        what = _(
            "No CUDA module is loaded and the CUDA runtime is not on LD_LIBRARY_PATH: programs that need it see no GPU."
        )
        said = _("{sign} is set, so there is a module system; loaded: {modules}.")
        modules = ", ".join(machine.modules) or "-"
        remedy = "module avail cuda; module load cuda"
        yield Finding(
            "cuda-module-not-loaded", NOTICE, what, said.format(sign=machine.module_system, modules=modules), remedy
        )


def _gpus(evidence: Evidence) -> Iterator[Finding]:
    gpus = evidence.survey.gpus
    if isinstance(gpus, Unknown):
        return
    shared = [gpu for gpu in gpus if gpu.shared]
    if shared:
        what = _("GPUs here are shared, so part of their memory and time belongs to others: {gpus}")
        names = ", ".join(f"{gpu.index} ({', '.join(gpu.sharing) or '?'})" for gpu in shared)
        line = schedulers.here().whole_gpu_line()
        remedy = _("For a whole GPU: {line}").format(line=line) if line else _("Ask for a job with a whole GPU.")
        yield Finding("gpu-shared", NOTICE, what.format(gpus=names), _notes(shared[0]), remedy)
    me = {one.uid for one in _own(evidence)}
    users: dict[int, set[str]] = {}
    if not isinstance(evidence.survey.processes, Unknown):
        for process in evidence.survey.processes:
            if process.uid not in me and process.uid != 0 and process.gpus and process.state not in ("Z", "X"):
                for index in process.gpus:
                    users.setdefault(index, set()).add(f"{process.pid} {process.name} ({process.user})")
    if users:
        what = _("Other people's processes are on GPUs that you see: {gpus}. nvidia-smi counts them too.")
        said = "; ".join(f"{index}: {', '.join(sorted(names)[:3])}" for index, names in sorted(users.items()))
        remedy = _("They are not yours to end. Look at what is yours: handwash check")
        indices = ", ".join(str(index) for index in sorted(users))
        yield Finding("other-users", NOTICE, what.format(gpus=indices), said, remedy)


def _own(evidence: Evidence) -> Iterator[Process]:
    processes = evidence.survey.processes
    if not isinstance(processes, Unknown):
        yield from (process for process in processes if process.pid in evidence.survey.chain)
