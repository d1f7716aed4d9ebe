# handwash for tcsh: a banner at login, a check before the way out.
#
# A static file, read when a shell starts, and once more by the gate before the shell is left. It runs nothing at a
# prompt. Silent and without effect in any other csh.
#
# How it is written, and why:
# - `goto` the last line ends this file. `exit` would too, but with suspended jobs tcsh refuses it.
# - There is no function and no `local`: all variables begin with `__handwash_`. `__handwash_python` and `__handwash_hook`
#   (set by the installed line) are the interpreter and this file.
# - What a one-line `if` guards is expanded all the same: a variable that may not be there stands in a block.
# - What must not be a person's alias is said through a variable: an alias is looked for before variables are.
# - In tcsh the terminal is descriptor 15 where there is job control, and descriptors 16 to 18 are what other programs
#   have as 0 to 2. /proc tells about them without a program being started.

if (! $?tcsh) goto __handwash_end

# --- gate: `exit` and `logout` of an open shell -----------------------------------------------------------------------

# Called as `source THIS __handwash_leave exit`: decides what the word in `__handwash_exit` is, `exit` or nothing at all.
if ("$argv" == "__handwash_leave exit" || "$argv" == "__handwash_leave logout") then
  set __handwash_way = $argv[2]
  unset __handwash_asked
  if ($?HANDWASH_ON_EXIT) then
    if ("$HANDWASH_ON_EXIT" == off) goto __handwash_end
  endif
  if ($?HANDWASH_DISABLE) then
    if ("$HANDWASH_DISABLE" != "" && "$HANDWASH_DISABLE" != 0 && "$HANDWASH_DISABLE" != false && "$HANDWASH_DISABLE" != no) \
      goto __handwash_end
  endif
  # The second attempt in a row leaves: within a minute, since tcsh tells no number of the line. The clock is the moment
  # of the last input from the terminal.
  @ __handwash_now = -A /proc/self/fd/15
  set __handwash_again
  if ($?__handwash_held) then
    if ($__handwash_now - $__handwash_held <= 60) set __handwash_again = --again
  endif
  set __handwash_held = $__handwash_now
  # A check that never came back (Ctrl-C) is not tried again.
  if ($?__handwash_trying) then
    unset __handwash_trying
    if ("$__handwash_again" != "") goto __handwash_end
  endif
  set __handwash_words = (leave $__handwash_way $__handwash_again) __handwash_patience = 3600
  if ("$__handwash_again" != "") set __handwash_patience = 60
  # Until the check has come back the person stays: Ctrl-C ends this file, and not what follows it.
  set __handwash_trying __handwash_exit = :
  source $__handwash_hook:q __handwash_run
  unset __handwash_trying
  # 75: stay. 130: interrupted. Everything else lets go.
  if ("$__handwash_again" != "" || ($__handwash_code != 75 && $__handwash_code != 130)) then
    set __handwash_asked __handwash_exit = $__handwash_way
    # With suspended jobs tcsh refuses, and lets the next `exit` go only if nothing at all ran since: not even a gate. The
    # gate comes back in a minute.
    if ($?__handwash_is_exit) unalias exit
    if ($?__handwash_is_logout) unalias logout
    sched +0:01 'if (-r $__handwash_hook:q) source $__handwash_hook:q __handwash_arm'
  endif
  goto __handwash_end
endif

if ("$argv" =~ __handwash_late\ *) goto __handwash_late

# Called as `source THIS __handwash_arm`.
if ("$argv" == __handwash_arm) then
  unset __handwash_asked
  if ($?__handwash_is_exit) alias exit 'eval '\''set __handwash_exit = exit;'\'' $__handwash_gate:q && $__handwash_exit'
  if ($?__handwash_is_logout) \
    alias logout 'eval '\''set __handwash_exit = logout;'\'' $__handwash_gate:q && $__handwash_exit'
  goto __handwash_end
endif

# --- runs `handwash $__handwash_words`, the exit code in `__handwash_code` --------------------------------------------
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows
# `__handwash_patience` seconds after that. `--preserve-status`, because an answer given after the first limit still has
# to arrive here.
if ("$argv" == __handwash_run) then
  set __handwash_command = () __handwash_code = 127
  if ($?__handwash_python) then
    # The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a checkout.
    set __handwash_main = $__handwash_hook:h:q
    set __handwash_main = $__handwash_main:h:q
    if (-r $__handwash_main:q/__main__.py) then
      set __handwash_main = $__handwash_main:q/__main__.py
    else
      set __handwash_main = $__handwash_main:q/src/handwash/__main__.py
    endif
    if (! -x $__handwash_python:q || ! -r $__handwash_main:q) goto __handwash_end
    # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
    set __handwash_command = ($__handwash_python:q -I -S $__handwash_main:q)
  else
    foreach __handwash_main ($path:q)
      # Never a program of the working directory.
      if ($#__handwash_command == 0 && "$__handwash_main" =~ /* && -x $__handwash_main:q/handwash) \
        set __handwash_command = ($__handwash_main:q/handwash)
    end
    if ($#__handwash_command == 0) goto __handwash_end
  endif
  set __handwash_limit = 3
  if ($?HANDWASH_DEADLINE) then
    if ("$HANDWASH_DEADLINE:r" =~ [0-9] || "$HANDWASH_DEADLINE:r" =~ [1-9][0-9]) \
      set __handwash_limit = "$HANDWASH_DEADLINE:r"
  endif
  @ __handwash_limit = $__handwash_limit + 2
  # Found by path, since PATH may be empty.
  if (-x /usr/bin/timeout) set __handwash_command = (/usr/bin/timeout --foreground --preserve-status \
    -k $__handwash_patience $__handwash_limit $__handwash_command:q)
  # -I does not cover the libraries that modules and conda put before Python's own. Taken away for the one program.
  if ($?LD_LIBRARY_PATH) then
    set __handwash_command = (/usr/bin/env LD_LIBRARY_PATH= HANDWASH_LD_LIBRARY_PATH="$LD_LIBRARY_PATH" \
      $__handwash_command:q)
  endif
  if ($?LD_PRELOAD) set __handwash_command = (/usr/bin/env LD_PRELOAD= $__handwash_command:q)
  # Ctrl-C ends this file here, and the one that reads it goes on.
  set __handwash_code = 130
  if ("$__handwash_words" =~ leave\ [el]*) then
    $__handwash_command:q $__handwash_words && set __handwash_code = 0 || set __handwash_code = $status
  else
    $__handwash_command:q $__handwash_words < /dev/null && set __handwash_code = 0 || set __handwash_code = $status
  endif
  if ($__handwash_code == 124 || $__handwash_code == 137 || $__handwash_code == 142 || $__handwash_code == 143) then
    set __handwash_text = "handwash: the check did not finish in time; leaving without it"
    if ($?__handwash_chinese) set __handwash_text = "handwash：检查没有按时完成，不再等待，直接离开"
    if ("$__handwash_words" =~ leave*) $__handwash_say "$__handwash_text" >! /dev/$tty
  endif
  goto __handwash_end
endif

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

# `$?prompt` may be somebody's own doing. Job control on the terminal is not: not in `tcsh -c`, `tcsh -ic` or a script.
if (! -e /proc/self/fd/15 || ! -e /proc/self/fd/16 || ! -e /proc/self/fd/18) goto __handwash_end
if (-I /proc/self/fd/15 != -I /proc/self/fd/16 || -I /proc/self/fd/15 != -I /proc/self/fd/18) goto __handwash_end
if ($?HANDWASH_DISABLE) then
  if ("$HANDWASH_DISABLE" != "" && "$HANDWASH_DISABLE" != 0 && "$HANDWASH_DISABLE" != false && "$HANDWASH_DISABLE" != no) \
    goto __handwash_end
endif
# VS Code starts an interactive shell to read the environment, and waits ten seconds for it.
if ($?VSCODE_RESOLVING_ENVIRONMENT) goto __handwash_end
if (! $?TERM) goto __handwash_end
if ("$TERM" == dumb || "$TERM" == "") goto __handwash_end
if ($?__handwash_loaded) goto __handwash_end
if (! $?__handwash_hook) goto __handwash_end
if ($?__handwash_python) then
  if (! -x $__handwash_python:q) goto __handwash_end
endif

# --- gate -------------------------------------------------------------------------------------------------------------

set __handwash_loaded = $$ __handwash_say = echo
# A locale that names another encoding than UTF-8 gets English.
set __handwash_text
if ($?LANG) then
  set __handwash_text = "$LANG"
endif
if ($?LC_MESSAGES) then
  set __handwash_text = "$LC_MESSAGES"
endif
if ($?LC_ALL) then
  set __handwash_text = "$LC_ALL"
endif
if ($?HANDWASH_LANG) then
  set __handwash_text = "$HANDWASH_LANG"
endif
if ("$__handwash_text" =~ zh* && "$__handwash_text" !~ *.[gG][bB]* && "$__handwash_text" !~ *.[bB][iI][gG]*) \
  set __handwash_chinese

# One command, since of an alias with `;` in it `false && exit` runs the part behind that. What is `eval`ed is in memory: a
# hook that is gone keeps nobody, nor does one that was not read to its end last time. Not asked is in a subshell, which is
# another process, and in a file that is being read (tcsh has it open as descriptor 6): there `exit` only ends the file.
set __handwash_gate = 'unset __handwash_go; if (-I /proc/self/. == -I /proc/$$/. && ! -f /proc/self/fd/6 && -r $__handwash_hook:q && ! $?__handwash_reading) set __handwash_go; unset __handwash_reading; if ($?__handwash_go) set __handwash_reading; if ($?__handwash_go) source $__handwash_hook:q __handwash_leave $__handwash_exit; :'

# A person's own aliases stay theirs.
if ("`alias exit; alias logout`" == "") then
  set __handwash_is_exit
  if ($?loginsh) set __handwash_is_logout
else
  if ("`alias exit`" == "") set __handwash_is_exit
  if ($?loginsh && "`alias logout`" == "") set __handwash_is_logout
endif
source $__handwash_hook:q __handwash_arm

# --- banner -----------------------------------------------------------------------------------------------------------

# Once per login and once per job. The mark is the host, the job, and the shell that showed the banner. A nested shell
# has that one's terminal; a pane of tmux or screen, and a second terminal of the same job, need not. PBS sets both
# variables in all of a job; one alone is somebody's own.
if ($?HANDWASH_BANNER) then
  if ("$HANDWASH_BANNER" == off) goto __handwash_end
endif
set __handwash_host __handwash_job
if ($?HOST) then
  set __handwash_host = "$HOST"
endif
if ($?PBS_JOBID && $?PBS_ENVIRONMENT) then
  if ("$PBS_ENVIRONMENT" != "") set __handwash_job = "$PBS_JOBID"
endif
if ($?SLURM_JOB_ID) then
  if ("$SLURM_JOB_ID" != "") set __handwash_job = "$SLURM_JOB_ID"
endif
if ($?HANDWASH_SHOWN) then
  # The brackets of an array's job would be a pattern, in quotes too.
  set __handwash_text = "${__handwash_host}:${__handwash_job}:"
  if ("$HANDWASH_SHOWN:as/[/(/:as/]/)/" =~ "$__handwash_text:as/[/(/:as/]/)/"*) then
    if ($?TMUX || $?STY || "$__handwash_job" != "") goto __handwash_end
    set __handwash_text = "$HANDWASH_SHOWN:as/:/ /"
    set __handwash_text = ($__handwash_text)
    set __handwash_text = "/proc/$__handwash_text[$#__handwash_text]/fd"
    if (-e "$__handwash_text/0" && -I "$__handwash_text/0" == -I /proc/self/fd/15) goto __handwash_end
    if (-e "$__handwash_text/15" && -I "$__handwash_text/15" == -I /proc/self/fd/15) goto __handwash_end
  endif
endif
setenv HANDWASH_SHOWN "${__handwash_host}:${__handwash_job}:$$"

# The first line, said before any program starts. Its values may come from somebody else: one with anything unheard-of in
# it, or of unheard-of length, is not shown.
set __handwash_cards __handwash_wanted
if ($?CUDA_VISIBLE_DEVICES) then
  set __handwash_cards = "$CUDA_VISIBLE_DEVICES"
endif
# salloc(1): only where it was asked with --gpus; the banner below knows how many the job holds.
if ($?SLURM_GPUS) then
  set __handwash_wanted = "$SLURM_GPUS"
endif
set __handwash_host = ($__handwash_host:as/./ /)
set __handwash_host = "$__handwash_host[1]"
# PBS has no shell of a job but on its compute node.
set __handwash_node = "$__handwash_host"
if ($?SLURM_JOB_ID) then
  if ("$SLURM_JOB_ID" != "") set __handwash_node
  if ("$SLURM_JOB_ID" != "" && $?SLURMD_NODENAME) then
    set __handwash_node = "$SLURMD_NODENAME"
  endif
endif
if ("$__handwash_host" =~ *[^0-9A-Za-z._:/,+-]*) set __handwash_host = '?'
# The brackets of an array's job, which no set of characters can name here, are taken out first.
if ("$__handwash_job:as/[//:as/]//" =~ *[^0-9A-Za-z._:/,+-]* || ${%__handwash_job} > 200) set __handwash_job = '?'
if ("$__handwash_node" =~ *[^0-9A-Za-z._:/,+-]*) set __handwash_node = '?'
if ("$__handwash_cards" =~ *[^0-9A-Za-z._:/,+-]*) set __handwash_cards = '?'
if ("$__handwash_wanted" =~ *[^0-9A-Za-z._:/,+-]*) set __handwash_wanted = '?'
if ("$__handwash_job" == "" || "$__handwash_node" != "") set __handwash_wanted
if ($?__handwash_chinese) then
  set __handwash_text = "handwash：${__handwash_host}：此 shell 不在任何作业里"
  if ("$__handwash_job" != "") then
    set __handwash_text = "handwash：${__handwash_host}：作业 $__handwash_job 的分配 shell，仍在这台机器上"
    if ("$__handwash_node" != "") \
      set __handwash_text = "handwash：${__handwash_host}：作业 ${__handwash_job}，在它的计算节点 $__handwash_node 上"
  endif
  if ("$__handwash_wanted" != "") set __handwash_text = "${__handwash_text}；申请的算力卡：${__handwash_wanted}"
  if ("$__handwash_cards" != "") then
    set __handwash_text = "${__handwash_text}；CUDA_VISIBLE_DEVICES=$__handwash_cards"
  else if ($?CUDA_VISIBLE_DEVICES) then
    set __handwash_text = "${__handwash_text}；CUDA_VISIBLE_DEVICES 已设置但为空：程序看不到任何算力卡"
  endif
else
  set __handwash_text = "handwash: ${__handwash_host}: no job in this shell"
  if ("$__handwash_job" != "") then
    set __handwash_text = "handwash: ${__handwash_host}: allocation shell of job ${__handwash_job}, still on this machine"
    if ("$__handwash_node" != "") \
      set __handwash_text = "handwash: ${__handwash_host}: in job ${__handwash_job}, on its compute node $__handwash_node"
  endif
  if ("$__handwash_wanted" != "") set __handwash_text = "${__handwash_text}; GPUs asked for: ${__handwash_wanted}"
  if ("$__handwash_cards" != "") then
    set __handwash_text = "${__handwash_text}; CUDA_VISIBLE_DEVICES=$__handwash_cards"
  else if ($?CUDA_VISIBLE_DEVICES) then
    set __handwash_text = "${__handwash_text}; CUDA_VISIBLE_DEVICES is set but empty: programs see no GPU"
  endif
endif
$__handwash_say "$__handwash_text" >! /dev/$tty
if ($?HANDWASH_BANNER) then
  if ("$HANDWASH_BANNER" == line) goto __handwash_end
endif
set __handwash_words = banner __handwash_patience = 1
source $__handwash_hook:q __handwash_run

# --- late path: from ~/.logout, which login shells alone read ---------------------------------------------------------

# Called as `source THIS __handwash_late $status`, after Ctrl-D, a closed terminal, and what the gate let go. The status of
# the last command in ~/.logout is the shell's: its line sets that again.
goto __handwash_end
__handwash_late:
set __handwash_exit = run
if (! $?__handwash_loaded || $?__handwash_asked) set __handwash_exit = :
if ($?HANDWASH_ON_EXIT) then
  if ("$HANDWASH_ON_EXIT" == off) set __handwash_exit = :
endif
if ($?HANDWASH_DISABLE) then
  if ("$HANDWASH_DISABLE" != "" && "$HANDWASH_DISABLE" != 0 && "$HANDWASH_DISABLE" != false && "$HANDWASH_DISABLE" != no) \
    set __handwash_exit = :
endif
set __handwash_words = (leave eof) __handwash_patience = 3600
# The name of a terminal that is gone is gone too.
if (! -e /dev/$tty) set __handwash_words = (leave hup) __handwash_patience = 60
# /etc/csh.logout may have the line as well.
set __handwash_asked
if ("$__handwash_exit" == run) source $__handwash_hook:q __handwash_run

__handwash_end:
unset __handwash_reading
