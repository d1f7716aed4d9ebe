# shellcheck shell=bash
# handwash for bash 4.2 and later: a banner at login, a check before the way out.
#
# A static file, read in two parts. When a shell starts, the first: guards, gate, late path, and is the banner due? It
# starts no program, forks at most once, and leaves nothing to run at a prompt. The second is read from this same file
# when it is needed, at once if the banner is due: to parse it takes bash longer than all that the first part does.
#
# How it is written, and why:
# - The guards are POSIX shell, for another shell or an old bash that meets this file by mistake.
# - `\builtin` stands before every builtin: the backslash keeps a person's alias away, `builtin` a person's function.
# - Names are tested as `${x-}` (set -u), no function ends in a test that may fail (set -e), and nothing depends on IFS,
#   globbing, noclobber or a name that a person may have made read-only.
# - `__handwash_python` (set by whoever installed this, never exported) is the interpreter; without it the `handwash`
#   command is looked up when it is needed. `__handwash_hook` is this file.

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

if \test "${__handwash_reading-}" != "$$"; then
  case ${BASH_VERSION-} in '' | [0-3].* | 4.[01].*) \return 0 ;; esac
  case $- in *i*) ;; *) \return 0 ;; esac
  # `bash -ic WORDS` has `i` in $- too.
  \test -z "${BASH_EXECUTION_STRING+set}" || \return 0
  \test -t 0 && \test -t 2 || \return 0
  case ${HANDWASH_DISABLE:-0} in 0 | false | no) ;; *) \return 0 ;; esac
  # VS Code starts `bash -ilc` or an interactive shell to read the environment, and waits ten seconds for it.
  \test -z "${VSCODE_RESOLVING_ENVIRONMENT-}" || \return 0
  case ${TERM:-dumb} in dumb) \return 0 ;; esac
  \test "${__handwash_loaded-}" != "$$" || \return 0
  \test -z "${__handwash_python-}" || \test -x "$__handwash_python" || \return 0
  # A restricted shell may neither redirect nor start a program by its path.
  \builtin shopt -q restricted_shell && \return 0
fi

# Under `set -a` every name and function made here would be exported, `exit` among them.
[[ -o allexport ]] && \builtin set +a && __handwash_allexport=1

# --- first part: gate, late path, and is the banner due? --------------------------------------------------------------

if [[ ${__handwash_reading-} != "$$" ]]; then
  # `bash -i SCRIPT`, as in `#!/bin/bash -i`: $0 is the script, and not the word that bash was started by; before 5.2 only
  # after the start-up files, and the script is the first word that belongs to no option. Not asked of a shell that is
  # told to read from its terminal (`s` in $- comes only after the start-up files, too).
  case ${0##*/}:$-:$BASH_VERSION in
    *:*s*:*) ;;
    bash:*:4.* | -bash:*:4.* | bash:*:5.[01].* | -bash:*:5.[01].*)
      __handwash_trap=skip
      while \builtin read -r -d '' __handwash_mark; do
        case $__handwash_trap:$__handwash_mark in
          skip:*) __handwash_trap='' ;;
          :--rcfile | :--init-file | :[-+]*[oO]) __handwash_trap=skip ;;
          :-[!-]*s*) \break ;;
          :[-+]*) ;;
          *) \return 0 ;;
        esac
      done 2>/dev/null </proc/self/cmdline || \builtin :
      ;;
    bash:* | -bash:*) ;;
    *)
      { \builtin read -r -d '' __handwash_mark </proc/self/cmdline; } 2>/dev/null || __handwash_mark=$0
      [[ $__handwash_mark == "$0" ]] || \return 0
      ;;
  esac

  __handwash_loaded=$$ __handwash_complete='' __handwash_held='' __handwash_trying='' __handwash_asked=''
  if [[ -z ${__handwash_hook-} ]]; then
    __handwash_hook=${BASH_SOURCE[0]}
    [[ $__handwash_hook == /* ]] || __handwash_hook=$PWD/$__handwash_hook
  fi

  # Reads the second part, unless it has been; fails where it is no longer there, or not whole.
  function __handwash_load {
    \builtin local __handwash_reading="$$"
    [[ -z $__handwash_complete && -r $__handwash_hook ]] && \builtin source "$__handwash_hook" 2>/dev/null
    [[ -n $__handwash_complete ]]
  }

  # COMMAND STATUS ARGUMENTS…, from the functions `exit` and `logout`.
  function __handwash_gate {
    if __handwash_load; then
      __handwash_leave "$@"
    else
      \builtin set -- "$1" "${@:$(($# > 2 ? 3 : 2))}"
      \builtin "$@"
    fi
  }

  # A person's own `exit` stays theirs, as alias or function. In posix mode a special builtin cannot be a function.
  # The `function` keyword: `exit() {` would be expanded where `exit` is an alias.
  if [[ ! -o posix ]]; then
    \builtin alias exit || \builtin declare -F exit ||
      function exit { __handwash_gate exit "$?" "$@"; }
    if \builtin shopt -q login_shell; then
      \builtin alias logout || \builtin declare -F logout ||
        function logout { __handwash_gate logout "$?" "$@"; }
    fi
  fi >/dev/null 2>&1

  # Ctrl-D, a closed terminal, exit in a function or sourced file. Returns the $? it met, for a trap that follows it.
  function __handwash_late {
    \builtin local __handwash_status="$?"
    if [[ -z $__handwash_asked ]] && __handwash_load; then __handwash_late_check; fi
    \builtin return "$__handwash_status"
  }

  # Is there no trap on that signal? If there is, `__handwash_trap` is what `trap -p` says.
  # A trap to list makes the write to /dev/full fail: in most shells that answers without a fork.
  function __handwash_untrapped {
    __handwash_trap=
    [[ -c /dev/full && ! -o posix ]] && \builtin trap -p "$1" 2>/dev/null >|/dev/full && \builtin return 0
    __handwash_trap=$(\builtin trap -p "$1")
    # In posix mode bash 5.2 lists a signal without a trap too, as a bare `-`.
    case $__handwash_trap in '' | 'trap -- - '*) \builtin return 0 ;; esac
    \builtin return 1
  }

  # An EXIT trap set before is read back, and run after ours with the same $?: in the else branch $? is that of the
  # condition, and a condition may fail under `set -e`.
  if __handwash_untrapped EXIT; then
    \builtin trap '\__handwash_late' EXIT
  else
    __handwash_trap=${__handwash_trap#trap -- }
    \builtin eval "__handwash_earlier=${__handwash_trap% EXIT}"
    \builtin trap 'if \__handwash_late; then \builtin eval "${__handwash_earlier-}"
      else \builtin eval "${__handwash_earlier-}"; fi' EXIT
  fi

  # Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A nested shell
  # has that one's terminal (tcsh keeps it as descriptor 15); a pane of tmux or screen, and a second terminal of the same
  # job, need not. PBS sets both variables in all of a job; one alone is somebody's own.
  __handwash_job=${SLURM_JOB_ID:-${PBS_ENVIRONMENT:+${PBS_JOBID-}}}
  __handwash_mark=${HOSTNAME-}:$__handwash_job:$$
  case ${HANDWASH_BANNER-}:${HANDWASH_SHOWN-} in
    off:*) __handwash_mark= ;;
    *:"${__handwash_mark%:*}":*)
      if [[ -n ${TMUX-}${STY-}$__handwash_job || /proc/self/fd/0 -ef /proc/${HANDWASH_SHOWN##*:}/fd/0 ||
        /proc/self/fd/0 -ef /proc/${HANDWASH_SHOWN##*:}/fd/15 ]]; then
        __handwash_mark=
      fi
      ;;
  esac
  if [[ -z $__handwash_mark ]]; then
    if [[ -n ${__handwash_allexport-} ]]; then
      \builtin export -n __handwash_python 2>/dev/null
      \builtin unset -v __handwash_allexport
      \builtin set -a
    fi
    \return 0
  fi
fi

# --- second part: words and tools -------------------------------------------------------------------------------------

# The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a checkout.
__handwash_main=${__handwash_hook%/*}
__handwash_main=${__handwash_main%/*}
if [[ -r $__handwash_main/__main__.py ]]; then
  __handwash_main+=/__main__.py
else
  __handwash_main+=/src/handwash/__main__.py
fi

# __handwash_text KEY: the few sentences that the shell itself says, as a printf format in `__handwash_format`.
# A locale that names another encoding than UTF-8 gets English.
function __handwash_text {
  case ${HANDWASH_LANG:-${LC_ALL:-${LC_MESSAGES:-${LANG-}}}} in
    zh*.[gG][bB]* | zh*.[bB][iI][gG]*) ;;
    zh*)
      case $1 in
        node) __handwash_format='handwash：%.200s：作业 %.200s，在它的计算节点 %.200s 上' ;;
        allocation) __handwash_format='handwash：%.200s：作业 %.200s 的分配 shell，仍在这台机器上' ;;
        plain) __handwash_format='handwash：%.200s：此 shell 不在任何作业里' ;;
        asked) __handwash_format='；申请的算力卡：%.200s' ;;
        devices) __handwash_format='；CUDA_VISIBLE_DEVICES=%.200s' ;;
        hidden) __handwash_format='；CUDA_VISIBLE_DEVICES 已设置但为空：程序看不到任何算力卡' ;;
        hung) __handwash_format='handwash：检查没有按时完成，不再等待，直接离开' ;;
      esac
      \builtin return 0
      ;;
  esac
  case $1 in
    node) __handwash_format='handwash: %.200s: in job %.200s, on its compute node %.200s' ;;
    allocation) __handwash_format='handwash: %.200s: allocation shell of job %.200s, still on this machine' ;;
    plain) __handwash_format='handwash: %.200s: no job in this shell' ;;
    asked) __handwash_format='; GPUs asked for: %.200s' ;;
    devices) __handwash_format='; CUDA_VISIBLE_DEVICES=%.200s' ;;
    hidden) __handwash_format='; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU' ;;
    hung) __handwash_format='handwash: the check did not finish in time; leaving without it' ;;
  esac
}

# __handwash_off: is handwash switched off in this shell by now?
function __handwash_off {
  case ${HANDWASH_DISABLE:-0} in 0 | false | no) \builtin return 1 ;; esac
  \builtin return 0
}

# __handwash_run PATIENCE WORDS…: runs `handwash WORDS…`; 127 and silence if it is no longer there.
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows PATIENCE
# seconds after that. `--preserve-status`, because an answer given after the first limit still has to arrive here.
function __handwash_run {
  \builtin local __handwash_patience="$1" __handwash_limit="${HANDWASH_DEADLINE:-3}"
  \builtin local -a __handwash_command
  \builtin shift
  if [[ -n ${__handwash_python-} ]]; then
    [[ -x $__handwash_python && -r ${__handwash_main-} ]] || \builtin return 127
    # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
    __handwash_command=("$__handwash_python" -I -S "$__handwash_main")
  else
    __handwash_command=("$(\builtin type -P handwash)")
    # Never a program of the working directory: a relative name was found through a relative part of PATH, and from an
    # empty part (an empty PATH is one) bash makes a whole path that is in no part.
    [[ ${__handwash_command[0]} == /* && :${PATH-}: == *":${__handwash_command[0]%/*}:"* ]] || \builtin return 127
  fi
  __handwash_limit=${__handwash_limit%%.*}
  [[ $__handwash_limit == [0-9] || $__handwash_limit == [0-9][0-9] ]] || __handwash_limit=3
  # Found by path, since PATH may be empty. Busybox's has neither option.
  if [[ -x /usr/bin/timeout && ! /usr/bin/timeout -ef /bin/busybox ]]; then
    __handwash_command=(/usr/bin/timeout --foreground --preserve-status -k "$__handwash_patience"
      "$((10#$__handwash_limit + 2))" "${__handwash_command[@]}")
  fi
  # -I does not cover the libraries that modules and conda put before Python's own. Each in a statement of its own, and
  # as a local name: one that is read-only only makes its own statement fail.
  if [[ -n ${LD_LIBRARY_PATH-} ]]; then
    # shellcheck disable=SC2034  # for the program
    \builtin local -x HANDWASH_LD_LIBRARY_PATH="$LD_LIBRARY_PATH" 2>/dev/null
    \builtin local -x LD_LIBRARY_PATH='' 2>/dev/null
  fi
  [[ -n ${LD_PRELOAD-} ]] && \builtin local -x LD_PRELOAD='' 2>/dev/null
  "${__handwash_command[@]}" "$@"
}

# __handwash_shielded WORDS…: runs WORDS so that Ctrl-C ends them and nothing else. In every bash a foreground program
# that dies of SIGINT also ends the start-up file or trap that runs it, unless SIGINT is trapped.
function __handwash_shielded {
  if __handwash_untrapped INT; then
    \builtin trap : INT
    "$@" || \builtin :
    \builtin trap - INT
  else
    "$@" || \builtin :
  fi
}

# --- gate: exit and logout at the top level ---------------------------------------------------------------------------

# __handwash_leave COMMAND STATUS ARGUMENTS…: called by the functions `exit` and `logout` with the $? they met.
function __handwash_leave {
  \builtin local __handwash_way="$1" __handwash_status="$2" __handwash_code=0 __handwash_again=''
  \builtin local __handwash_now __handwash_line __handwash_name __handwash_inside=''
  \builtin shift 2
  # A function or a sourced file, held back, would run on after its `exit`. By name and not by number: after Ctrl-C in the
  # check bash 4.2 keeps the names of the functions that it gave up.
  for __handwash_name in "${FUNCNAME[@]}"; do
    case $__handwash_name in __handwash_* | exit | logout) ;; *) __handwash_inside=1 ;; esac
  done
  # A subshell is another process; `exit &` is one too. And where bash only explains or refuses there is nothing to ask.
  if [[ ${BASHPID-$$} != "$$" || -n $__handwash_inside$__handwash_asked || $# -gt 1 || ${1-} == --help ]] ||
    [[ ${HANDWASH_ON_EXIT-} == off ]] || __handwash_off; then
    if [[ $# -eq 0 ]]; then \builtin set -- "$__handwash_status"; fi
    \builtin "$__handwash_way" "$@"
    \builtin return
  fi
  # The second attempt in a row leaves. In a row: on the next line of input, within a minute.
  \builtin printf -v __handwash_now '%(%s)T' -1
  __handwash_line=${BASH_LINENO[2]}
  if [[ -n $__handwash_held ]] && ((__handwash_now - ${__handwash_held%:*} <= 60)) &&
    ((__handwash_line - ${__handwash_held#*:} <= 1)); then
    __handwash_again=1
  fi
  __handwash_held=$__handwash_now:$__handwash_line
  # Ctrl-C ends the check by SIGINT, and with it bash gives up this function: the person stays. It does the same when it
  # cannot fork. So a check that never came back is not tried again.
  if [[ -z $__handwash_again ]]; then
    __handwash_trying=1
    __handwash_run 3600 leave "$__handwash_way" >&2 || __handwash_code=$?
    __handwash_trying=
    # 75: stay. 130: interrupted, where a trap on INT kept this function running. Everything else lets go.
    if [[ $__handwash_code -eq 75 || $__handwash_code -eq 130 ]]; then
      # Under `set -e` any other status than 0 would leave after all.
      [[ -o errexit ]] && \builtin return 0
      \builtin return "$__handwash_status"
    fi
  elif [[ -z $__handwash_trying ]]; then
    __handwash_trying=1
    __handwash_run 60 leave "$__handwash_way" --again >&2 || __handwash_code=$?
    __handwash_trying=
  fi
  __handwash_told "$__handwash_code"
  [[ $# -eq 0 ]] && \builtin set -- "$__handwash_status"
  __handwash_asked=1
  if [[ -n $__handwash_again ]]; then
    # With stopped jobs bash refuses the first `exit` and lets the second go, if the builtin before it was `exit`,
    # `logout` or `jobs`. Between two calls of this function there are others, so it would refuse for ever, in all
    # versions. `jobs` has to be called by its bare name right before: `builtin jobs` does not count.
    \builtin unset -f jobs 2>/dev/null || \builtin :
    \jobs >/dev/null 2>&1
  fi
  \builtin "$__handwash_way" "$@" || __handwash_code=$?
  # Still here: stopped jobs, and bash has said so.
  __handwash_asked=
  \builtin return "$__handwash_code"
}

# __handwash_told CODE: says that the check was cut off (124: time is up, 137: KILL, 142: ALRM, 143: TERM).
function __handwash_told {
  case $1 in
    124 | 137 | 142 | 143)
      \builtin local __handwash_format
      __handwash_text hung
      # shellcheck disable=SC2059  # the format is one of ours
      \builtin printf "$__handwash_format\n" >&2
      ;;
  esac
}

# --- late path --------------------------------------------------------------------------------------------------------

# Called from the EXIT trap, if the gate has not asked.
function __handwash_late_check {
  if [[ ${HANDWASH_ON_EXIT-} == off ]] || __handwash_off; then \builtin return 0; fi
  # A trap that follows may call `exit`: once is enough.
  __handwash_asked=1
  if [[ -t 0 ]]; then
    __handwash_shielded __handwash_late_eof
  else
    # The terminal is gone: nobody to ask, and a write to it would fail.
    __handwash_run 60 leave hup </dev/null >/dev/null 2>&1 || \builtin :
  fi
}

function __handwash_late_eof {
  \builtin local __handwash_code=0
  __handwash_run 3600 leave eof >&2 || __handwash_code=$?
  __handwash_told "$__handwash_code"
}

# --- banner -----------------------------------------------------------------------------------------------------------

# __handwash_say KEY VALUES…: a piece of the first line. The values may come from somebody else: no control character,
# no unheard-of length. Backslashes before the brackets: after `[^]` bash replaces nothing at all (4.2 to 5.2).
function __handwash_say {
  \builtin local __handwash_format
  __handwash_text "$1"
  \builtin shift
  \builtin set -- "${@//[^\]\[[:alnum:]._:\/,+-]/?}"
  # shellcheck disable=SC2059  # the format is one of ours
  \builtin printf "$__handwash_format" "$@" >&2
}

# The first line, said before any program starts, then `handwash banner`.
function __handwash_greet {
  \builtin export HANDWASH_SHOWN="$__handwash_mark" 2>/dev/null || \builtin :
  \builtin set -- "${HOSTNAME-}"
  \builtin set -- "${1%%.*}"
  if [[ -z $__handwash_job ]]; then
    __handwash_say plain "$1"
  elif [[ -z ${SLURM_JOB_ID-} ]]; then
    # PBS has no shell of a job but on its compute node.
    __handwash_say node "$1" "$__handwash_job" "$1"
  elif [[ -n ${SLURMD_NODENAME-} ]]; then
    __handwash_say node "$1" "$SLURM_JOB_ID" "$SLURMD_NODENAME"
  else
    __handwash_say allocation "$1" "$SLURM_JOB_ID"
    # salloc(1): only where it was asked with --gpus; the banner below knows how many the job holds.
    [[ -z ${SLURM_GPUS-} ]] || __handwash_say asked "$SLURM_GPUS"
  fi
  if [[ -n ${CUDA_VISIBLE_DEVICES-} ]]; then
    __handwash_say devices "$CUDA_VISIBLE_DEVICES"
  elif [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    __handwash_say hidden ''
  fi
  \builtin printf '\n' >&2
  [[ ${HANDWASH_BANNER-} == line ]] || __handwash_shielded __handwash_run 1 banner </dev/null >&2
}

__handwash_complete=1
# Last, so that Ctrl-C during the banner finds everything in place.
[[ ${__handwash_reading-} == "$$" ]] || __handwash_greet
if [[ -n ${__handwash_allexport-} ]]; then
  \builtin export -n __handwash_python 2>/dev/null
  \builtin unset -v __handwash_allexport
  \builtin set -a
fi
\builtin :
