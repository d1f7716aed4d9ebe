# handwash for tcsh: a banner at login, a check before the way out.
#
# A static file, read when a shell starts, and once more by the gate before the shell is left. It runs nothing at a
# prompt. Silent and without effect in any other csh.
#
# How it is written, and why:
# - `if (…) exit` ends this file alone, and not the one that reads it; in a one-line `if` no alias is looked for.
# - There is no function and no `local`: all variables begin with `__handwash_`. `__handwash_python` and `__handwash_hook`
#   (set by the installed line) are the interpreter and this file.
# - What must not be a person's alias is said through a variable: an alias is looked for before variables are.
# - In tcsh the terminal is descriptor 15 where there is job control, and descriptors 16 to 18 are what other programs
#   have as 0 to 2. /proc tells about them without a program being started.

if (! $?tcsh) exit 0

# --- gate: `exit` and `logout` of an open shell -----------------------------------------------------------------------

# Called as `source THIS __handwash_leave exit`: decides what the word in `__handwash_exit` is, `exit` or nothing at all.
if ("$argv" == "__handwash_leave exit" || "$argv" == "__handwash_leave logout") then
  set __handwash_way = $argv[2]
  if ($?HANDWASH_ON_EXIT) then
    if ("$HANDWASH_ON_EXIT" == off) exit 0
  endif
  if ($?HANDWASH_DISABLE) then
    if ("$HANDWASH_DISABLE" != "" && "$HANDWASH_DISABLE" != 0) exit 0
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
    if ("$__handwash_again" != "") exit 0
  endif
  set __handwash_words = (leave $__handwash_way $__handwash_again) __handwash_patience = 3600
  if ("$__handwash_again" != "") set __handwash_patience = 60
  set __handwash_trying
  set __handwash_code = 0
  source $__handwash_hook:q __handwash_run
  unset __handwash_trying
  # 75: stay. 130: interrupted. Everything else lets go.
  if ("$__handwash_again" == "" && ($__handwash_code == 75 || $__handwash_code == 130)) set __handwash_exit = :
  if (1) exit 0
endif

# --- runs `handwash $__handwash_words`, the exit code in `__handwash_code` --------------------------------------------
#
# Two limits. Until handwash has started and looked around, TERM after the deadline and two seconds more ends it: an
# interpreter that hangs on a dead file system must not keep a person from leaving. From then on handwash itself
# ignores TERM: somebody may be thinking about its question, and its own steps are bounded. KILL follows
# `__handwash_patience` seconds after that. `--preserve-status`, because an answer given after the first limit still has
# to arrive here.
if ("$argv" == __handwash_run) then
  set __handwash_command = ()
  if ($?__handwash_python) then
    # The package beside this file: handwash/shellhooks/ in an installation, shellhooks/ and src/handwash/ in a checkout.
    set __handwash_main = $__handwash_hook:h:q
    set __handwash_main = $__handwash_main:h:q
    if (-r $__handwash_main:q/__main__.py) then
      set __handwash_main = $__handwash_main:q/__main__.py
    else
      set __handwash_main = $__handwash_main:q/src/handwash/__main__.py
    endif
    if (! -x $__handwash_python:q || ! -r $__handwash_main:q) exit 0
    # -I and -S: no PYTHONPATH, PYTHONHOME, json.py of the working directory or sitecustomize reaches the check.
    set __handwash_command = ($__handwash_python:q -I -S $__handwash_main:q)
  else
    foreach __handwash_main ($path:q)
      # Never a program of the working directory.
      if ($#__handwash_command == 0 && "$__handwash_main" =~ /* && -x $__handwash_main:q/handwash) \
        set __handwash_command = ($__handwash_main:q/handwash)
    end
    if ($#__handwash_command == 0) exit 0
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
  if ($?LD_LIBRARY_PATH || $?LD_PRELOAD) then
    # -I does not cover the libraries that modules and conda put before Python's own.
    if (! $?LD_LIBRARY_PATH) setenv LD_LIBRARY_PATH
    ( setenv HANDWASH_LD_LIBRARY_PATH "$LD_LIBRARY_PATH"; setenv LD_LIBRARY_PATH; setenv LD_PRELOAD; \
      $__handwash_command:q $__handwash_words ) || set __handwash_code = $status
  else
    $__handwash_command:q $__handwash_words || set __handwash_code = $status
  endif
  if (1) exit 0
endif

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

# `$?prompt` may be somebody's own doing. Job control on the terminal is not: not in `tcsh -c`, `tcsh -ic` or a script.
if (! -e /proc/self/fd/15 || ! -e /proc/self/fd/16 || ! -e /proc/self/fd/18) exit 0
if (-I /proc/self/fd/15 != -I /proc/self/fd/16 || -I /proc/self/fd/15 != -I /proc/self/fd/18) exit 0
if ($?HANDWASH_DISABLE) then
  if ("$HANDWASH_DISABLE" != "" && "$HANDWASH_DISABLE" != 0) exit 0
endif
# VS Code starts an interactive shell to read the environment, and waits ten seconds for it.
if ($?VSCODE_RESOLVING_ENVIRONMENT) exit 0
if (! $?TERM) exit 0
if ("$TERM" == dumb || "$TERM" == "") exit 0
if ($?__handwash_loaded) exit 0
if (! $?__handwash_hook) exit 0
if ($?__handwash_python) then
  if (! -x $__handwash_python:q) exit 0
endif

# --- gate -------------------------------------------------------------------------------------------------------------

set __handwash_loaded = $$

# One command, since of an alias with `;` in it `false && exit` runs the part behind that. What is `eval`ed is in memory: a
# hook that is gone keeps nobody. Not asked is in a subshell, which is another process, and in a file that is being read
# (tcsh has it open as descriptor 6): there `exit` only ends the file.
set __handwash_gate = 'if (-I /proc/self/. == -I /proc/$$/. && ! -f /proc/self/fd/6 && -r $__handwash_hook:q) source $__handwash_hook:q __handwash_leave $__handwash_exit; :'

# A person's own aliases stay theirs.
if ("`alias exit; alias logout`" == "") then
  alias exit 'eval '\''set __handwash_exit = exit;'\'' $__handwash_gate:q && $__handwash_exit'
  if ($?loginsh) alias logout 'eval '\''set __handwash_exit = logout;'\'' $__handwash_gate:q && $__handwash_exit'
endif
