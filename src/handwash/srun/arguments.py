"""srun's command line, taken apart without changing a word of it.

getopt_long(3) with `+`: options end at the first word that is none. Long options may be cut short where that is unique, a
value may be attached, short flags may be bundled, `--` ends the options, and a word `:` begins the next component of a
heterogeneous job, even among the arguments of a command (22.05: `srun echo a : b` runs `echo a` and `b`).
"""

from __future__ import annotations

from handwash.frozen import frozen
from handwash.srun.options import OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # An option table, as `OPTIONS`: salloc and sbatch have their own, and take their words apart by the same rules.
    Table = Mapping[str, tuple[str, str, str, str]]

SHORT = {short: name for name, (_argument, short, _since, _until) in OPTIONS.items() if short}


@frozen
class Option:
    """One option: its full name, its value where it has one, the words it was given in (bundled shorts share one)."""

    name: str
    value: str | None
    words: tuple[str, ...]


@frozen
class Component:
    """One component: its options, whether `--` ended them, and its command (empty where the next component names it)."""

    options: tuple[Option, ...]
    words: tuple[str, ...]
    dashes: bool
    command: tuple[str, ...]

    def get(self, name: str) -> str | None:
        """The value of the last option of this name (empty for a flag), None where it was not given."""
        for option in reversed(self.options):
            if option.name == name:
                return option.value or ""
        return None


@frozen
class CommandLine:
    """What the person typed after `safe-srun`. `doubtful`: an option that srun itself will refuse; it says so best."""

    components: tuple[Component, ...]
    doubtful: str | None = None

    def has(self, *names: str) -> bool:
        """Whether any component has one of these options."""
        return any(option.name in names for component in self.components for option in component.options)

    def get(self, name: str) -> str | None:
        """The value of the last option of this name in any component."""
        for component in reversed(self.components):
            found = component.get(name)
            if found is not None:
                return found
        return None

    def words(self) -> list[str]:
        """The command line again, as it was."""
        return self.build(lambda component: component.command)

    def build(
        self,
        command: Callable[[Component], Sequence[str]],
        more: Callable[[Component], Sequence[str]] = lambda component: (),
    ) -> list[str]:
        """The words with each component's command replaced and options added after the person's own."""
        words: list[str] = []
        for number, component in enumerate(self.components):
            if number:
                words.append(":")
            words += component.words
            if component.command:
                words += more(component)
            if component.dashes:
                words.append("--")
            words += command(component)
        return words


def release_key(release: str) -> tuple[int, ...]:
    """`22.05` or `22.05.8` to something comparable; what is not a number (the newest sources) comes last."""
    try:
        return tuple(int(part) for part in release.split(".")[:2])
    except ValueError:
        return (9999,)


def candidates(given: str, release: str | None, table: Table = OPTIONS) -> list[str]:
    """The options that a long name may mean: itself, else all that begin with it (those of one release, if told)."""
    if given in table:
        return [given]
    found = []
    for name, (_argument, _short, since, until) in table.items():
        if not name.startswith(given):
            continue
        if release is not None:
            now = release_key(release)
            if (since and now < release_key(since)) or (until and now > release_key(until)):
                continue
        found.append(name)
    return found


def long_option(
    given: str, ask: Callable[[str], str], release: Callable[[], str | None], table: Table = OPTIONS
) -> tuple[str, str]:
    """A long name as given to (full name, argument); the argument is `unknown` where srun will refuse it."""
    found = candidates(given, None, table)
    if len(found) > 1:
        # Only the installed release can tell: `--cont` is `--contiguous` in 20.11, ambiguous since.
        found = candidates(given, release(), table)
    if len(found) == 1:
        return found[0], table[found[0]][0]
    return given, ask(given)


def parse(
    words: Sequence[str],
    ask: Callable[[str], str] = lambda name: "unknown",
    release: Callable[[], str | None] = lambda: None,
    table: Table = OPTIONS,
) -> CommandLine:
    """Takes a command line apart. `ask` and `release` turn to the real srun, only where the table does not settle it.

    `ask` answers for a long option: `no`, `required`, or `unknown` where srun will refuse it. `table`: the options, srun's
    unless told.
    """
    components: list[Component] = []
    position = 0
    doubtful: str | None = None
    words = list(words)
    while True:
        component, position, unclear = parse_component(words, position, ask, release, table)
        components.append(component)
        doubtful = doubtful or unclear
        if position >= len(words):
            return CommandLine(tuple(components), doubtful)
        position += 1


def parse_component(
    words: Sequence[str],
    start: int,
    ask: Callable[[str], str],
    release: Callable[[], str | None],
    table: Table = OPTIONS,
) -> tuple[Component, int, str | None]:
    """One component from `start` on; also where it ends (at a colon or the end), and an option that srun will refuse."""
    shorts = SHORT if table is OPTIONS else {row[1]: name for name, row in table.items() if row[1]}
    options: list[Option] = []
    position = start
    doubtful: str | None = None
    dashes = False
    while position < len(words):
        word = words[position]
        if word == "--":
            dashes = True
            break
        if not word.startswith("-") or word == "-":
            break
        position += 1
        if word.startswith("--"):
            given, equals, attached = word[2:].partition("=")
            name, argument = long_option(given, ask, release, table)
            value = attached if equals else None
            used: tuple[str, ...] = (word,)
            if argument == "required" and not equals and position < len(words):
                value = words[position]
                used = (word, value)
                position += 1
            options.append(Option(name, value, used))
            if argument == "unknown":
                doubtful = doubtful or word
        else:
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                name = shorts.get(letter, "")
                argument = table[name][0] if name else "unknown"
                value = None
                used = (word,)
                if argument in ("required", "optional") and letters:
                    value, letters = letters, ""
                elif argument == "required" and position < len(words):
                    value = words[position]
                    used = (word, value)
                    position += 1
                elif argument == "unknown":
                    doubtful = doubtful or word
                options.append(Option(name or letter, value, used))
    taken = tuple(words[start:position])
    if dashes:
        position += 1
    end = position
    while end < len(words) and words[end] != ":":
        end += 1
    return Component(tuple(options), taken, dashes, tuple(words[position:end])), end, doubtful
