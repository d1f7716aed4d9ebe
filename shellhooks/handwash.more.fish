# The part of handwash.fish that is read when it is needed.

# `fish -ic WORDS` and `fish -i SCRIPT`, as in `#!/usr/bin/fish -i`, are interactive too: only the command line tells.
function __handwash_for_a_person
    while set -q argv[2]
        set -e argv[1]
        if string match -qr '^(-[hilnNPv]+|--(interactive|login|private|no-config)|--[^c].*=.*)$' -- $argv[1]
            continue
        else if string match -qr '^(-[hilnNPv]*[CdDfop]|--[id-fp].*)$' -- $argv[1]
            # Its value comes as a word of its own.
            set -e argv[2]
        else if not string match -qr '^-[hilnNPv]*[CdDfop].' -- $argv[1]
            return 1
        end
    end
end
# Succeeds if handwash is switched off in this shell by now.
function __handwash_off
    test "$HANDWASH_ON_EXIT" = off; or not contains -- "$HANDWASH_DISABLE" '' 0 false no
end

# --- gate -------------------------------------------------------------------------------------------------------------

# STATUS of the line before, ARGUMENTS of exit: `__handwash_stay` is then empty if the person may go, else what `exit` is
# to return.
function __handwash_leave
    set -g __handwash_stay ''
    # Called by `exit`, which nothing called: three lines. In a function, or in a sourced file, where `exit` ends only the
    # file, there are more: held back, what called it would run on.
    status stack-trace | read -l --line here line exit caller
    test -z "$caller"; or return 0
    # Where fish only explains or refuses there is nothing to ask.
    if test -n "$__handwash_asked" -o (count $argv) -gt 2; or contains -- "$argv[2]" -h --help; or __handwash_off
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

# Binds it where the person has bound nothing.
function __handwash_bind
    for mode in default insert
        bind --user -M $mode \cd >/dev/null 2>&1
        or bind -M $mode \cd '__handwash_load; and __handwash_end_of_file; or commandline -f delete-or-exit'
    end
end

# --- late path --------------------------------------------------------------------------------------------------------

function __handwash_late_check
    __handwash_off; and return 0
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
            case asked
                builtin echo '；申请的算力卡：%.200s'
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
        case asked
            builtin echo '; GPUs asked for: %.200s'
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

# __handwash_say KEY VALUES…: a piece of the first line. The values may come from somebody else: no control character, no
# unheard-of length.
function __handwash_say
    builtin printf (__handwash_text $argv[1]) (string replace -ar '[^\pL\pN._:/,+\[\]-]' '?' -- $argv[2..-1]) >&2
end

# __handwash_greet JOB: the first line, said before any program starts, then `handwash banner`. A nested shell, on the
# terminal of the one that showed it, is quiet; tcsh keeps it as descriptor 15.
function __handwash_greet -a job
    if string match -q -- "$hostname:$job:*" "$HANDWASH_SHOWN"
        for terminal in /proc/(string replace -r '.*:' '' -- $HANDWASH_SHOWN)/fd/{0,15}
            test -e $terminal; and test (builtin realpath $terminal) = (builtin realpath /proc/self/fd/0); and return 0
        end
    end
    set -gx HANDWASH_SHOWN "$hostname:$job:$fish_pid"
    set -l host (string replace -r '\..*' '' -- "$hostname")
    if test -z "$job"
        __handwash_say plain $host
    else if test -z "$SLURM_JOB_ID"
        # PBS has no shell of a job but on its compute node.
        __handwash_say node $host "$job" $host
    else if test -n "$SLURMD_NODENAME"
        __handwash_say node $host "$job" "$SLURMD_NODENAME"
    else
        __handwash_say allocation $host "$job"
        # salloc(1): only where it was asked with --gpus; the banner below knows how many the job holds.
        test -z "$SLURM_GPUS"; or __handwash_say asked "$SLURM_GPUS"
    end
    if test -n "$CUDA_VISIBLE_DEVICES"
        __handwash_say devices "$CUDA_VISIBLE_DEVICES"
    else if set -q CUDA_VISIBLE_DEVICES
        __handwash_say hidden ''
    end
    builtin printf '\n' >&2
    test "$HANDWASH_BANNER" != line; or return 0
    # While fish reads its start-up files its programs are in its own process group, and Ctrl-C is for fish too. fish 3.1
    # would take itself for an orphan, and end, once it had given the terminal away.
    set -l control interactive
    status is-full-job-control; and set control full
    status is-no-job-control; and set control none
    string match -q '3.1.*' -- $FISH_VERSION; or status job-control full
    __handwash_run 1 banner </dev/null >&2
    status job-control $control
end

# Not for a person: all this has not been read then. (Before fish 3.4 a file cannot `return`.)
if test -r /proc/self/cmdline; and not __handwash_for_a_person (string split0 </proc/self/cmdline)
    functions -e __handwash_run
end
functions -e __handwash_for_a_person
