# handwash for fish 3.1 and later: a banner at login, a check before the way out.
#
# Two static files. This one is read when a shell starts: guards, gate, late path, and is the banner due? It starts no
# program, forks never (fish runs its builtins itself, in command substitutions and pipes too), and leaves nothing to run
# at a prompt. The other, handwash.more.fish, is read when it is needed, at once if the banner is due: fish parses a file to
# its end before it runs the first line.
#
# How it is written, and why:
# - The first guard is in words that any shell knows, for one that meets this file by mistake.
# - `builtin` or `command` stands before what people wrap in functions of their own. Not before `test`, `set`, `string`
#   and the like: fish's own functions do not work where those are replaced.
# - `__handwash_python` (set by whoever installed this, never exported) is the interpreter; without it the `handwash`
#   command is looked up when it is needed. `__handwash_hook` is this file.

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

test -n "$FISH_VERSION" || eval 'return 0'

# A function, because before fish 3.4 `return` in a file is an error.
function __handwash_start
    switch $FISH_VERSION
        case '0.*' '1.*' '2.*' '3.0.*'
            return 0
    end
    # fish reads its start-up files for every `-c` and every script too.
    status is-interactive; or return 0
    test -t 0; and test -t 2; or return 0
    contains -- "$HANDWASH_DISABLE" '' 0 false no; or return 0
    # VS Code starts `fish -ilc` or an interactive shell to read the environment, and waits ten seconds for it.
    test -z "$VSCODE_RESOLVING_ENVIRONMENT"; or return 0
    contains -- "$TERM" '' dumb; and return 0
    test "$__handwash_loaded" != $fish_pid; or return 0
    test -z "$__handwash_python"; or test -x "$__handwash_python"; or return 0

    # --- gate, late path, and is the banner due? ----------------------------------------------------------------------

    set -g __handwash_loaded $fish_pid
    set -q __handwash_hook[1]; or set -g __handwash_hook (builtin realpath (status filename))

    # Reads the other file, unless it has been; fails where it is no longer there, or this fish runs a script.
    function __handwash_load
        functions -q __handwash_run
        or source (string replace -r 'fish$' more.fish -- $__handwash_hook) 2>/dev/null
        functions -q __handwash_run
    end

    # A person's own `exit` stays theirs, and Ctrl-D with it; and what they bind, before or in fish_user_key_bindings.
    if not functions -q exit
        function exit --description 'Leave this shell, after handwash has checked'
            set -l __handwash_status $status
            __handwash_load; and __handwash_leave $__handwash_status $argv
            test -z "$__handwash_stay"; or return $__handwash_stay
            set -q argv[1]; or set argv $__handwash_status
            builtin exit $argv
        end
        # Not in a command substitution: that would cost a thread.
        bind --user | read -l __handwash_bound
        if test -z "$__handwash_bound"
            bind \cd '__handwash_load; and __handwash_end_of_file; or commandline -f delete-or-exit'
            bind -M insert \cd '__handwash_load; and __handwash_end_of_file; or commandline -f delete-or-exit'
        else
            __handwash_load; and __handwash_bind
        end
    end

    # A closed terminal, Ctrl-D where the person has their own `exit`, exit in a function. Not on TERM.
    function __handwash_late --on-event fish_exit
        test -z "$__handwash_asked"; and __handwash_load; and __handwash_late_check
    end

    # Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A pane of tmux or
    # screen, and a second terminal of the same job, need not have that one's terminal. PBS sets both variables in all of
    # a job; one alone is somebody's own.
    test "$HANDWASH_BANNER" != off; or return 0
    set -l job "$SLURM_JOB_ID"
    test -z "$job" -a -n "$PBS_ENVIRONMENT"; and set job "$PBS_JOBID"
    string match -q -- "$hostname:$job:*" "$HANDWASH_SHOWN"; and test -n "$TMUX$STY$job"; and return 0
    __handwash_load; and __handwash_greet "$job"
    return 0
end

__handwash_start
functions -e __handwash_start
true
