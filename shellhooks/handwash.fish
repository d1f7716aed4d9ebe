# handwash for fish 3.1 and later: a banner at login, a check before the way out.
#
# A static file. When a shell starts: guards, gate, late path, and is the banner due? That starts no program, forks never
# (fish runs its builtins itself, in command substitutions and pipes too), and leaves nothing to run at a prompt.
#
# How it is written, and why:
# - The first guard is in words that any shell knows, for one that meets this file by mistake.
# - `builtin` or `command` stands before what people wrap in functions of their own. Not before `test`, `set`, `string`
#   and the like: fish's own functions do not work where those are replaced.
# - `__handwash_python` (set by whoever installed this, never exported) is the interpreter; without it the `handwash`
#   command is looked up when it is needed. `__handwash_hook` is this file.

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

test -n "$FISH_VERSION" || return 0
string match -qr '^([0-2]|3\.0)\.' -- $FISH_VERSION; and return 0
# fish reads its start-up files for every `-c` and every script too.
status is-interactive; or return 0
test -t 0; and test -t 2; or return 0
contains -- "$HANDWASH_DISABLE" '' 0; or return 0
# VS Code starts `fish -ilc` or an interactive shell to read the environment, and waits ten seconds for it.
test -z "$VSCODE_RESOLVING_ENVIRONMENT"; or return 0
contains -- "$TERM" '' dumb; and return 0
test "$__handwash_loaded" != $fish_pid; or return 0
test -z "$__handwash_python"; or test -x "$__handwash_python"; or return 0

# `fish -ic WORDS` and `fish -i SCRIPT`, as in `#!/usr/bin/fish -i`, are interactive too: only the command line tells.
function __handwash_for_a_person
    while set -q argv[2]
        set -e argv[1]
        if string match -qr '^(-[hilnNPv]+|--(interactive|login|private|no-config)|--.+=.*)$' -- $argv[1]
            not string match -q -- '--c*' $argv[1]; or return 1
        else if string match -qr '^(-[hilnNPv]*[CdDfop]|--[id-fp].*)$' -- $argv[1]
            # Its value comes as a word of its own.
            set -e argv[2]
        else if not string match -qr '^-[hilnNPv]*[CdDfop].' -- $argv[1]
            return 1
        end
    end
end
if test -r /proc/self/cmdline; and not __handwash_for_a_person (string split0 </proc/self/cmdline)
    functions -e __handwash_for_a_person
    return 0
end
functions -e __handwash_for_a_person

# --- gate -------------------------------------------------------------------------------------------------------------

set -g __handwash_loaded $fish_pid
set -q __handwash_hook[1]; or set -g __handwash_hook (builtin realpath (status filename))
set -g __handwash_held ''
set -g __handwash_asked ''
set -g __handwash_trying ''

# A person's own `exit` stays theirs, and Ctrl-D with it.
if not functions -q exit
    function exit --description 'Leave this shell, after handwash has checked'
        set -l __handwash_status $status
        # More than one line: in a function, or in a sourced file, where `exit` ends only the file. Held back, what called
        # it would run on.
        status stack-trace | read -l --line __handwash_here __handwash_caller
        if test -z "$__handwash_caller" -a (builtin count $argv) -lt 2; and not contains -- "$argv" -h --help
            __handwash_leave $__handwash_status
            test -z "$__handwash_stay"; or return $__handwash_stay
        end
        set -q argv[1]; or set argv $__handwash_status
        builtin exit $argv
    end

    # On an empty line Ctrl-D types `exit 0`: fish leaves with 0 there. The space keeps it out of the history.
    function __handwash_end_of_file
        if commandline | string length -q; or not functions exit | string match -q '*__handwash_leave*'
            # Before fish 3.2 a function.
            if functions -q delete-or-exit
                delete-or-exit
            else
                commandline -f delete-or-exit
            end
        else
            commandline -r ' exit 0'
            commandline -f execute
        end
    end
    # What a person binds, before or in fish_user_key_bindings, stays theirs.
    for __handwash_mode in default insert
        bind --user -M $__handwash_mode \cd >/dev/null 2>&1
        or bind -M $__handwash_mode \cd __handwash_end_of_file
    end
    set -e __handwash_mode
end

# STATUS of the line before: `__handwash_stay` is then empty if the person may go, else what `exit` is to return.
function __handwash_leave
    set -g __handwash_stay ''
    if test -n "$__handwash_asked" -o "$HANDWASH_ON_EXIT" = off; or not contains -- "$HANDWASH_DISABLE" '' 0
        return 0
    end
    set -l code 0
    set -l now (__handwash_now)
    set -l again
    # The second attempt in a row leaves. In a row: on the next line of input, within a minute.
    if test -n "$__handwash_held"; and test (builtin math $now - $__handwash_held) -le 60
        set again --again
    end
    set -g __handwash_held $now
    # Counts the lines after this one, up to the second.
    set -g __handwash_lines 0
    function __handwash_counted --on-event fish_preexec
        set -g __handwash_lines (builtin math $__handwash_lines + 1)
        if test $__handwash_lines -ge 2
            set -g __handwash_held ''
            functions -e __handwash_counted
        end
    end
    # Ctrl-C ends the check by SIGINT, and fish often gives up the functions that run with it: the person stays. What
    # follows `exit` on the line runs nevertheless (3.6). fish does the same when it cannot fork. So a check that never came
    # back is not tried again.
    if not set -q again[1]
        set -g __handwash_trying 1
        __handwash_run 3600 leave exit 1>&2
        set code $status
        # 75: stay. 130: Ctrl-C. Everything else lets go.
        if test $code -eq 130
            set -g __handwash_stay 130
            return 0
        end
        set -g __handwash_trying ''
        if test $code -eq 75
            set -g __handwash_stay $argv[1]
            return 0
        end
    else if test -z "$__handwash_trying"
        set -g __handwash_trying 1
        __handwash_run 60 leave exit --again 1>&2
        set code $status
        set -g __handwash_trying ''
    end
    __handwash_told $code
    set -g __handwash_asked 1
    # fish may refuse (jobs, a word that is no number). At the next prompt, once, we are still here and have not been asked.
    function __handwash_still --on-event fish_prompt
        set -g __handwash_asked ''
        functions -e __handwash_still
    end
    return 0
end

# --- late path --------------------------------------------------------------------------------------------------------

# A closed terminal, Ctrl-D where the person has their own `exit`, exit in a function. Not on TERM.
function __handwash_late --on-event fish_exit
    if test -n "$__handwash_asked" -o "$HANDWASH_ON_EXIT" = off; or not contains -- "$HANDWASH_DISABLE" '' 0
        return 0
    end
    set -g __handwash_asked 1
    if test -t 0
        __handwash_run 3600 leave eof 1>&2
        __handwash_told $status
    else
        # The terminal is gone: nobody to ask, and a write to it would fail.
        __handwash_run 60 leave hup </dev/null >/dev/null 2>&1
    end
end

# --- words and tools --------------------------------------------------------------------------------------------------

# __handwash_text KEY: the few sentences that the shell itself says, as a printf format.
# A locale that names another encoding than UTF-8 gets English.
function __handwash_text
    set -l locale $HANDWASH_LANG $LC_ALL $LC_MESSAGES $LANG
    set locale (string match -- '?*' $locale)
    if string match -q 'zh*' -- $locale[1]; and not string match -qir '\.(gb|big)' -- $locale[1]
        switch $argv[1]
            case node
                builtin echo 'handwash：%.200s：作业 %.200s，在它的计算节点 %.200s 上'
            case allocation
                builtin echo 'handwash：%.200s：作业 %.200s 的分配 shell，仍在这台机器上'
            case plain
                builtin echo 'handwash：%.200s：此 shell 不在任何作业里'
            case devices
                builtin echo '；CUDA_VISIBLE_DEVICES=%.200s'
            case hidden
                builtin echo '；CUDA_VISIBLE_DEVICES 已设置但为空：程序看不到任何算力卡'
            case hung
                builtin echo 'handwash：检查没有按时完成，不再等待，直接离开'
        end
        return 0
    end
    switch $argv[1]
        case node
            builtin echo 'handwash: %.200s: in job %.200s, on its compute node %.200s'
        case allocation
            builtin echo 'handwash: %.200s: allocation shell of job %.200s, still on this machine'
        case plain
            builtin echo 'handwash: %.200s: no job in this shell'
        case devices
            builtin echo '; CUDA_VISIBLE_DEVICES=%.200s'
        case hidden
            builtin echo '; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU'
        case hung
            builtin echo 'handwash: the check did not finish in time; leaving without it'
    end
end

# Seconds, of a clock that only has to go forward: that of the machine's start, read without a fork.
function __handwash_now
    set -l up 0
    test -r /proc/uptime; and read -l up </proc/uptime
    string split -m 1 . -- $up | read -l seconds
    builtin echo $seconds
end

# __handwash_run PATIENCE WORDS…: runs `handwash WORDS…`; 127 and silence if it is no longer there.
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows PATIENCE
# seconds after that. `--preserve-status`, because an answer given after the first limit still has to arrive here.
function __handwash_run
    set -l run
    if test -n "$__handwash_python"
        # The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a
        # checkout.
        set -l package (string replace -r '/[^/]*/[^/]*$' '' -- $__handwash_hook)
        test -r $package/__main__.py; or set package $package/src/handwash
        test -x "$__handwash_python" -a -r $package/__main__.py; or return 127
        # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
        set run $__handwash_python -I -S $package/__main__.py
    else
        # A relative name was found through a relative part of PATH: never a program of the working directory.
        set run (command -s handwash | string match '/*'); or return 127
    end
    set -l limit (string replace -r '\..*' '' -- "$HANDWASH_DEADLINE")
    string match -qr '^[0-9]{1,2}$' -- "$limit"; or set limit 3
    # Found by path, since PATH may be empty. Busybox's has neither option.
    if test -x /usr/bin/timeout; and not string match -q '*busybox*' (builtin realpath /usr/bin/timeout)
        set -p run /usr/bin/timeout --foreground --preserve-status -k $argv[1] (builtin math $limit + 2)
    end
    # fish gives up a start-up file when a foreground program dies of SIGINT: the banner's ends by itself then.
    if test "$argv[2]" = banner
        set -p run /bin/sh -c 'trap : INT; "$@"; exit "$?"' sh
    end
    # -I does not cover the libraries that modules and conda put before Python's own.
    if set -q LD_LIBRARY_PATH
        set -lx HANDWASH_LD_LIBRARY_PATH $LD_LIBRARY_PATH
        set -lx LD_LIBRARY_PATH ''
        set -lx LD_PRELOAD ''
        command $run $argv[2..-1]
    else
        set -lx LD_PRELOAD ''
        command $run $argv[2..-1]
    end
end

# __handwash_told CODE: says that the check was cut off (124: time is up, 137: KILL, 142: ALRM, 143: TERM).
function __handwash_told
    if contains -- $argv[1] 124 137 142 143
        builtin printf (__handwash_text hung)\n >&2
    end
end

# --- banner -----------------------------------------------------------------------------------------------------------

# Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A nested shell has
# that one's terminal; a pane of tmux or screen, and a second terminal of the same job, need not.
test "$HANDWASH_BANNER" != off; or return 0
if string match -q -- "$hostname:$SLURM_JOB_ID:*" "$HANDWASH_SHOWN"
    test -z "$TMUX$STY$SLURM_JOB_ID"; or return 0
    set -l __handwash_terminal /proc/(string replace -r '.*:' '' -- $HANDWASH_SHOWN)/fd/0
    test -e $__handwash_terminal
    and test (builtin realpath $__handwash_terminal) = (builtin realpath /proc/self/fd/0)
    and return 0
end
set -gx HANDWASH_SHOWN "$hostname:$SLURM_JOB_ID:$fish_pid"

# __handwash_say KEY VALUES…: a piece of the first line. The values may come from somebody else: no control character, no
# unheard-of length.
function __handwash_say
    builtin printf (__handwash_text $argv[1]) (string replace -ar '[^\pL\pN._:/,+-]' '?' -- $argv[2..-1]) >&2
end

# The first line, said before any program starts, then `handwash banner`.
function __handwash_greet
    set -l host (string replace -r '\..*' '' -- "$hostname")
    if test -z "$SLURM_JOB_ID"
        __handwash_say plain $host
    else if test -n "$SLURMD_NODENAME"
        __handwash_say node $host "$SLURM_JOB_ID" "$SLURMD_NODENAME"
    else
        __handwash_say allocation $host "$SLURM_JOB_ID"
    end
    if test -n "$CUDA_VISIBLE_DEVICES"
        __handwash_say devices "$CUDA_VISIBLE_DEVICES"
    else if set -q CUDA_VISIBLE_DEVICES
        __handwash_say hidden ''
    end
    builtin printf '\n' >&2
    test "$HANDWASH_BANNER" != line; or return 0
    # While fish reads its start-up files its programs are in its own process group, and Ctrl-C is for fish too.
    set -l control interactive
    status is-full-job-control; and set control full
    status is-no-job-control; and set control none
    status job-control full
    __handwash_run 1 banner </dev/null >&2
    status job-control $control
end
__handwash_greet
return 0
