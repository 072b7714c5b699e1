"""The command line: thin commands over everything else."""
