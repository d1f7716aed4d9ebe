#!/bin/bash
# Says which signals reach it, for about a second; makes the file `go` with its job's id once it is ready for them.

for name in HUP INT QUIT USR1 USR2 TERM ALRM CONT WINCH PIPE; do
  # shellcheck disable=SC2064
  trap "echo $name" "$name"
done
echo "$SLURM_JOB_ID" >go
for _ in $(seq 11); do
  sleep 0.1 &
  wait $!
done
echo end
exit 9
