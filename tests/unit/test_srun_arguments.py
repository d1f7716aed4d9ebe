"""srun's command line taken apart: nothing is lost, and the command begins where srun would have it begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handwash.srun import arguments, launch
from handwash.srun.arguments import parse
from handwash.srun.options import OPTIONS

values = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=6).filter(
    lambda text: text != ":"
)
plain_words = values.filter(lambda text: text not in ("", "--") and not text.startswith("-"))


@st.composite
def option(draw):
    """One option in one of the ways in which it can be written: (words, name, value)."""
    name = draw(st.sampled_from(sorted(OPTIONS)))
    kind, short, _since, _until = OPTIONS[name]
    value = draw(values)
    forms = [([f"--{name}={value}"], value)]
    if kind == "required":
        forms.append(([f"--{name}", value], value))
    else:
        forms = [([f"--{name}"], None)] + (forms if kind == "optional" else [])
    if short:
        if kind == "required":
            forms.append(([f"-{short}", value], value))
        if kind == "no":
            forms.append(([f"-{short}"], None))
        elif value:
            forms.append(([f"-{short}{value}"], value))
    words, value = draw(st.sampled_from(forms))
    return words, name, value


@st.composite
def component(draw):
    given_options = draw(st.lists(option(), max_size=5))
    dashes = draw(st.booleans())
    command = [draw(plain_words), *draw(st.lists(values, max_size=4))]
    words = [word for words, _name, _value in given_options for word in words]
    return words + (["--"] if dashes else []) + command, given_options, tuple(command)


@given(st.lists(component(), min_size=1, max_size=3))
def test_any_command_line_is_understood_and_reassembles(components):
    words = []
    for number, (part, _options, _command) in enumerate(components):
        words += ([":"] if number else []) + part
    line = parse(words)
    assert line.words() == words
    assert line.doubtful is None
    assert [found.command for found in line.components] == [command for _part, _options, command in components]
    for found, (_part, options, _command) in zip(line.components, components):
        assert [(one.name, one.value) for one in found.options] == [(name, value) for _words, name, value in options]


@given(st.lists(component(), min_size=1, max_size=3))
def test_what_is_put_before_the_command_leaves_srun_its_options(components):
    words = []
    for number, (part, _options, _command) in enumerate(components):
        words += ([":"] if number else []) + part
    line = parse(words)
    changed = parse(line.build(lambda found: ["/bin/sh", "-c", *found.command], lambda found: ["--job-name=x"]))
    for before, after in zip(line.components, changed.components):
        assert after.command == ("/bin/sh", "-c", *before.command)
        assert after.options[:-1] == before.options
        assert after.options[-1].name == "job-name"
        assert after.dashes == before.dashes


@given(st.lists(values, max_size=8))
def test_any_words_at_all_reassemble(words):
    assert parse(words).words() == words


def test_short_flags_are_bundled_and_values_attached():
    found = parse(["-lQn3", "-N2", "-K", "-I60", "-v", "-vv", "run", "-n9"]).components[0]
    assert [(one.name, one.value) for one in found.options] == [
        ("label", None), ("quiet", None), ("ntasks", "3"), ("nodes", "2"), ("kill-on-bad-exit", None),
        ("immediate", "60"), ("verbose", None), ("verbose", None), ("verbose", None),
    ]  # fmt: skip
    assert found.command == ("run", "-n9")


def test_quiet_and_qos_are_not_mixed_up():
    assert parse(["-q", "high", "run"]).get("qos") == "high"
    assert parse(["-Q", "run"]).has("quiet")


def test_an_optional_argument_never_takes_the_next_word():
    for words in (["--pty", "bash"], ["--overlap", "bash"], ["--bcast", "bash"], ["-k", "bash"], ["--nice", "bash"]):
        assert parse(words).components[0].command == ("bash",)


def test_unique_abbreviations():
    assert parse(["--ntasks-per-n", "2", "run"]).get("ntasks-per-node") == "2"
    assert parse(["--lab", "run"]).has("label")
    assert parse(["--qos", "x", "run"]).get("qos") == "x"


def test_the_release_settles_an_abbreviation():
    words = ["--cont", "run"]
    assert parse(words, release=lambda: "20.11.9").has("contiguous")
    assert parse(words, release=lambda: "22.05.8").doubtful == "--cont"


def test_an_option_of_a_plug_in_is_asked_of_srun():
    asked = []

    def ask(name):
        asked.append(name)
        return {"container-image": "required", "no-x11": "no"}.get(name, "unknown")

    line = parse(["--container-image", "ubuntu", "--no-x11", "run", "--fast"], ask)
    assert line.components[0].command == ("run", "--fast")
    assert line.get("container-image") == "ubuntu"
    assert asked == ["container-image", "no-x11"]
    assert parse(["--nonsense", "run"], ask).doubtful == "--nonsense"


def test_a_colon_begins_a_component_anywhere():
    line = parse(["-n1", "echo", "a", ":", "-n2", "--", "b", ":", "-n3"])
    assert [found.command for found in line.components] == [("echo", "a"), ("b",), ()]
    assert line.build(lambda found: ["x", *found.command] if found.command else []) == [
        "-n1", "x", "echo", "a", ":", "-n2", "--", "x", "b", ":", "-n3",
    ]  # fmt: skip


def test_what_can_be_supervised(monkeypatch):
    monkeypatch.setattr(launch.world, "env", {})

    def way(*words):
        return launch.choose(parse(words))

    assert way("-n2", "run").supervised and way("--multi-prog", "file").supervised
    for words in (
        ["--bcast", "run"],
        ["--container=x", "run"],
        ["--external-launcher", "run"],
    ):
        assert not way(*words).supervised and not way(*words).plain and way(*words).warning
    for words in (["--help"], ["-V"], ["--usage"], ["--test-only", "run"], ["-n2"], ["--nonsense", "run"], []):
        assert way(*words).plain and not way(*words).warning
    assert way("-Z", "run").plain and way("-Z", "run").warning


def test_a_label_never_holds_arguments():
    from handwash.srun import label

    assert label(["/usr/bin/env"]) == "env"
    assert label(["python3", "-u", "/home/x/train.py", "--token=abc"]) == "python3 train.py"
    assert label(["bash", "-c", "secret"]) == "bash"
    assert label(["bash", "-lc", "export TOKEN=secret; run"]) == "bash"
    assert label(["perl", "-ne", "secret"]) == label(["perl", "-w", "-pe", "secret"]) == "perl"
    assert label(["node", "--eval", "secret"]) == "node"
    assert label(["bash", "--norc", "-x", "run.sh"]) == "bash run.sh"
    assert label(["/opt/tool", "secret"]) == "tool"


def test_the_options_module_knows_every_short_letter_once():
    letters = [short for _argument, short, _since, _until in OPTIONS.values() if short]
    assert len(letters) == len(set(letters)) == len(arguments.SHORT)
