# What handwash.zsh reads under options of our own: the first part when a shell starts, the rest when it is needed.

# --- first part: gate, late path, and is the banner due? --------------------------------------------------------------

if [[ ${__handwash_loaded-} != "$$" ]]; then
  __handwash_eof=
  # `zsh -i SCRIPT`, as in `#!/bin/zsh -i`: the name is the script's, and not the word that zsh was started by.
  if [[ $ZSH_ARGZERO != (-|(|*/))zsh ]]; then
    read -r -d '' __handwash_held </proc/self/cmdline
    [[ ${__handwash_held:-$ZSH_ARGZERO} == "$ZSH_ARGZERO" ]] || return 0
  fi 2>/dev/null
  typeset -g +x __handwash_python
  __handwash_loaded=$$ __handwash_complete= __handwash_held= __handwash_trying= __handwash_asked=

  # Reads the rest, unless it has been; fails where it is no longer there, or not whole. `source` would end at once after
  # `exit` in a function (5.9). A restricted shell, which zsh becomes after its start-up files, may neither redirect nor
  # start a program by its path.
  function __handwash_load {
    [[ -o restricted ]] && return 1
    [[ -z $__handwash_complete && -r $__handwash_more ]] && builtin eval "$(<"$__handwash_more")" 2>/dev/null
    [[ -n $__handwash_complete ]]
  }

  # WAY STATUS LINE, from the alias below: says up to which word of __handwash_step is to be run. From the first, or the
  # second under the person's own ksh_arrays: both do the same.
  function __handwash_gate {
    __handwash_step=(builtin builtin "${${(s: :):-exit logout bye}[$1 + 1]}")
    __handwash_load && __handwash_leave "$@"
    (( ${#__handwash_step} ))
  }

  # The gate is an alias for one command word: what follows it, and what stands before it, keep their place and meaning
  # (`true || exit`, `exit $x | cat`). The subscript is a mathematical function, which runs in this shell and keeps $?.
  # A person's own `exit` stays theirs, as alias or function.
  __handwash_step=()
  functions -M __handwash_gate 3 3
  if { ! builtin alias exit && ! builtin typeset -f exit; } >/dev/null 2>&1; then
    builtin alias exit='"${(@)__handwash_step[1,__handwash_gate(0,$?,LINENO)]}"'
    # Ctrl-D on an empty line types `exit`. zsh gives it to a widget only under ignore_eof. The keymaps are copied, so that
    # what ^D was bound to can be looked up (that takes a fork) when it is needed.
    if [[ ! -o ignore_eof ]]; then
      for __handwash_eof in main emacs viins vicmd; do
        builtin bindkey -N "__handwash_$__handwash_eof" "$__handwash_eof"
      done 2>/dev/null
      for __handwash_eof in main emacs viins vicmd; do
        builtin zle -N "__handwash_eof_$__handwash_eof" __handwash_end_of_file
        builtin bindkey -M "$__handwash_eof" '^D' "__handwash_eof_$__handwash_eof"
      done 2>/dev/null
    fi
  fi
  if { ! builtin alias bye && ! builtin typeset -f bye; } >/dev/null 2>&1; then
    builtin alias bye='"${(@)__handwash_step[1,__handwash_gate(2,$?,LINENO)]}"'
  fi
  if [[ -o login ]] && { ! builtin alias logout && ! builtin typeset -f logout; } >/dev/null 2>&1; then
    builtin alias logout='"${(@)__handwash_step[1,__handwash_gate(1,$?,LINENO)]}"'
  fi

  # The widget on ^D.
  function __handwash_end_of_file {
    if [[ -n $BUFFER || $CONTEXT != start ]]; then
      if __handwash_load; then __handwash_bound; else zle .delete-char-or-list; fi
    else
      # Where the alias is no longer ours, past the one that took its place.
      BUFFER='\builtin exit'
      [[ ${aliases[exit]-} == *__handwash_gate* ]] && BUFFER=exit
      CURSOR=$#BUFFER
      zshaddhistory_functions+=(__handwash_unrecorded)
      zle .accept-line
    fi
  }

  # Keeps that line out of the history, once.
  function __handwash_unrecorded {
    zshaddhistory_functions=("${(@)zshaddhistory_functions:#__handwash_unrecorded}")
    return 1
  }

  # A closed terminal, `builtin exit`, exit in a function or sourced file. Runs in subshells too. zsh 5.9 does not come
  # here where `set -e` ends it, nor from `exit` in a function of a login shell that has a zlogout file (Debian has one).
  function __handwash_late {
    if [[ $ZSH_SUBSHELL -eq 0 && -z $__handwash_asked ]] && __handwash_load; then __handwash_late_check; fi
  }
  zshexit_functions+=(__handwash_late)

  # Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A nested shell
  # has that one's terminal (tcsh keeps it as descriptor 15); a pane of tmux or screen, and a second terminal of the same
  # job, need not. PBS sets both variables in all of a job; one alone is somebody's own.
  __handwash_job=${SLURM_JOB_ID:-${PBS_ENVIRONMENT:+${PBS_JOBID-}}}
  __handwash_mark=${HOST-}:$__handwash_job:$$
  case ${HANDWASH_BANNER-}:${HANDWASH_SHOWN-} in
    off:*) __handwash_mark= ;;
    *:"${__handwash_mark%:*}":*)
      if [[ -n ${TMUX-}${STY-}$__handwash_job || /proc/self/fd/0 -ef /proc/${HANDWASH_SHOWN##*:}/fd/0 ||
        /proc/self/fd/0 -ef /proc/${HANDWASH_SHOWN##*:}/fd/15 ]]; then
        __handwash_mark=
      fi
      ;;
  esac
  [[ -n $__handwash_mark ]] || return 0
fi

# --- the rest: words and tools ----------------------------------------------------------------------------------------

# The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a checkout.
__handwash_main=${__handwash_hook:h:h}
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
      return 0
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
  [[ ${HANDWASH_DISABLE:-0} != (0|false|no) || ${HANDWASH_ON_EXIT-} == off ]]
}

# __handwash_run PATIENCE WORDS…: runs `handwash WORDS…`; 127 and silence if it is no longer there.
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows PATIENCE
# seconds after that. `--preserve-status`, because an answer given after the first limit still has to arrive here.
function __handwash_run {
  local __handwash_patience=$1 __handwash_limit=${${HANDWASH_DEADLINE:-3}%%.*}
  local -a __handwash_command
  builtin shift
  if [[ -n ${__handwash_python-} ]]; then
    [[ -x $__handwash_python && -r $__handwash_main ]] || return 127
    # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
    __handwash_command=("$__handwash_python" -I -S "$__handwash_main")
  else
    __handwash_command=("$(builtin whence -p handwash)")
    # A relative name was found through a relative part of PATH: never a program of the working directory.
    [[ $__handwash_command[1] == /* ]] || return 127
  fi
  [[ $__handwash_limit == ([0-9]|[0-9][0-9]) ]] || __handwash_limit=3
  # Found by path, since PATH may be empty. Busybox's has neither option.
  if [[ -x /usr/bin/timeout && ! /usr/bin/timeout -ef /bin/busybox ]]; then
    __handwash_command=(/usr/bin/timeout --foreground --preserve-status -k "$__handwash_patience"
      $((10#$__handwash_limit + 2)) "${__handwash_command[@]}")
  fi
  # -I does not cover the libraries that modules and conda put before Python's own. As local names: the person's may be
  # read-only, or tied to an array.
  if [[ -n ${LD_LIBRARY_PATH-} ]]; then
    local -x HANDWASH_LD_LIBRARY_PATH=$LD_LIBRARY_PATH
    local -x LD_LIBRARY_PATH=
  fi
  [[ -n ${LD_PRELOAD-} ]] && local -x LD_PRELOAD=
  "${__handwash_command[@]}" "$@"
}

# __handwash_shielded WORDS…: runs WORDS so that Ctrl-C ends them and nothing else. A foreground program that dies of
# SIGINT also ends the start-up file or hook that runs it, unless SIGINT is trapped.
function __handwash_shielded {
  builtin setopt local_traps
  builtin trap : INT
  "$@" || :
}

# --- gate: exit and logout at the top level ---------------------------------------------------------------------------

# WAY STATUS LINE, as the gate got them.
function __handwash_leave {
  local __handwash_code=0 __handwash_again= __handwash_now=${(%):-%D{%s}} __handwash_way=exit
  [[ $1 -eq 1 ]] && __handwash_way=logout
  __handwash_status=$2
  # A subshell is another process. A function or a sourced file, held back, would run on after its `exit`.
  if [[ $ZSH_SUBSHELL -ne 0 || -n $__handwash_asked ]] || __handwash_off ||
    [[ ${ZSH_EVAL_CONTEXT//:eval} != toplevel:shfunc:shfunc ]]; then
    return 0
  fi
  # The second attempt in a row leaves. In a row: on the next line of input, within a minute.
  if [[ -n $__handwash_held ]] && (( __handwash_now - ${__handwash_held%:*} <= 60 && $3 - ${__handwash_held#*:} <= 1 )); then
    __handwash_again=1
  fi
  __handwash_held=$__handwash_now:$3
  # Ctrl-C ends the check by SIGINT, and with it zsh gives up this function: the person stays. It does the same when it
  # cannot fork. So a check that never came back is not tried again.
  if [[ -z $__handwash_again ]]; then
    __handwash_trying=1
    __handwash_run 3600 leave $__handwash_way >&2 || __handwash_code=$?
    __handwash_trying=
    # 75: stay. 130: interrupted, where a trap on INT kept this function running. Everything else lets go.
    if [[ $__handwash_code -eq 75 || $__handwash_code -eq 130 ]]; then
      __handwash_step=(__handwash_stay __handwash_stay)
      return 0
    fi
  elif [[ -z $__handwash_trying ]]; then
    __handwash_trying=1
    __handwash_run 60 leave $__handwash_way --again >&2 || __handwash_code=$?
    __handwash_trying=
  fi
  __handwash_told $__handwash_code
  __handwash_asked=1
  # zsh may refuse (jobs, too many words). At the next prompt, once, we are still here and have not been asked.
  precmd_functions+=(__handwash_still)
}

function __handwash_still {
  __handwash_asked=
  precmd_functions=("${(@)precmd_functions:#__handwash_still}")
}

# __handwash_told CODE: says that the check was cut off (124: time is up, 137: KILL, 142: ALRM, 143: TERM).
function __handwash_told {
  case $1 in
    124 | 137 | 142 | 143)
      local __handwash_format
      __handwash_text hung
      builtin printf "$__handwash_format\n" >&2
      ;;
  esac
}

# What ^D meant before, with text on the line.
function __handwash_bound {
  local -a __handwash_words
  __handwash_words=(${(z)"$(builtin bindkey -M "__handwash_${WIDGET#__handwash_eof_}" '^D' 2>/dev/null)"})
  case ${__handwash_words[2]-} in
    '') zle .delete-char-or-list ;;
    \"*) zle -U -- "${(g:ce:)${__handwash_words[2]#\"}%\"}" ;;
    *) zle "$__handwash_words[2]" -w ;;
  esac
}

# --- late path --------------------------------------------------------------------------------------------------------

function __handwash_late_check {
  if __handwash_off; then return 0; fi
  # A hook that follows may call `exit`: once is enough.
  __handwash_asked=1
  # While a widget runs, standard input is /dev/null; Debian's zshrc has one that runs before each line is read.
  if [[ -t 0 ]]; then
    __handwash_shielded __handwash_late_eof
  elif [[ -t 1 ]]; then
    __handwash_shielded __handwash_late_eof </dev/tty
  else
    # The terminal is gone: nobody to ask, and a write to it would fail.
    __handwash_run 60 leave hup </dev/null >/dev/null 2>&1 || :
  fi
}

function __handwash_late_eof {
  local __handwash_code=0
  __handwash_run 3600 leave eof >&2 || __handwash_code=$?
  __handwash_told $__handwash_code
}

# --- banner -----------------------------------------------------------------------------------------------------------

# __handwash_say KEY VALUES…: a piece of the first line. The values may come from somebody else: no control character,
# no unheard-of length.
function __handwash_say {
  local __handwash_format
  __handwash_text "$1"
  builtin shift
  builtin printf "$__handwash_format" "${@//[^\]\[[:alnum:]._:\/,+-]/?}" >&2
}

# The first line, said before any program starts, then `handwash banner`.
function __handwash_greet {
  [[ ${(t)HANDWASH_SHOWN} == *readonly* ]] || builtin typeset -gx HANDWASH_SHOWN=$__handwash_mark
  local __handwash_host=${${HOST-}%%.*}
  if [[ -z $__handwash_job ]]; then
    __handwash_say plain "$__handwash_host"
  elif [[ -z ${SLURM_JOB_ID-} ]]; then
    # PBS has no shell of a job but on its compute node.
    __handwash_say node "$__handwash_host" "$__handwash_job" "$__handwash_host"
  elif [[ -n ${SLURMD_NODENAME-} ]]; then
    __handwash_say node "$__handwash_host" "$SLURM_JOB_ID" "$SLURMD_NODENAME"
  else
    __handwash_say allocation "$__handwash_host" "$SLURM_JOB_ID"
    # salloc(1): only where it was asked with --gpus; the banner below knows how many the job holds.
    [[ -z ${SLURM_GPUS-} ]] || __handwash_say asked "$SLURM_GPUS"
  fi
  if [[ -n ${CUDA_VISIBLE_DEVICES-} ]]; then
    __handwash_say devices "$CUDA_VISIBLE_DEVICES"
  elif [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    __handwash_say hidden ''
  fi
  builtin printf '\n' >&2
  [[ ${HANDWASH_BANNER-} == line ]] || __handwash_shielded __handwash_run 1 banner </dev/null >&2
}

__handwash_complete=1
# Last, so that Ctrl-C during the banner finds everything in place.
[[ -n $__handwash_mark ]] && __handwash_greet
:
