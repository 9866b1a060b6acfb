"""What `standfast prove` runs: each is a short run with a seed, repeated with the next one while there is time."""
