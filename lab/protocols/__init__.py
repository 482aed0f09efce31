"""The published protocols, one in each file, as they were published: with their flaws, which live here and nowhere else."""
