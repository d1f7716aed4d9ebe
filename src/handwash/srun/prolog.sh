#!/bin/bash -p
# srun runs this on the submit host just before it launches a step (SLURM_PROLOG). It tells safe-srun which job and step that
# is, then becomes the prolog that the person or the site asked for, in the environment and with the arguments that it would
# have had. The names are long because a person may have exported the short ones; bash, since dash drops exported functions.
# HANDWASH_SCRIPTS: see changes.py. epilog.sh is this file with the other half of it.

_handwash_lines=()
_handwash_rest=${HANDWASH_SCRIPTS-}
while [ -n "$_handwash_rest" ]; do
  _handwash_lines+=("${_handwash_rest%%$'\n'*}")
  case $_handwash_rest in
    *$'\n'*) _handwash_rest=${_handwash_rest#*$'\n'} ;;
    *) _handwash_rest= ;;
  esac
done
# Its complaints are srun's, under the name that it has here.
_handwash_srun=srun
IFS= read -r _handwash_srun 2>/dev/null <"/proc/$PPID/comm"
if [ "${0##*/}" = prolog.sh ]; then
  # `<>` opens a pipe without waiting for a reader: should safe-srun be gone, srun must not hang here.
  if [ -p "${_handwash_lines[0]-}" ]; then
    _handwash_jobs=
    # A heterogeneous job has one job id per component; the variables were named PACK before 20.02 and still are beside HET.
    for ((_handwash_number = 0; ; _handwash_number++)); do
      _handwash_het=SLURM_JOB_ID_HET_GROUP_$_handwash_number
      _handwash_pack=SLURM_JOB_ID_PACK_GROUP_$_handwash_number
      _handwash_job=${!_handwash_het-${!_handwash_pack-}}
      [ -n "$_handwash_job" ] || break
      _handwash_jobs=$_handwash_jobs${_handwash_jobs:+,}$_handwash_job
    done
    printf '%s %s %s\n' "${_handwash_jobs:-${SLURM_JOB_ID-}}" "${SLURM_STEP_ID-}" "${SLURM_NNODES-}" \
      1<>"${_handwash_lines[0]}" || :
  fi
  if [ -n "${_handwash_lines[6]-}" ]; then
    # --bcast, done by srun's library under another name (bcast.py). srun does not look at sbcast's own variables.
    _handwash_words=$(
      unset "${!SBCAST_@}"
      exec "${_handwash_lines[@]:9}" --jobid="${SLURM_JOB_ID-}.${SLURM_STEP_ID-}" -- \
        "${_handwash_lines[7]}" "${_handwash_lines[8]}" 2>&1
    )
    _handwash_status=$?
    # It calls itself by Slurm's own name, whatever it is called (22.05), or by that.
    for _handwash_name in sbcast "${_handwash_lines[9]##*/}"; do
      _handwash_words=${_handwash_words//$'\n'"$_handwash_name: "/$'\n'$_handwash_srun: }
      _handwash_words=${_handwash_words/#"$_handwash_name: "/$_handwash_srun: }
    done
    [ -z "$_handwash_words" ] || printf '%s\n' "$_handwash_words" >&2
    # The status is a Slurm error number cut to eight bits: it may be 0 where a node has refused.
    case $_handwash_status/$_handwash_words in
      0/*REQUEST_FILE_BCAST*) ;;
      0/*) _handwash_lines[6]= ;;
    esac
    if [ -n "${_handwash_lines[6]}" ]; then
      echo "$_handwash_srun: fatal: Failed to broadcast '${_handwash_lines[7]}'. Step launch aborted." >&2
      echo failed >"${_handwash_lines[6]}"
      # srun goes on whatever its prolog says. If it is dead, its pid may be another's by now.
      read -r _ _ _ _handwash_pid _ <"/proc/$$/stat"
      [ "$_handwash_pid" != "$PPID" ] || kill -KILL "$PPID"
      exit 1
    fi
  fi
  _handwash_next=${_handwash_lines[1]-}
  if [ "${_handwash_next#\?}" != "$_handwash_next" ]; then
    # Asked here once a day at most, then remembered (siteinfo.py). For two seconds: a controller that is slow to answer must
    # not hold the launch up. srun has blocked ALRM and TERM (22.05), so neither timeout(1) nor `read -t 2` would end it.
    _handwash_name=${_handwash_next#?}
    _handwash_next=
    coproc _handwash_ask { exec "$_handwash_name" show config 2>/dev/null; }
    # shellcheck disable=SC2154  # coproc sets it
    _handwash_pid=$_handwash_ask_PID
    exec {_handwash_answer}<&"${_handwash_ask[0]}"
    # Else bash would say that it was killed.
    disown "$_handwash_pid"
    for ((_handwash_number = 0; _handwash_number < 100; _handwash_number++)); do
      read -r -t 0 -u "$_handwash_answer" && break
      sleep 0.02
    done
    [ "$_handwash_number" -lt 100 ] || kill -KILL "$_handwash_pid"
    while read -r -u "$_handwash_answer" _handwash_name _handwash_equals _handwash_value; do
      [ "$_handwash_name" != SrunProlog ] || _handwash_next=$_handwash_value
    done
    exec {_handwash_answer}<&-
  fi
else
  _handwash_next=${_handwash_lines[3]-}
fi
# Both scripts find the variables as they were.
unset HANDWASH_SCRIPTS HANDWASH_SRUN HANDWASH_KEPT SLURM_PROLOG SLURM_EPILOG
[ -z "${_handwash_lines[5]-}" ] || export "SLURM_BCAST=${_handwash_lines[5]#=}"
[ -z "${_handwash_lines[2]-}" ] || export "SLURM_PROLOG=${_handwash_lines[2]#=}"
[ -z "${_handwash_lines[4]-}" ] || export "SLURM_EPILOG=${_handwash_lines[4]#=}"

_handwash_given=$_handwash_next
case $_handwash_next in
  '' | '(null)' | [Nn][Oo][Nn][Ee]) exit 0 ;;
  */*) ;;
  *) _handwash_next=./$_handwash_next ;;
esac
if [ ! -r "$_handwash_next" ] || [ ! -x "$_handwash_next" ]; then
  # srun's own words; it goes on then.
  if [ -e "$_handwash_next" ]; then _handwash_why='Permission denied'; else _handwash_why='No such file or directory'; fi
  echo "$_handwash_srun: Access denied for $_handwash_given: $_handwash_why" >&2
  exit 0
fi
# It is given the command and its arguments: the person's, without what safe-srun has put before it.
[ "${8-}" != "${BASH_SOURCE[0]%/srun/*}/node/task.py" ] || shift 9
case $_handwash_next in
  *=*) exec "$_handwash_next" "$@" ;;
  # Bash's own exec would make the whole path its name.
  *) exec env "$_handwash_next" "$@" ;;
esac
