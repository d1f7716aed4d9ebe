#!/bin/bash -p
# srun runs this on the submit host after its step (SLURM_EPILOG), where the person or the site asked for an epilog.
# shellcheck source=src/handwash/srun/prolog.sh
. "${BASH_SOURCE[0]%/*}/prolog.sh"
