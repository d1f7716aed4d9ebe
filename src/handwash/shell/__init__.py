"""The hook and the person's shell: which shell it is, and putting the hook into its start-up files and taking it out."""
