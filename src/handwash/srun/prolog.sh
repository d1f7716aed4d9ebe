#!/bin/sh
# srun runs this on the submit host just before it launches a step (SLURM_PROLOG). It tells safe-srun which job and step that
# is, then becomes the prolog that the person asked for. `<>` opens a pipe without waiting for a reader: should safe-srun be
# gone, srun must not hang here.
if [ -p "${HANDWASH_REPORT-}" ]; then
  jobs=
  number=0
  # A heterogeneous job has one job id per component; the variables were named PACK before 20.02 and still are beside HET.
  while eval "job=\${SLURM_JOB_ID_HET_GROUP_$number-\${SLURM_JOB_ID_PACK_GROUP_$number-}}" && [ -n "$job" ]; do
    jobs="$jobs${jobs:+,}$job"
    number=$((number + 1))
  done
  printf '%s %s %s\n' "${jobs:-${SLURM_JOB_ID-}}" "${SLURM_STEP_ID-}" "${SLURM_NNODES-}" 1<>"$HANDWASH_REPORT" || :
fi
prolog=${HANDWASH_PROLOG-}
if [ -z "$prolog" ]; then
  # Ours stands in the place of the site's own SrunProlog (srun(1), --prolog).
  prolog=$(scontrol show config 2>/dev/null | while read -r name _ value; do [ "$name" != SrunProlog ] || echo "$value"; done)
fi
case $prolog in
  '' | '(null)' | [Nn][Oo][Nn][Ee]) exit 0 ;;
  */*) ;;
  *) prolog=./$prolog ;;
esac
if [ ! -r "$prolog" ] || [ ! -x "$prolog" ]; then
  # srun's own words; it goes on then.
  if [ -e "$prolog" ]; then why='Permission denied'; else why='No such file or directory'; fi
  echo "srun: Access denied for $HANDWASH_PROLOG: $why" >&2
  exit 0
fi
# A prolog is given the command and its arguments: the person's, without what safe-srun has put before it.
[ "${8-}" != "${0%/*}/task.py" ] || shift 9
exec "$prolog" "$@"
