"""Other people's zsh: strict options, aliases, hooks and traps of their own, and where no person sits."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys

import pytest
from tests.shells.first_lines import FIRST_LINES
from tests.shells.terminal import HOOKS, Person, Terminal

pytestmark = pytest.mark.parametrize("somebody", ["zsh"], indirect=True)

HOST = platform.node().split(".")[0]
STRICT = [
    "set -eu",
    "setopt err_exit no_unset pipe_fail",
    "setopt err_return no_unset",
    "setopt ksh_arrays sh_word_split no_nomatch ksh_glob",
    "setopt ksh_arrays ksh_zero_subscript posix_identifiers posix_strings posix_builtins posix_traps",
    "setopt sh_glob ignore_braces ignore_close_braces glob_subst rc_expand_param",
    "setopt no_clobber no_append_create no_multios",
    "setopt warn_create_global warn_nested_var",
    "setopt all_export",
    "setopt extended_glob null_glob glob_dots no_case_glob no_case_match csh_null_glob",
    "setopt csh_junkie_loops csh_junkie_quotes no_short_loops no_bare_glob_qual no_equals magic_equal_subst",
    "setopt rc_quotes interactive_comments c_bases octal_zeroes no_multi_func_def",
    "setopt no_function_argzero no_eval_lineno local_options local_traps trapsasync",
    "setopt no_glob no_exec_bogus 2>/dev/null; setopt no_glob",
    "setopt no_rcs no_bang_hist prompt_subst prompt_bang hash_list_all",
    "setopt typeset_silent no_multibyte print_exit_value chase_links cd_silent pushd_silent",
    "setopt check_jobs check_running_jobs no_hup long_list_jobs no_bg_nice",
    "IFS=handwsx0123456789:/",
    "IFS=",
    "readonly PATH LANG LC_ALL HOST TERM SLURM_JOB_ID PBS_JOBID PBS_ENVIRONMENT",
    "export LD_LIBRARY_PATH=/nowhere LD_PRELOAD=; readonly LD_LIBRARY_PATH LD_PRELOAD",
    "typeset -T LD_LIBRARY_PATH ld_library_path; ld_library_path=(/nowhere /else); export LD_LIBRARY_PATH",
    "typeset -r REPLY=mine reply=mine MATCH=mine match=mine",
    "alias builtin='echo BUILTIN' command='echo COMMAND' source='echo S' eval='echo E' typeset='echo T' test='echo T'",
    "alias local='echo L' return='echo R' setopt='echo O' emulate='echo M' printf='echo P' zle='echo Z' bindkey='echo B'",
    "alias functions='echo F' whence='echo W' trap='echo T' alias='echo A' unset='echo U'",
    "alias -g L='| less' G='| grep' first=broken main=broken emacs=broken timeout=broken /=/nowhere",
    "alias rm='rm -i' cat='cat -n' grep='grep --color' jobs='jobs -l'",
    "function print { echo P }; function read { echo R }; function trap { echo T }; function source { echo S }",
    "exec 3</dev/null 7>&2; ulimit -n 256",
    "umask 777; cd /",
    "TMOUT=100; DIRSTACKSIZE=3",
    "bindkey -v",
    "bindkey -N mine emacs; bindkey -A mine main",
    "bindkey -D viins vicmd 2>/dev/null",
    "autoload -Uz add-zsh-hook; f() { : }; add-zsh-hook precmd f; add-zsh-hook zshexit f",
    "autoload -Uz compinit && compinit -D -u",
    "fpath=(); module_path=()",
    "disable -r repeat 2>/dev/null; disable test 2>/dev/null; disable [ 2>/dev/null",
]


def shown(text: str) -> list[str]:
    """The lines of an output that are not empty; zsh draws the first letter of a line twice."""
    return [line for line in re.sub(r"\w\x08", "", text).split("\r\n") if line]


@pytest.mark.parametrize("option", STRICT)
def test_silent_and_complete_under_every_option(somebody: Person, option: str) -> None:
    somebody.startup(before=option, after="\nloaded=$__handwash_loaded\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    assert terminal.greeting == ""
    assert terminal.status == 0
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert shown(terminal.rest) == ["exit 4"]
    assert somebody.tree.said() == ["leave exit"]


@pytest.mark.parametrize("option", [o for o in STRICT if "umask" not in o])
def test_the_whole_hook_works_under_every_option(somebody: Person, option: str) -> None:
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    (somebody.home / "hooks").write_text("")
    somebody.startup(before=f'zshexit_functions=(mine)\nmine() {{ \\builtin print "mine $?" >>~/hooks }}\n{option}')
    terminal = somebody.shell()
    assert terminal.greeting.endswith("the rest\r\n")
    assert terminal.greeting.startswith("handwash: ")
    assert terminal.greeting.count("\r\n") == 2
    terminal.child.sendline("exit 4")
    assert shown(terminal.prompt()) == ["exit 4"]
    terminal.child.sendline("exit 4")
    assert terminal.ends() == 4
    assert shown(terminal.rest) == ["exit 4"]
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]
    assert (somebody.home / "hooks").read_text() == "mine 4\n"


def test_options_are_as_the_person_left_them(somebody: Person) -> None:
    """After the banner and a check."""
    somebody.tree.behave(leave={"code": 75})
    for option in ("", "setopt all_export ksh_arrays", "emulate zsh", "set -x; set +x"):
        seen = []
        for disable in ("1", ""):
            somebody.startup(before=option)
            terminal = somebody.shell(HANDWASH_DISABLE=disable)
            if not disable:
                terminal.run("exit")
            seen.append(set(terminal.run("setopt").split()))
        assert seen[1] - seen[0] == {"ignoreeof"}
        assert seen[0] <= seen[1]


def test_set_e_leaves_as_it_would_without_the_hook(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(after="set -e")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("false || exit")
    assert terminal.status == 0, "stay stays: a failing status would leave"
    terminal.child.sendline("false")
    assert terminal.ends() == 1
    assert somebody.tree.said() == ["leave exit"], "zsh 5.9 runs no zshexit hook where set -e ends it"


HOOKED = """
zshexit() { print "zshexit $? $ZSH_SUBSHELL" >>~/hooks; print second >>~/hooks }
mine() { print "mine $?" >>~/hooks; if true; then for x in 1 2; do print $x >>~/hooks; done; fi }
zshexit_functions+=(mine)
"""


@pytest.mark.parametrize(
    "trap", ["trap 'print \"trap $?\" >>~/hooks' EXIT", 'TRAPEXIT() { print "trap $?" >>~/hooks }']
)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("way", ["exit", "eof", "late", "hup"])
def test_a_persons_own_hooks_all_run(somebody: Person, trap: str, where: str, way: str) -> None:
    """zshexit, zshexit_functions, an EXIT trap and .zlogout, whole, with the status, as without the hook."""
    (somebody.home / ".zlogout").write_text('print "zlogout $?" >>~/hooks\n')
    left = []
    for disable in ("1", ""):
        (somebody.home / "hooks").write_text("")
        # A HUP inside that widget of Debian's is another matter.
        somebody.startup(**{where: HOOKED + trap + "\nzle -D zle-line-init\n"})
        terminal = somebody.shell("-l", HANDWASH_BANNER="off", HANDWASH_DISABLE=disable)
        if way == "hup":
            terminal.hang_up()
        elif way == "late":
            terminal.child.sendline("builtin exit 5")
            assert terminal.ends() == 5
        else:
            terminal.run("f() { (exit 5) }; f")
            terminal.child.send("exit 5\r" if way == "exit" else "\x04")
            assert terminal.ends() == 5
        left.append((somebody.home / "hooks").read_text())
    assert "zlogout" in left[0]
    assert "second" in left[0]
    assert left[1] == left[0]
    assert somebody.tree.said() == [
        {"exit": "leave exit", "eof": "leave exit", "late": "leave eof", "hup": "leave hup"}[way]
    ]


def test_subshells_do_not_tell(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("(exit 3); (builtin exit 3); x=$(builtin exit 4); builtin exit 3 | cat; builtin exit 3 & wait")
    assert somebody.tree.said() == []


@pytest.mark.parametrize("own", ["alias exit='echo mine; \\exit'", "function exit { echo mine; builtin exit $@ }"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_persons_own_exit_stays_theirs(somebody: Person, own: str, where: str) -> None:
    """And Ctrl-D with it: asked late. A function that comes later stands behind the alias."""
    if where == "after" and own.startswith("function"):
        own = f"unalias exit; {own}"
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(**{where: own})
    for way in ("exit\r", "\x04"):
        terminal = somebody.shell(HANDWASH_BANNER="off")
        terminal.child.send(way)
        assert terminal.ends() == 0
        assert ("mine" in terminal.rest) == (way == "exit\r")
    assert somebody.tree.said() == ["leave eof", "leave eof"]


@pytest.mark.parametrize("own", ["alias logout='echo mine; \\logout'", "function logout { echo mine; builtin logout }"])
def test_a_persons_own_logout_stays_theirs(somebody: Person, own: str) -> None:
    somebody.startup(before=own)
    terminal = somebody.shell("-l", HANDWASH_BANNER="off")
    terminal.child.sendline("logout")
    assert terminal.ends() == 0
    assert "mine" in terminal.rest
    # From a function of a login shell zsh 5.9 comes to no zshexit hook, if there is a zlogout file.
    assert somebody.tree.said() == ["leave eof"] or own.startswith("function")


def test_precmd_and_preexec_like_a_framework(somebody: Person) -> None:
    """As oh-my-zsh and its like: prompt_subst, hooks before and after each command, wrapped widgets."""
    frame = """
    setopt prompt_subst
    autoload -Uz add-zsh-hook
    frame_precmd() { print -r -- "pre $?" >>~/frame }; frame_preexec() { print -r -- "run $1" >>~/frame }
    add-zsh-hook precmd frame_precmd; add-zsh-hook preexec frame_preexec
    frame_wrapped() { zle .accept-line }; zle -N accept-line frame_wrapped
    zle-line-init() { : }; zle -N zle-line-init; zle-line-finish() { : }; zle -N zle-line-finish
    """
    somebody.tree.behave(leave={"code": 75})
    somebody.startup(before=frame)
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.run("false; exit")
    terminal.child.sendeof()
    assert terminal.ends() == 1
    assert (somebody.home / "frame").read_text() == "pre 0\nrun false; exit\npre 1\nrun exit\n"
    assert somebody.tree.said() == ["leave exit", "leave exit --again"]


@pytest.mark.parametrize("returned", ["first", "last", "in the start-up file", "never"])
def test_an_instant_prompt_that_takes_the_terminal_away(somebody: Person, returned: str) -> None:
    """As powerlevel10k does while the start-up file is read: the hook waits for it, up to the second prompt."""
    away = "exec {in}<&0 {out}>&1 {err}>&2 0</dev/null 1>~/captured 2>&1"
    back = "back() { exec 0<&$in 1>&$out 2>&$err; precmd_functions=(${precmd_functions:#back}) }\n"
    first, last = "precmd_functions=(back $precmd_functions)", "precmd_functions+=(back)"
    after = {
        "first": first,
        "last": last,
        "in the start-up file": "back",
        "never": "seen() exec 2>/dev/tty\nprecmd_functions+=(seen)",
    }
    somebody.tree.behave(banner={"say": "the rest"}, leave={"code": 75})
    somebody.startup(before=away, after=back + after[returned])
    terminal = somebody.shell(expect_prompt=False)
    terminal.prompt()
    shown = str(terminal.child.before)
    if returned == "last":
        shown = terminal.run("")
    assert "handwash" not in (somebody.home / "captured").read_text()
    if returned == "never":
        terminal.run("")
        assert terminal.run("print -l $precmd_functions >~/hooks; echo on >/dev/tty") == "on\r\n"
        assert (somebody.home / "hooks").read_text() == "seen\n"
        assert somebody.tree.calls() == []
        return
    assert shown.count("handwash: ") == 1
    assert shown.count("the rest") == 1
    terminal.run("exit")
    assert "handwash" not in terminal.run("print $precmd_functions")
    terminal.child.sendeof()
    terminal.prompt()
    terminal.child.sendline("exit 3")
    assert terminal.ends() == 3
    assert somebody.tree.said() == ["leave exit", "leave exit", "leave exit --again"]


def test_sourced_in_a_function_as_plugin_managers_do(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    line = somebody.tree.line(kind=somebody.kind)
    for options in ("", "emulate -L zsh; "):
        somebody.startup(hook=f"load() {{ {options}{line} }}\nload\n", after="loaded=$__handwash_loaded\n")
        terminal = somebody.shell(HANDWASH_BANNER="off")
        assert terminal.greeting == ""
        terminal.run("exit")
        terminal.child.sendline("exit")
        terminal.ends()
    assert somebody.tree.said() == ["leave exit", "leave exit --again"] * 2


def test_nothing_runs_at_a_prompt_and_nothing_is_started(somebody: Person) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = somebody.home / "trace"
    words = [
        strace,
        "-f",
        "-qq",
        "-e",
        "trace=execve,fork,vfork,clone,clone3",
        "-o",
        str(trace),
        somebody.kind.program[0],
    ]
    terminals = []
    for disable in ("1", ""):
        trace.unlink(missing_ok=True)
        terminal = somebody.opens(words, HANDWASH_BANNER="line", HANDWASH_DISABLE=disable)
        terminals.append((terminal.greeting, len(trace.read_text().splitlines())))
    assert terminals[1][0].startswith("handwash: ")
    assert terminals[0][1] == terminals[1][1]
    before = trace.read_text()
    for _ in range(3):
        terminal.run("")
    assert trace.read_text() == before
    assert terminal.run("print -r -- ${precmd_functions-} ${preexec_functions-} ${chpwd_functions-}") == "\r\n"


def test_the_mark_is_the_only_export(somebody: Person) -> None:
    for option in ("", "setopt all_export"):
        somebody.startup(before=option)
        names = []
        for disable in ("1", ""):
            terminal = somebody.shell(HANDWASH_BANNER="line", HANDWASH_DISABLE=disable)
            names.append(set(terminal.run("env | sed 's/=.*//'").split()))
        assert names[1] - names[0] == {"HANDWASH_SHOWN"}


# --- the banner -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "line"),
    [
        *FIRST_LINES,
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES=0,1"),
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "handwash: HOST: no job in this shell; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU",
        ),
        ({"LC_ALL": "zh_CN.UTF-8"}, "handwash：HOST：此 shell 不在任何作业里"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "handwash：HOST：此 shell 不在任何作业里"),
        (
            {"HANDWASH_LANG": "zh_CN", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2", "CUDA_VISIBLE_DEVICES": "3"},
            "handwash：HOST：作业 7，在它的计算节点 n2 上；CUDA_VISIBLE_DEVICES=3",
        ),
        ({"LC_ALL": "C", "HANDWASH_LANG": "zh"}, "handwash：HOST：此 shell 不在任何作业里"),
        (
            {"SLURM_JOB_ID": "4\x1b[31m2", "SLURMD_NODENAME": "%s%n\x07", "CUDA_VISIBLE_DEVICES": "\x9b1m"},
            "handwash: HOST: in job 4?[31m2, on its compute node ?s?n?; CUDA_VISIBLE_DEVICES=?1m",
        ),
    ],
)
def test_the_first_line_says_what_the_shell_knows(somebody: Person, env: dict[str, str], line: str) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line", **env)
    assert terminal.greeting == line.replace("HOST", HOST) + "\r\n"
    assert somebody.tree.calls() == []


def banners(somebody: Person) -> int:
    return [call["argv"] for call in somebody.tree.calls()].count(["banner"])


def test_once_per_login_and_once_per_job(somebody: Person) -> None:
    terminal = somebody.shell()
    assert terminal.greeting == f"handwash: {HOST}: no job in this shell\r\n"
    assert banners(somebody) == 1
    assert somebody.tree.calls()[0]["ttys"] == [False, True, True], "what a person has typed ahead is not the banner's"
    assert terminal.run("zsh") == "", "a nested shell is quiet"
    terminal.run("builtin exit")
    assert terminal.run("zsh -l") == ""
    terminal.run("builtin exit")
    assert "job 42" in terminal.run("SLURM_JOB_ID=42 zsh"), "a new job's shell is not"
    assert terminal.run("exec zsh") == ""
    assert banners(somebody) == 2
    seen = terminal.run("print $HANDWASH_SHOWN").strip()
    assert somebody.shell(HANDWASH_SHOWN=seen).greeting != "", "another login"
    assert somebody.shell(HANDWASH_SHOWN=seen, SLURM_JOB_ID="42").greeting == "", "a terminal of the same job"


def test_a_pane_and_odd_marks(somebody: Person) -> None:
    terminal = somebody.shell(HANDWASH_BANNER="line")
    seen = terminal.run("print $HANDWASH_SHOWN").strip()
    assert re.fullmatch(rf"{re.escape(platform.node())}::\d+", seen)
    assert somebody.shell(HANDWASH_SHOWN=seen, TMUX="/tmp/tmux-0/default,1,0").greeting == ""
    for odd in ("", "::", "x", f"{platform.node()}::", f"{platform.node()}::../1", "$(x)", "*:*:*"):
        assert somebody.shell(HANDWASH_SHOWN=odd, HANDWASH_BANNER="line").greeting.count("\r\n") == 1


def test_ctrl_c_during_the_banner_leaves_everything_in_place(somebody: Person) -> None:
    somebody.tree.behave(banner={"hang": True}, leave={"code": 75})
    for trap in ("", "TRAPINT() { print mine; return 1 }", "trap 'print mine' INT"):
        somebody.startup(before=trap, after="after=here\n")
        terminal = somebody.shell(expect_prompt=False)
        terminal.child.expect_exact("no job in this shell\r\n")
        terminal.child.expect_exact("hanging")
        terminal.child.sendintr()
        terminal.prompt()
        assert terminal.run("print $after") == "here\r\n", "the rest of the start-up file was read"
        assert ("mine" in terminal.run("trap; functions TRAPINT")) == bool(trap)
        terminal.run("exit")
        terminal.child.sendline("exit")
        terminal.ends()
    assert somebody.tree.said() == ["leave exit", "leave exit --again"] * 3


@pytest.mark.parametrize("way", ["builtin exit 5\r", "f\r"])
def test_ctrl_c_at_the_late_question_leaves_with_all_hooks(somebody: Person, way: str) -> None:
    somebody.tree.behave(leave={"ask": True})
    somebody.startup(after="mine() { print mine >>~/hooks }\nzshexit_functions+=(mine)\nf() { builtin exit 5 }\n")
    terminal = somebody.shell(HANDWASH_BANNER="off")
    terminal.child.send(way)
    terminal.child.expect_exact("stay or go?")
    terminal.child.sendintr()
    assert terminal.ends() == 5
    if way != "f\r":
        assert (somebody.home / "hooks").read_text() == "mine\n"
    assert somebody.tree.said() == ["leave eof"]


# --- where no person sits ---------------------------------------------------------------------------------------------


def piped(somebody: Person, argv: list[str], given: bytes = b"", **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        argv, input=given, capture_output=True, env={**somebody.env, **env}, cwd=somebody.home, start_new_session=True
    )
    return done.returncode, done.stdout, done.stderr


def on_terminal(somebody: Person, argv: list[str], **env: str) -> tuple[int, str]:
    terminal: Terminal = somebody.opens(argv, expect_prompt=False, **env)
    return terminal.ends(), terminal.rest


@pytest.mark.parametrize("options", ["-c", "-lc", "-ic", "-lic", "-ilc"])
@pytest.mark.parametrize("command", ["env -u _", "exit 7", "false; exit", "setopt; alias; bindkey '^D'; typeset -f"])
def test_zsh_c_on_a_terminal_and_without(somebody: Person, options: str, command: str) -> None:
    zsh = somebody.kind.program[0]
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append((on_terminal(somebody, [zsh, options, command]), piped(somebody, [zsh, options, command])))
    assert outcomes[0] == outcomes[1]
    assert somebody.tree.calls() == []


def test_scripts_and_shells_fed_through_a_pipe(somebody: Person) -> None:
    zsh = somebody.kind.program[0]
    (somebody.home / "script").write_text(f"#!{zsh} -i\nprint on; alias; false\nexit\n")
    (somebody.home / "script").chmod(0o755)
    words = b"print on; alias; false; exit\n"
    outcomes = []
    for hook in ("", None):
        somebody.startup(hook=hook)
        outcomes.append(
            [
                *(piped(somebody, [zsh, *options], words) for options in ([], ["-l"], ["-s"], ["-i"], ["-is", "a"])),
                *(
                    on_terminal(somebody, argv)
                    for argv in ([str(somebody.home / "script"), "a"], [zsh, "-i", "./script"], [zsh, "./script"])
                ),
                on_terminal(somebody, [zsh, "-i", "./script"], VSCODE_RESOLVING_ENVIRONMENT="1"),
            ]
        )
    assert outcomes[0] == outcomes[1]
    assert somebody.tree.calls() == []


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"VSCODE_RESOLVING_ENVIRONMENT": "1"}, {"HANDWASH_DISABLE": "1"}])
def test_not_now(somebody: Person, env: dict[str, str]) -> None:
    terminal = somebody.shell(**env)
    assert terminal.greeting == ""
    terminal.child.sendline("exit")
    terminal.ends()
    assert somebody.tree.calls() == []


def test_started_by_another_name(somebody: Person) -> None:
    """`-zsh` of login, and a name that is no zsh's: read from the command line then."""
    zsh = somebody.kind.program[0]
    for name in ("-zsh", "z", "/opt/zsh/bin/zsh"):
        terminal = somebody.opens(["/bin/bash", "-c", f"exec -a '{name}' {zsh} -i"], HANDWASH_BANNER="off")
        terminal.child.sendline("exit")
        terminal.ends()
    assert somebody.tree.said() == ["leave exit"] * 3


def test_a_restricted_zsh_is_let_go(somebody: Person) -> None:
    somebody.tree.behave(leave={"code": 75})
    for way in ("exit\r", "\x04"):
        terminal = somebody.shell("-r", "-i", HANDWASH_BANNER="off")
        terminal.child.send(way)
        assert terminal.ends() == 0
        assert shown(terminal.rest) == ["exit"]
    assert somebody.tree.calls() == []


@pytest.mark.parametrize("shell", ["bash", "dash", "mksh", "busybox", "yash"])
def test_another_shell_that_meets_the_file_is_not_disturbed(somebody: Person, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    words = [program, "ash"] if shell == "busybox" else [program]
    for argv in ([*words, "-c"], [*words, "-ic"]):
        done = piped(somebody, [*argv, f". {HOOKS / 'handwash.zsh'}; echo on"])
        assert done[1].endswith(b"on\n")
        assert b"handwash" not in done[2]


def test_uninstalled_under_an_open_shell(somebody: Person) -> None:
    for way in ("exit 4\r", "\x04"):
        shutil.rmtree(somebody.tree.folder, ignore_errors=True)
        somebody.tree.hook.parent.mkdir(parents=True)
        for file in HOOKS.glob("handwash.*zsh"):
            shutil.copy(file, somebody.tree.hook.parent)
        terminal = somebody.shell(HANDWASH_BANNER="off")
        shutil.rmtree(somebody.tree.folder)
        terminal.child.send("echo xtext" + 5 * "\x1b[D" + "\x04\r")
        assert shown(terminal.prompt())[-1] == "text"
        terminal.child.send(way)
        assert terminal.ends() == (4 if "4" in way else 0)
        assert shown(terminal.rest) == [way.strip().replace("\x04", "exit")]


def test_without_a_known_interpreter_the_command_is_looked_up(somebody: Person) -> None:
    bin = somebody.home / "bin"
    bin.mkdir()
    command = bin / "handwash"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {somebody.tree.package}/__main__.py "$@"\n')
    command.chmod(0o755)
    somebody.startup(hook=f". '{somebody.tree.hook.parent / 'handwash.zsh'}'\n")
    somebody.shell(PATH=f"{bin}:{os.environ['PATH']}")
    assert [call["argv"] for call in somebody.tree.calls()] == [["banner"]]
    # A relative PATH finds a program of the working directory: that is never run.
    somebody.shell(PATH="bin:/usr/bin:/bin")
    assert len(somebody.tree.calls()) == 1


def test_the_files_end_in_a_newline_and_have_no_carriage_return(somebody: Person) -> None:
    for file in HOOKS.glob("handwash.*zsh"):
        text = file.read_bytes()
        assert text.endswith(b"\n"), file
        assert b"\r" not in text, file
