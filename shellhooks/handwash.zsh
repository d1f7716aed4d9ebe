# handwash for zsh 5.8 and later: a banner at login, a check before the way out.
#
# Two static files. This one is read when a shell starts: the guards. It reads the other, handwash.more.zsh, as far as a
# start needs it: gate, late path, and is the banner due? That starts no program, forks never, and leaves nothing to run at
# a prompt. The rest of the other is read when it is needed, at once if the banner is due.
#
# How it is written, and why:
# - The guards are POSIX shell, for another shell or an old zsh that meets this file by mistake. After them the other file
#   is read under `emulate zsh -o no_aliases -c`. What is read so is parsed without a person's aliases (global ones too) and
#   without options that change the syntax, and each function made so runs under these options again, whatever the person
#   sets later.
# - No function of ours calls `exit`: after `exit` in a function only the first of all zshexit hooks runs (5.9).
# - `__handwash_python` (set by whoever installed this, never exported) is the interpreter; without it the `handwash`
#   command is looked up when it is needed. `__handwash_hook` is this file.

# --- guards: not a person's shell, or not now -------------------------------------------------------------------------

case ${ZSH_VERSION-} in '' | [0-4].* | 5.[0-7] | 5.[0-7][!0-9]*) \return 0 ;; esac
case $- in *i*) ;; *) \return 0 ;; esac
\test -z "${ZSH_EXECUTION_STRING+set}" || \return 0
case ${HANDWASH_DISABLE:-0} in 0 | false | no) ;; *) \return 0 ;; esac
# VS Code starts `zsh -ilc` or an interactive shell to read the environment, and waits ten seconds for it.
\test -z "${VSCODE_RESOLVING_ENVIRONMENT-}" || \return 0
case ${TERM:-dumb} in dumb) \return 0 ;; esac
\test "${__handwash_loaded-}" != "$$" || \return 0
\test -z "${__handwash_python-}" || \test -x "$__handwash_python" || \return 0

# In lines of their own: csh_junkie_quotes wants no quotes over several.
\builtin emulate zsh -o no_all_export -c '__handwash_hook=${${__handwash_hook:-${(%):-%x}}:a}'
\builtin emulate zsh -o no_all_export -c '__handwash_more=${__handwash_hook%zsh}more.zsh'

# An instant prompt takes the terminal away while the start-up files are read, and gives it back at the first prompt, or,
# as powerlevel10k, behind all that can be done there: this file is read again at the first, and at the second, prompt.
# Not without a line editor: that is no person's shell.
if [[ ! -t 0 || ! -t 2 ]]; then
  [[ -o zle && ${__handwash_tried-} != 11 ]] || \return 0
  function __handwash_at_prompt {
    \builtin emulate zsh -c 'precmd_functions=("${(@)precmd_functions:#__handwash_at_prompt}")'
    \builtin source "$__handwash_hook"
  }
  \builtin emulate zsh -o no_all_export -c 'precmd_functions+=(__handwash_at_prompt) __handwash_tried=${__handwash_tried-}1'
  \return 0
fi

# Stays, in the place of `exit`; here, because the person's own `set -e` counts: any other status than 0 would leave.
function __handwash_stay {
  [[ -o errexit ]] && \builtin return 0
  \builtin return "$__handwash_status"
}

\test -r "$__handwash_more" || \return 0
\builtin emulate zsh -o no_aliases -o no_all_export -o no_err_exit -o no_err_return -o no_xtrace -o no_verbose \
  -o no_warn_nested_var -c 'builtin source "$__handwash_more"'
# A person's own ignore_eof means that Ctrl-D is no way out.
if \test -n "${__handwash_eof-}"; then \builtin setopt ignore_eof; fi
\return 0
