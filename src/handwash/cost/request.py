"""What one component of a job asks for: from its options to nodes, tasks, GPUs and a time limit. Pure."""

from __future__ import annotations

from handwash.cost import amounts
from handwash.cost.amounts import Gres
from handwash.frozen import frozen
from handwash.messages import _
from handwash.schedulers.slurm import expand_hostlist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from handwash.srun.arguments import Option, Table

_SAME = {"tasks-per-node": "ntasks-per-node", "ntasks-per-tres": "ntasks-per-gpu", "cluster": "clusters"}
# --exclusive with one of these words does not give whole nodes (slurm_opt.c, `arg_set_exclusive`).
_PARTS = ("sockets-per-node", "cores-per-socket", "threads-per-core")
_SHARING_WORDS = ("user", "mcs", "topo", "oversubscribe")


class Options:
    """Options by name, the last one given winning, as getopt and the environment set them."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def add(self, options: Iterable[Option]) -> None:
        """Options of a command line or a script."""
        for option in options:
            self._set(option.name, option.value or "")

    def add_variables(self, variables: Sequence[tuple[str, str]], env: Mapping[str, str], table: Table) -> None:
        """The variables of `env` that stand for options; a flag is set by "", "yes" and numbers other than 0, else reset."""
        for variable, option in variables:
            value = env.get(variable)
            if value is None:
                continue
            if table.get(option, ("required",))[0] == "no" and value and value.lower() != "yes":
                if not value.lstrip("+-").isdigit() or not int(value):
                    self.values.pop(_SAME.get(option, option), None)
                    continue
            self._set(option, value)

    def _set(self, name: str, value: str) -> None:
        name = _SAME.get(name, name)
        if name in ("exclusive", "oversubscribe"):
            # Both say how the nodes are shared: the last one does.
            self.values.pop("exclusive", None)
            self.values.pop("oversubscribe", None)
        if name == "extra-node-info":
            # Sockets, cores, threads; of a range its beginning, and nothing or `*` for any (proc_args.c).
            for part, count in zip(_PARTS, (value + "::").split(":")):
                low = count.partition("-")[0]
                self.values.pop(part, None)
                if low not in ("", "*"):
                    self.values[part] = low
        # Both name the nodes: the last one does.
        if name in ("nodefile", "nodelist"):
            self.values.pop("nodefile", None)
            self.values.pop("nodelist", None)
        self.values[name] = value

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def number(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None else amounts.number(name, value)


@frozen
class Request:
    """One component. `nodes`, `tasks`: the fewest and the most; None for as many as there are.

    `per_job`, `per_node`, `per_task`, `per_socket`: what is asked for each of them; `sockets`: on each node, 0 where
    not told. `time_s`: seconds, None for no limit or none named (`time_given` tells which). `names`: the nodes named.
    """

    nodes: tuple[int, int | None] = (1, 1)
    tasks: tuple[int, int | None] = (1, 1)
    per_job: Gres | None = None
    per_node: Gres = Gres()
    per_task: Gres = Gres()
    per_socket: Gres = Gres()
    sockets: int = 0
    exclusive: bool = False
    time_given: str | None = None
    time_s: int | None = None
    partitions: tuple[str, ...] = ()
    cluster: str = ""
    names: tuple[str, ...] = ()

    def lists(self) -> tuple[Gres, ...]:
        return (self.per_job or Gres(), self.per_node, self.per_task, self.per_socket)

    @property
    def strange(self) -> str:
        """A resource that is asked for and not known here, or ""."""
        return next((one.strange for one in self.lists() if one.strange), "")

    @property
    def any_gpus(self) -> bool:
        """Whether GPUs are asked for by number."""
        return any(one.any() for one in self.lists())


def request(options: Options, command: str) -> Request:
    """Reads the options of `srun`, `salloc` or `sbatch`. Raises `amounts.Unreadable` for a value that Slurm would refuse."""
    nodes, tasks = _shape(options, command)
    per_job = _gpus(options, "gpus")
    per_node = _most(amounts.gres(options.get("gres") or ""), _gpus(options, "gpus-per-node"))
    per_task = _most(amounts.gres_of_tres(options.get("tres-per-task") or ""), _gpus(options, "gpus-per-task"))
    per_socket = _gpus(options, "gpus-per-socket") or Gres()
    each = options.number("ntasks-per-gpu")
    asked = [one for one in (per_job, per_node, per_task, per_socket) if one and one.any()]
    if each and not asked:
        # Tasks over tasks per GPU (gres.c, "Simulate a tres_per_job specification"). Where their number is not given it follows
        # from the nodes, or from the sockets, cores and threads.
        count = options.number("ntasks")
        per_job = Gres(gpus=(max(tasks[1] or 0, each * (nodes[1] or 1)) if count is None else count) // each)
    elif each and options.get("nodes") is None:
        # The tasks follow from the GPUs, and as many nodes may be taken as there are tasks.
        gpus = max(one.gpus for one in asked) * max(1, nodes[0]) * max(1, options.number(_PARTS[0]) or 1)
        nodes = (nodes[0], max(nodes[1] or 1, gpus * each))
    if per_job and not options.get("ntasks") and per_task.gpus:
        # The tasks follow from both.
        count = -(-per_job.gpus // per_task.gpus)
        tasks = (count, count)
        if options.get("nodes") is None and options.get("nodelist") is None:
            nodes = (1, count)
    exclusive = options.get("exclusive")
    sockets = options.number("sockets-per-node")
    if sockets is None and per_socket.any():
        raise amounts.Unreadable(_("--gpus-per-socket needs --sockets-per-node."))
    limit = options.get("time")
    nodelist = options.get("nodelist") or ""
    return Request(
        nodes=nodes,
        tasks=tasks,
        per_job=per_job,
        per_node=per_node,
        per_task=per_task,
        per_socket=per_socket,
        sockets=sockets or 0,
        exclusive=exclusive is not None and exclusive.lower() not in _SHARING_WORDS,
        time_given=limit,
        time_s=None if limit is None else amounts.time_limit(limit),
        partitions=tuple(name for name in (options.get("partition") or "").split(",") if name),
        cluster=options.get("clusters") or "",
        names=() if "/" in nodelist else tuple(dict.fromkeys(expand_hostlist(nodelist))),
    )


def _gpus(options: Options, name: str) -> Gres | None:
    value = options.get(name)
    return None if value is None else amounts.gres(value, name, "gpu:")


def _most(one: Gres, other: Gres | None) -> Gres:
    """Both options set the same field of the job: of one kind the last is in force, of two kinds each."""
    other = other or Gres()
    most = (max(one.gpus, other.gpus), max(one.shards, other.shards), max(one.mps, other.mps))
    return Gres(*most, one.strange or other.strange)


def _shape(options: Options, command: str) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
    """Nodes and tasks, as opt.c of the three commands ("massage the numbers") and job_mgr.c settle them.

    Where -n is given and -N is not, each node has at least one task: so many nodes at most.
    """
    tasks, per_node = options.number("ntasks"), options.number("ntasks-per-node")
    given, nodelist = options.get("nodes"), options.get("nodelist")
    hostfile = options.get("hostfile") is not None and nodelist is None and options.get("nodefile") is None
    # A name with a slash is one of a file with names (proc_args.c, `verify_node_list`).
    in_file = options.get("nodefile") is not None or hostfile or "/" in (nodelist or "")
    named = () if in_file else expand_hostlist(nodelist or "")
    arbitrary = hostfile or (options.get("distribution") or "").lower().startswith("arbitrary")
    if (in_file or (arbitrary and not named)) and (given is None or (arbitrary and tasks is None)):
        raise amounts.Unreadable(_("The nodes are named in a file, which is not read here."))
    low, high = 1, None
    if given is not None:
        low, high = amounts.node_range(given)
    elif named:
        low = len(set(named))
        high = low if arbitrary else None
    if arbitrary and named and tasks is None:
        # A task for each name; that takes no node away.
        return (low, high or low), (len(named), max(len(named), high or low))
    is_set = given is not None or bool(named) or options.get("extra-node-info") is not None
    if is_set and tasks is None and per_node is None and high in (low, None):
        tasks_low = low * _parts_of_a_node(options, command)
        # Slurm takes no node for a task that it does not need; where -N does not say how many, it may take one for each.
        return (low, high or max(low, tasks_low)), (tasks_low, tasks_low)
    if tasks is None:
        each = max(per_node or 1, _parts_of_a_node(options, command))
        return (low, high or low), (low * (per_node or 1), (high or low) * each)
    if per_node and given is None and not named:
        low = -(-tasks // per_node)
    if tasks < low:
        low, high = tasks, min(high or tasks, tasks)
    return (low, min(high or tasks, tasks)), (tasks, tasks)


def _parts_of_a_node(options: Options, command: str) -> int:
    """A task for each socket, core or thread asked for: srun wants all three numbers for that, the others any of them."""
    counts = [options.number(name) for name in _PARTS]
    if command == "srun" and None in counts:
        return 1
    product = 1
    for count in counts:
        product *= count or 1
    return product


def unclear_cluster(asked: Request) -> str | None:
    """Why the partition cannot be asked: the job may go to any of several clusters."""
    if "," in asked.cluster or asked.cluster.lower() == "all":
        return _("It may go to any of several clusters: {clusters}.").format(clusters=asked.cluster)
    return None
