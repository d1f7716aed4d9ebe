"""PBS as the survey asks it: command lines, and pure readers of what comes back.

Measured on OpenPBS 23.06 and its head of 2026; read in the sources of 19.1, 20.0, 22.05 and 23.06 (qstat.c, req_select.c).
Never JSON: qstat prints invalid JSON for some values and names. In `-f -w` each attribute is one line, for newlines are
escaped in it, so that no name and no variable of a job can begin another attribute or another job.

A reader gives the answer or raises `CouldNotTell`; an empty queue and a queue that could not be read are never the same.
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.messages import _
from handwash.model import Job
from handwash.run import CouldNotTell
from handwash.schedulers.slurm import GPU_NAMES, digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from handwash.run import Result

# qstat prints times by the clock of its own environment, and without a zone: a local time that there was twice, when the
# clocks were set back, could not be told apart.
ENVIRONMENT = {"TZ": "UTC0"}
# qstat's letters (job.h, qstat(1)) in the words that the rest of handwash has from Slurm.
_WORDS = {
    "Q": "PENDING",
    "H": "PENDING",  # held, by whomever
    "W": "PENDING",  # it has a time before which it may not begin
    "T": "PENDING",  # on its way to another queue or server
    "B": "PENDING",  # an array of which something has begun: what of it has not
    "R": "RUNNING",
    "S": "SUSPENDED",
    "U": "SUSPENDED",  # the workstation it runs on is in use
    "E": "COMPLETING",
}
# No longer in the queue: finished, moved to another server, a subjob that is over.
ENDED = frozenset("FMX")
# Resources under which sites count GPUs: PBS's own `ngpus` and `naccelerators`, and names like them that a site chose.
_RESOURCES = {form: name for name in GPU_NAMES for form in (name, f"{name}s", f"n{name}", f"n{name}s")}
# By how much the clocks of the server and of this host may differ.
CLOCKS_APART_S = 60
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@frozen
class Queue:
    """What qstat has said. `begun`: some array has subjobs that run, which `subjobs_argv` asks for."""

    jobs: tuple[Job, ...]
    begun: bool = False


def jobs_argv(user: str) -> list[str]:
    """One request for all jobs of one person, arrays as one; to be run with `ENVIRONMENT`.

    With `-w` beside `-f` the list that `-u` chooses comes in full (qstat.c, 19.1 on).
    """
    return ["qstat", "-f", "-w", "-u", user]


def subjobs_argv(user: str) -> list[str]:
    """The jobs and subjobs of one person that run, and no others: an array can have ten thousand that wait.

    A subjob in state E is not among them; it is that for some seconds (req_select.c, `-r` is the states R and S).
    """
    return ["qstat", "-f", "-w", "-t", "-r", "-u", user]


def parse_jobs(result: Result, user: str, now: float) -> Queue:
    """The person's jobs in qstat's answer of `now` (seconds since the epoch).

    Raises CouldNotTell for anything that is not a whole, clean answer.
    """
    jobs = []
    begun = False
    for record in own_records(result, user):
        state = record["job_state"]
        if state in ENDED:
            continue
        counts = _array_counts(record.get("array_state_count", ""))
        begun = begun or counts.get("Running", 0) > 0
        # An array stands for those of it that wait; with none of these there is nothing more to say of it.
        if state == "B" and counts.get("Queued") == 0:
            continue
        jobs.append(_job(record, now))
    return Queue(tuple(jobs), begun)


def with_subjobs(queue: Queue, subjobs: Queue) -> tuple[Job, ...]:
    """All jobs, of the answers to `jobs_argv` and then to `subjobs_argv`."""
    known = {job.id for job in queue.jobs}
    return (*queue.jobs, *(job for job in subjobs.jobs if job.id not in known))


def own_records(result: Result, user: str) -> list[dict[str, str]]:
    """The records of one person in qstat's answer, each with its id and what every job has: owner, state, queue.

    The owner may have submitted from any host, so only the name counts. Raises CouldNotTell.
    """
    found = []
    for record in records(result):
        if not is_job_id(record["Job Id"]) or not all(name in record for name in ("Job_Owner", "job_state", "queue")):
            raise CouldNotTell(_("qstat printed a job that cannot be read."))
        if record["Job_Owner"].partition("@")[0] != user:
            continue
        if record["job_state"] not in _WORDS and record["job_state"] not in ENDED:
            raise CouldNotTell(_("qstat printed a job that cannot be read."))
        found.append(record)
    return found


def records(result: Result) -> list[dict[str, str]]:
    """Every job in qstat's answer by its attributes' names, its id as `Job Id`. No jobs are no output (measured).

    Values are as qstat prints them: a newline as `\\n`, another control character as `^[`. Raises CouldNotTell.
    """
    words = result.err.decode("utf-8", "replace").strip()
    if result.timed_out:
        raise CouldNotTell(_("qstat did not answer in time: the PBS server is slow or down. Try `qstat` yourself."))
    if result.capped:
        raise CouldNotTell(_("qstat printed more than can be read."))
    if result.code != 0 or words:
        said = words.splitlines()[-1] if words else _("no reason given")
        raise CouldNotTell(_("qstat failed (exit code {code}): {said}").format(code=result.code, said=said))
    return parse_records(result.out.decode("utf-8", "replace"))


def parse_records(text: str) -> list[dict[str, str]]:
    """The records in a text. Raises CouldNotTell."""
    found: list[dict[str, str]] = []
    if not text.strip():
        return found
    # Each record ends with an empty line, the last one too.
    if not text.endswith("\n\n"):
        raise CouldNotTell(_("qstat's answer breaks off in the middle."))
    for line in text.split("\n"):
        if line.startswith("Job Id: "):
            found.append({"Job Id": line[8:].strip()})
            continue
        name, equals, value = line[4:].partition(" = ")
        if not line:
            continue
        if not found or not line.startswith("    ") or not equals or not name or " " in name or name in found[-1]:
            raise CouldNotTell(_("qstat printed a job that cannot be read."))
        found[-1][name] = value
    return found


def is_job_id(text: str) -> bool:
    """`123`, `123.server`, `123[].server` of an array, `123[4].server` of a subjob."""
    number, dot, server = text.partition(".")
    head, bracket, rest = number.partition("[")
    if not digits(head) or (bracket and (rest[-1:] != "]" or (rest != "]" and not digits(rest[:-1])))):
        return False
    named = bool(server) and server.isascii() and all(c.isalnum() or c in "._-:" for c in server)
    return named if dot else True


def _job(record: Mapping[str, str], now: float) -> Job:
    state = _WORDS[record["job_state"]]
    return Job(
        id=record["Job Id"],
        # As PBS_JOBID of its own processes.
        number=record["Job Id"],
        state=state,
        name=record.get("Job_Name", ""),
        partition=record["queue"],
        nodes=parse_hosts(record.get("exec_host", "")),
        gpus=count_gpus(record),
        elapsed_s=elapsed(record, now),
        limit_s=parse_time(record.get("Resource_List.walltime", "")),
        interactive={"True": True, "": False, "False": False}.get(record.get("interactive", "")),
        # The server's own word; PBS_O_HOST in Variable_List is the person's.
        alloc_host=record["Job_Owner"].partition("@")[2],
    )


def elapsed(record: Mapping[str, str], now: float) -> int | None:
    """Seconds since a job began, without a suspension that lasts; 0 before; None where that cannot be told."""
    state = _WORDS.get(record["job_state"])
    if state == "PENDING":
        return 0
    if state == "SUSPENDED":
        return parse_time(record.get("resources_used.walltime", ""))
    # resources_used.walltime lags behind by minutes.
    started = parse_utc(record.get("stime", ""))
    if started is None or started > now + CLOCKS_APART_S:
        return None
    return max(0, int(now - started))


def word(letter: str) -> str:
    """The word for one of qstat's letters."""
    return _WORDS[letter]


def _array_counts(text: str) -> dict[str, int]:
    """`Queued:0 Running:3 Exiting:0 Expired:0`"""
    pairs = (word.partition(":") for word in text.split())
    return {name: int(count) for name, _colon, count in pairs if digits(count)}


def parse_hosts(text: str) -> tuple[str, ...]:
    """The hosts of `n1/0*4+n1/1+n2/0`, each once, in order."""
    names = (part.partition("/")[0] for part in text.split("+"))
    return tuple(dict.fromkeys(name for name in names if name))


def parse_time(text: str) -> int | None:
    """Seconds of `H:MM:SS`, `MM:SS`, or of a plain number of them; None where there is no such time."""
    parts = text.split(":")
    if not 1 <= len(parts) <= 3 or not all(digits(part) for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds


def parse_utc(text: str) -> int | None:
    """Seconds since the epoch of `Mon Nov 30 16:00:13 2026` in UTC (ctime(3)); None where that is no time."""
    words = text.split()
    if len(words) != 5 or words[1] not in _MONTHS or not digits(words[2]) or not digits(words[4]):
        return None
    clock = words[3].split(":")
    day, year = int(words[2]), int(words[4])
    if len(clock) != 3 or not all(digits(part) and int(part) < 61 for part in clock) or not 1 <= day <= 31:
        return None
    if not 1970 <= year <= 9999:
        return None
    # Days in the proleptic Gregorian calendar, years from March on. Neither calendar nor strptime: their imports are slow.
    month = _MONTHS.index(words[1]) + 1
    year -= month < 3
    days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - 719468
    return days * 86400 + int(clock[0]) * 3600 + int(clock[1]) * 60 + int(clock[2])


def gpu_kind(resource: str) -> str | None:
    """Which kind of GPU a resource counts: `gpu` for `ngpus`, `dcu` for `ndcu`; None for one that counts something else."""
    return _RESOURCES.get(resource.lower())


def count_gpus(record: Mapping[str, str]) -> int | None:
    """GPUs that a job holds or asks for: what it was given, else its total, else its chunks multiplied out.

    None where that cannot be told: whole nodes (`place=excl`), a count that does not parse.
    """
    placement = record.get("Resource_List.place", "").split(":")
    if "excl" in placement or "exclhost" in placement:
        return None
    totals = [
        f"{name[14:]}={value}"
        for name, value in record.items()
        if name.startswith("Resource_List.") and gpu_kind(name[14:]) is not None
    ]
    given = record.get("exec_vnode", "").replace("(", "").replace(")", "")
    asked = (record.get("Resource_List.select", ""), record.get("Resource_List.nodes", ""))
    # A vnode can be called by a number.
    for chunks, multiplied in ((given, False), (":".join(totals), False), *((chunks, True) for chunks in asked)):
        gpus = _gpus_in(chunks, multiplied)
        if gpus != 0:
            return gpus
    return 0


def _gpus_in(chunks: str, multiplied: bool) -> int | None:
    """GPUs in chunks such as `2:ncpus=1:ngpus=1+1:ncpus=2`; None where a count cannot be read.

    `multiplied`: a chunk may begin with how often it is asked for.
    """
    total = 0
    for chunk in chunks.split("+"):
        parts = chunk.split(":")
        times = int(parts[0]) if multiplied and digits(parts[0]) else 1
        # A site may have one kind under two names.
        kinds: dict[str, int] = {}
        for part in parts:
            name, _equals, count = part.partition("=")
            kind = gpu_kind(name)
            if kind is None:
                continue
            if not digits(count):
                return None
            kinds[kind] = max(kinds.get(kind, 0), int(count))
        total += times * sum(kinds.values())
    return total
