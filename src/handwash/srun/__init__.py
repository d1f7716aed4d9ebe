"""safe-srun: srun, and everything of the session is gone afterwards."""
