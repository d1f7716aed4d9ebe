#!/bin/bash
# Starts five sleepers in five ways in which a training script leaves something behind, prints a label and the pid of each, and
# exits with the code given as argument. Each sleeper ends by itself in less than two minutes.
#
# The first two keep the script's output open, as a worker does that was started with a bare "&". That is what keeps the job of
# a plain srun RUNNING for a minute under proctrack/linuxproc (Slurm 22.05): the step waits for the end of its output.

sleep 110.1 &
background=$!
nohup sleep 110.2 2>/dev/null &
nohup=$!
# A child of a shell without job control leads no process group: setsid need not fork, and $! is the sleeper itself.
setsid sleep 110.3 >/dev/null 2>&1 &
setsid=$!
double_fork=$( (setsid sleep 110.4 >/dev/null 2>&1 & echo $!) )
cleared=$( (env -i /usr/bin/setsid /bin/sleep 110.5 >/dev/null 2>&1 & echo $!) )

# Whoever looks the pids up finds sleepers, not shells on their way to become one.
for pid in "$background" "$nohup" "$setsid" "$double_fork" "$cleared"; do
  until read -r name <"/proc/$pid/comm" && [ "$name" = sleep ]; do
    sleep 0.02
  done
done

printf '%s\n' "background $background" "nohup $nohup" "setsid $setsid" "double-fork $double_fork" "double-fork-cleared $cleared"
exit "${1:-0}"
