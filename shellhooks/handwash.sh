# shellcheck shell=sh
# handwash for ksh93, mksh, dash and busybox ash: a banner at login, a check before the way out.
#
# A static file, read when a shell starts: guards, gate, late path, banner. It starts no program but the banner, and
# nothing runs at a prompt.
#
# How it is written, and why:
# - POSIX shell throughout. What only one of these shells understands stands in an `eval`, behind a test for that shell.
# - `\command` stands before every ordinary builtin: the backslash keeps a person's alias away, `command` a person's
#   function. Special builtins cannot be functions in these shells, so a backslash is enough for them.
# - Variables are global, since not every one of these shells has `local`; all begin with `__handwash_`.
# - Names are tested as `${x-}` (set -u), no function ends in a test that may fail (set -e), and nothing depends on IFS,
#   globbing, noclobber or a name that a person may have made read-only.
# - `__handwash_python` and `__handwash_hook` (set by whoever installed this, never exported) are the interpreter and
#   this file; without them the `handwash` command is looked up when it is needed.

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

# Other shells have a hook of their own, or none.
\test -z "${BASH_VERSION-}${ZSH_VERSION-}${YASH_VERSION-}${POSH_VERSION-}${FISH_VERSION-}" || \return 0
case ${KSH_VERSION-} in '' | 'Version '*93* | '@(#)MIRBSD KSH '* | '@(#)LEGACY KSH '*) ;; *) \return 0 ;; esac
# A person's shell reads its commands from the terminal: `s`. Not `sh -ic WORDS`, not `sh -i SCRIPT`. And a restricted
# shell may neither redirect nor start a program by its path.
case $- in *c* | *r*) \return 0 ;; esac
case $- in *i*) ;; *) \return 0 ;; esac
case $- in *s*) ;; *) \return 0 ;; esac
\command test -t 0 && \command test -t 2 || \return 0
case ${HANDWASH_DISABLE:-0} in 0 | false | no) ;; *) \return 0 ;; esac
# VS Code starts an interactive shell to read the environment, and waits ten seconds for it.
\command test -z "${VSCODE_RESOLVING_ENVIRONMENT-}" || \return 0
case ${TERM:-dumb} in dumb) \return 0 ;; esac
\command test "${__handwash_loaded-}" != "$$" || \return 0
\command test -z "${__handwash_python-}" || \command test -x "$__handwash_python" || \return 0
\command test -r /proc/self/stat || \return 0

# Under `set -a` every name made here would be exported.
case $- in *a*) __handwash_allexport=1 && \set +a ;; *) __handwash_allexport= ;; esac

__handwash_loaded=$$ __handwash_held='' __handwash_trying='' __handwash_asked='' __handwash_gone='' __handwash_leaving=''
__handwash_kind=ash
case ${KSH_VERSION-} in Version*) __handwash_kind=ksh93 ;; '@'*) __handwash_kind=mksh ;; esac
# The status of a command that was given up.
case $__handwash_kind in ash) __handwash_stayed=2 ;; mksh) __handwash_stayed=130 ;; *) __handwash_stayed=none ;; esac

# --- tools ------------------------------------------------------------------------------------------------------------

# The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a checkout.
__handwash_main=
if \command test -n "${__handwash_hook-}"; then
  __handwash_main=${__handwash_hook%/*}
  __handwash_main=${__handwash_main%/*}
  if \command test -r "$__handwash_main/__main__.py"; then
    __handwash_main=$__handwash_main/__main__.py
  else
    __handwash_main=$__handwash_main/src/handwash/__main__.py
  fi
fi

# __handwash_print TEXT: a line to standard error. mksh has no builtin printf.
__handwash_print() {
  if \command test "$__handwash_kind" = ash; then
    \command printf '%s\n' "$1" >&2
  else
    # shellcheck disable=SC3045  # ksh93 and mksh alone
    \command print -r -- "$1" >&2
  fi
}

# __handwash_clock: seconds since the machine started, in `__handwash_now`. dash has no clock of its own.
__handwash_clock() {
  __handwash_now=0
  \command read -r __handwash_now </proc/uptime || \:
  __handwash_now=${__handwash_now%%.*}
}

# __handwash_export NAME=VALUE: not if it is read-only. That would end the function in ksh93, whose subshells are no fork.
__handwash_export() {
  if \command test "$__handwash_kind" = ksh93 && ! (\command export "$1") 2>/dev/null; then \return 0; fi
  \command export "$1" 2>/dev/null || \:
}

# __handwash_off: is handwash switched off in this shell by now?
__handwash_off() {
  \command test "${HANDWASH_ON_EXIT-}" != off || \return 0
  case ${HANDWASH_DISABLE:-0} in 0 | false | no) \return 1 ;; esac
  \return 0
}

# __handwash_run PATIENCE WORDS…: runs `handwash WORDS…`; 127 and silence if it is no longer there.
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows PATIENCE
# seconds after that. `--preserve-status`, because an answer given after the first limit still has to arrive here.
__handwash_run() {
  __handwash_patience=$1 __handwash_limit=${HANDWASH_DEADLINE:-3}
  \shift
  if \command test -n "${__handwash_python-}" && \command test -n "$__handwash_main"; then
    \command test -x "$__handwash_python" && \command test -r "$__handwash_main" || \return 127
    # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
    \set -- "$__handwash_python" -I -S "$__handwash_main" "$@"
  else
    __handwash_program=$(\unalias handwash; \unset -f handwash; \command -v handwash) 2>/dev/null
    # Never a program of the working directory. ksh93 and mksh make the name absolute where that part of PATH is not.
    case ":${PATH-}:" in *":${__handwash_program%/*}:"*) ;; *) \return 127 ;; esac
    case $__handwash_program in /*/*) ;; *) \return 127 ;; esac
    \set -- "$__handwash_program" "$@"
  fi
  __handwash_limit=${__handwash_limit%%.*}
  case $__handwash_limit in [1-9] | [1-9][0-9]) ;; 0) ;; *) __handwash_limit=3 ;; esac
  # Found by path, since PATH may be empty. Busybox's has neither option.
  if \command test -x /usr/bin/timeout && ! \command test /usr/bin/timeout -ef /bin/busybox; then
    \set -- /usr/bin/timeout --foreground --preserve-status -k "$__handwash_patience" \
      "$((__handwash_limit + 2))" "$@"
  fi
  if \command test -z "${LD_LIBRARY_PATH-}${LD_PRELOAD-}"; then
    "$@"
  else
    # -I does not cover the libraries that modules and conda put before Python's own. Each in a statement of its own:
    # a name that is read-only only makes its own statement fail.
    (
      __handwash_export HANDWASH_LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
      __handwash_export LD_LIBRARY_PATH=
      __handwash_export LD_PRELOAD=
      \exec "$@"
    )
  fi
}

# __handwash_told CODE: says that the check was cut off (124: time is up, 137: KILL, 142: ALRM, 143: TERM).
__handwash_told() {
  case $1 in
    124 | 137 | 142 | 143) ;;
    *) \return 0 ;;
  esac
  if __handwash_chinese; then
    __handwash_print 'handwash：检查没有按时完成，不再等待，直接离开'
  else
    __handwash_print 'handwash: the check did not finish in time; leaving without it'
  fi
}

# __handwash_chinese: a locale that names another encoding than UTF-8 gets English.
__handwash_chinese() {
  case ${HANDWASH_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG-}}}} in
    zh*.[gG][bB]* | zh*.[bB][iI][gG]*) \return 1 ;;
    zh*) \return 0 ;;
  esac
  \return 1
}

# --- a person's traps -------------------------------------------------------------------------------------------------

# __handwash_traps: reads the traps that are set on EXIT, HUP and INT back into `__handwash_on_*`, unset where there is
# none. Fails where they cannot be read.
#
# Not by $(trap): dash and mksh list the traps of the subshell, which are none. So the list has to go to a file
# descriptor and be read from there in the same process. A here-document is one: a pipe in dash and ash, a file that is
# gone already in mksh; opened once more by its name in /proc it can be written to. ksh93 needs none of this.
__handwash_traps() {
  \unset -v __handwash_on_EXIT __handwash_on_HUP __handwash_on_INT
  __handwash_list=
  if \command test "$__handwash_kind" = ksh93; then
    __handwash_list=$(\trap)
  else
    if \command test "$__handwash_kind" = ash && \command test -c /dev/full; then
      # Something to list makes the write to /dev/full fail. (In mksh standard output would stay broken.)
      \trap >|/dev/full && \return 0
    fi 2>/dev/null
    {
      \trap >|/proc/self/fd/9 || \return 1
      while \command read -r __handwash_line; do
        __handwash_list="$__handwash_list$__handwash_line
"
      done <&9
    } 2>/dev/null 9<<END || \return 1
END
  fi
  \command test -n "$__handwash_list" || \return 0
  # Each line is `trap -- TEXT NAME`, with TEXT quoted so that it can be read again, over several lines if need be.
  __handwash_line=
  if \command alias trap >/dev/null 2>&1; then __handwash_line=$(\command alias trap); fi
  \command alias trap=__handwash_take
  \eval "$__handwash_list"
  \command unalias trap
  \command test -z "$__handwash_line" || \eval "\\command alias $__handwash_line"
}

# Stands in for `trap` while the list is read.
__handwash_take() {
  case $3 in
    EXIT) __handwash_on_EXIT=$2 ;;
    HUP) __handwash_on_HUP=$2 ;;
    INT) __handwash_on_INT=$2 ;;
  esac
}

# __handwash_shielded WORDS…: runs WORDS so that Ctrl-C ends them and nothing else: a foreground program that dies of
# SIGINT also ends the start-up file or trap that runs it, unless SIGINT is trapped.
__handwash_shielded() {
  if ! __handwash_traps; then
    "$@" || \:
  elif \command test -z "${__handwash_on_INT+set}"; then
    \trap : INT
    "$@" || \:
    \trap - INT
  else
    "$@" || \:
  fi
}

# --- gate: exit at the top level --------------------------------------------------------------------------------------

# __handwash_gate STATUS LINE ARGUMENTS…: called by the alias `exit` with the $? and the line of input that it met.
__handwash_gate() {
  __handwash_status=$1 __handwash_input=${2:-0}
  \shift 2
  __handwash_words=$#
  \command test "$#" -gt 0 || \set -- "$__handwash_status"
  # A subshell is another process, but in ksh93. There a function or a sourced file can be told, too: held back it would
  # run on after its `exit`.
  __handwash_pid=$$
  \command read -r __handwash_pid </proc/self/stat || \:
  __handwash_deep=0
  # shellcheck disable=SC2016  # ksh93 alone can read it
  if \command test "$__handwash_kind" = ksh93; then
    \eval '__handwash_deep=$((.sh.level - 1 + .sh.subshell))'
  fi
  if \command test "${__handwash_pid%% *}" != "$$" || \command test "$__handwash_deep" -ne 0 ||
    \command test -n "$__handwash_leaving" || ! \command test -t 0 || __handwash_off; then
    \exit "$@"
    # Still here: stopped jobs, and the shell has said so.
    # shellcheck disable=SC2317
    \return
  fi
  # The second attempt in a row leaves. In a row: on the next line of input, as far as the shell counts them (dash does
  # not), within a minute.
  __handwash_clock
  __handwash_again=
  if \command test -n "$__handwash_held" &&
    \command test "$((__handwash_now - ${__handwash_held%:*}))" -le 60 &&
    \command test "$((__handwash_input - ${__handwash_held#*:}))" -le 1; then
    __handwash_again=1
  fi
  __handwash_held=$__handwash_now:$__handwash_input
  # Let go, and still here: stopped jobs. ksh93 lets the second attempt go only if no program ran since.
  \command test -z "$__handwash_again" || __handwash_trying=$__handwash_trying$__handwash_gone
  __handwash_gone=
  # The status that the first attempt met, and not that of how it was given up.
  if \command test "$__handwash_again:$1" = 1:"$__handwash_stayed" && \command test "$__handwash_words" = 0; then
    \set -- "$__handwash_kept"
  else
    __handwash_kept=$__handwash_status
  fi
  __handwash_code=0
  # Ctrl-C ends the check by SIGINT, and with it the shell gives up this function: the person stays. So a check that
  # never came back is not tried again.
  if \command test -z "$__handwash_again"; then
    __handwash_trying=1
    __handwash_run 3600 leave exit >&2 || __handwash_code=$?
    __handwash_trying=
    # 75: stay. 130: interrupted, where a trap on INT kept this function running. Everything else lets go.
    case $__handwash_code in
      75 | 130)
        __handwash_stay
        \return
        ;;
    esac
  elif \command test -z "$__handwash_trying"; then
    __handwash_trying=1
    __handwash_run 60 leave exit --again >&2 || __handwash_code=$?
    __handwash_trying=
  fi
  __handwash_told "$__handwash_code"
  # The moment, and not just a mark: with stopped jobs the shell stays after all, and mksh gives up this function.
  __handwash_clock
  __handwash_asked=$__handwash_now __handwash_gone=1
  \exit "$@"
  # shellcheck disable=SC2317  # still here: stopped jobs
  __handwash_asked=
}

# Back to the prompt. Where a function or a sourced file looks like the top level it must not run on: what is being run
# is given up, as by an error in dash and ash, as by Ctrl-C in mksh.
__handwash_stay() {
  case $__handwash_kind in
    ash) { : "${__handwash_nothing:?}"; } 2>/dev/null ;;
    mksh) \command kill -INT "$$" ;;
  esac
  # Under `set -e` any other status than 0 would leave after all.
  case $- in *e*) \return 0 ;; esac
  \return "$__handwash_status"
}

# A person's own `exit` stays theirs. An alias, since a function cannot take the place of a special builtin.
if ! \command alias exit >/dev/null 2>&1; then
  # shellcheck disable=SC2016,SC2139  # expanded where it is used
  if \command test "$__handwash_kind" = ksh93; then
    # Its LINENO stands still at the prompt.
    \command alias exit='\__handwash_gate "$?" "${HISTCMD-}"'
  else
    \command alias exit='\__handwash_gate "$?" "${LINENO-}"'
  fi
fi

# --- late path --------------------------------------------------------------------------------------------------------

# shellcheck disable=SC2120  # called from the EXIT trap
# __handwash_late [LINE]: Ctrl-D, a closed terminal, and what the gate let through. Returns the $? it met, for a trap that
# follows it. LINE is that of the last command, for mksh.
__handwash_late() {
  __handwash_status=$?
  if \command test -z "$__handwash_leaving" && ! __handwash_off &&
    \command test "${__handwash_exec-none}" != "${1-}"; then
    __handwash_clock
    if \command test -z "$__handwash_asked" || \command test "$((__handwash_now - __handwash_asked))" -gt 60; then
      if \command test -t 0; then
        __handwash_shielded __handwash_late_eof
      else
        # The terminal is gone: nobody to ask, and a write to it would fail. In the background, because dash and ash cannot
        # give a terminal that is gone to a program, and end over it.
        __handwash_run 60 leave hup </dev/null >/dev/null 2>&1 &
        \command wait "$!" || \:
      fi
    fi
  fi
  # A trap that follows may call `exit`: once is enough.
  __handwash_leaving=1
  \return "$__handwash_status"
}

__handwash_late_eof() {
  __handwash_code=0
  __handwash_run 3600 leave eof >&2 || __handwash_code=$?
  __handwash_told "$__handwash_code"
}

# HUP ends mksh, dash and ash without their EXIT trap. After the check it still does.
__handwash_hup() {
  __handwash_late '' || \:
  \trap - HUP
  \command kill -HUP "$$"
}

# A trap set before is read back, and run after ours with the same $?: in the else branch $? is that of the condition,
# and a condition may fail under `set -e`. Where traps cannot be read, a person's stay and there is no late path.
if __handwash_traps; then
  __handwash_earlier=${__handwash_on_EXIT-}
  if \command test "$__handwash_kind" = ash; then
    \trap 'if \__handwash_late; then \eval "${__handwash_earlier-}"; else \eval "${__handwash_earlier-}"; fi' EXIT
  else
    # ksh93 would end with status 0 after Ctrl-D, mksh with that of the trap after `exit 130`.
    \trap 'if \__handwash_late "${LINENO-}"; then \eval "${__handwash_earlier-}"
      else \eval "${__handwash_earlier-}"; fi; \exit "$__handwash_status"' EXIT
  fi
  # A person's own trap on HUP need not mean the end; when it does, the EXIT trap runs. In ksh93 that runs anyway.
  if \command test "$__handwash_kind" != ksh93 && \command test -z "${__handwash_on_HUP+set}"; then
    \trap '\__handwash_hup' HUP
  fi
  # mksh runs the EXIT trap at `exec BUILTIN` too, and no shell asks at `exec`: remembered is the line that said it.
  if \command test "$__handwash_kind" = mksh && ! \command alias exec >/dev/null 2>&1; then
    # shellcheck disable=SC2016,SC2139  # expanded where it is used
    \command alias exec='__handwash_exec=${LINENO-} exec'
  fi
fi

# --- banner -----------------------------------------------------------------------------------------------------------

# __handwash_safe TEXT: TEXT in `__handwash_text`, without control characters and of no unheard-of length: it may come
# from somebody else. Backslashes before the brackets: ksh93 ends a set that begins with `[!]` there.
__handwash_safe() {
  __handwash_text=$1 __handwash_rest='????????????????????????????????????????'
  __handwash_rest=$__handwash_rest$__handwash_rest$__handwash_rest$__handwash_rest$__handwash_rest
  # shellcheck disable=SC2295  # a pattern: two hundred characters
  __handwash_rest=${__handwash_text#$__handwash_rest}
  case $__handwash_rest in "$__handwash_text") ;; *) __handwash_text=${__handwash_text%"$__handwash_rest"} ;; esac
  while \:; do
    case $__handwash_text in
      *[!\]\[0-9A-Za-z._:/,+?-]*)
        __handwash_rest=${__handwash_text#*[!\]\[0-9A-Za-z._:/,+?-]}
        __handwash_text="${__handwash_text%%[!\]\[0-9A-Za-z._:/,+?-]*}?$__handwash_rest"
        ;;
      *) \return 0 ;;
    esac
  done
}

# The first line, said before any program starts, then `handwash banner`.
__handwash_greet() {
  __handwash_export HANDWASH_SHOWN="$__handwash_host:$__handwash_job:$$"
  __handwash_safe "${__handwash_host%%.*}"
  __handwash_host=$__handwash_text
  __handwash_safe "$__handwash_job"
  __handwash_job=$__handwash_text
  __handwash_safe "${SLURMD_NODENAME-}"
  __handwash_node=$__handwash_text
  # PBS has no shell of a job but on its compute node.
  \command test -n "${SLURM_JOB_ID-}" || __handwash_node=$__handwash_host
  # salloc(1): only where it was asked with --gpus; the banner below knows how many the job holds.
  __handwash_safe "${SLURM_GPUS-}"
  __handwash_cards=$__handwash_text
  __handwash_safe "${CUDA_VISIBLE_DEVICES-}"
  if __handwash_chinese; then
    # In braces: ksh93 takes the first bytes of a Chinese character for a part of the name.
    if \command test -z "$__handwash_job"; then
      __handwash_words="handwash：${__handwash_host}：此 shell 不在任何作业里"
    elif \command test -n "$__handwash_node"; then
      __handwash_words="handwash：${__handwash_host}：作业 ${__handwash_job}，在它的计算节点 ${__handwash_node} 上"
    else
      __handwash_words="handwash：${__handwash_host}：作业 ${__handwash_job} 的分配 shell，仍在这台机器上"
      \command test -z "$__handwash_cards" || __handwash_words="${__handwash_words}；申请的算力卡：${__handwash_cards}"
    fi
    if \command test -n "$__handwash_text"; then
      __handwash_words="${__handwash_words}；CUDA_VISIBLE_DEVICES=${__handwash_text}"
    elif \command test -n "${CUDA_VISIBLE_DEVICES+set}"; then
      __handwash_words="${__handwash_words}；CUDA_VISIBLE_DEVICES 已设置但为空：程序看不到任何算力卡"
    fi
  else
    if \command test -z "$__handwash_job"; then
      __handwash_words="handwash: $__handwash_host: no job in this shell"
    elif \command test -n "$__handwash_node"; then
      __handwash_words="handwash: $__handwash_host: in job $__handwash_job, on its compute node $__handwash_node"
    else
      __handwash_words="handwash: $__handwash_host: allocation shell of job $__handwash_job, still on this machine"
      \command test -z "$__handwash_cards" || __handwash_words="$__handwash_words; GPUs asked for: $__handwash_cards"
    fi
    if \command test -n "$__handwash_text"; then
      __handwash_words="$__handwash_words; CUDA_VISIBLE_DEVICES=$__handwash_text"
    elif \command test -n "${CUDA_VISIBLE_DEVICES+set}"; then
      __handwash_words="$__handwash_words; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU"
    fi
  fi
  __handwash_print "$__handwash_words"
  \command test "${HANDWASH_BANNER-}" = line || __handwash_shielded __handwash_banner
}

__handwash_banner() {
  __handwash_run 1 banner </dev/null >&2
}

# Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A nested shell
# has that one's terminal (tcsh keeps it as descriptor 15); a pane of tmux or screen, and a second terminal of the same
# job, need not. PBS sets both variables in all of a job; one alone is somebody's own.
__handwash_due() {
  __handwash_job=${SLURM_JOB_ID:-${PBS_ENVIRONMENT:+${PBS_JOBID-}}}
  __handwash_host=
  \command read -r __handwash_host </proc/sys/kernel/hostname || \:
  case ${HANDWASH_BANNER-}:${HANDWASH_SHOWN-} in
    off:*) \return 1 ;;
    *:"$__handwash_host:$__handwash_job":*)
      \command test -z "${TMUX-}${STY-}$__handwash_job" || \return 1
      \command test /proc/self/fd/0 -ef "/proc/${HANDWASH_SHOWN##*:}/fd/0" && \return 1
      \command test /proc/self/fd/0 -ef "/proc/${HANDWASH_SHOWN##*:}/fd/15" && \return 1
      ;;
  esac
  \return 0
}

# Last, so that Ctrl-C during the banner finds everything in place.
if __handwash_due; then __handwash_greet; fi
if \command test -n "$__handwash_allexport"; then
  __handwash_allexport=
  \set -a
fi
\:
