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
[ -z "${HANDWASH_PROLOG-}" ] || exec "$HANDWASH_PROLOG"
exit 0
