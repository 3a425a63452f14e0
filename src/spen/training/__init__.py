"""Training: stages, the loop over them, and files to go on from."""
