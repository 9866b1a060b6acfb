"""Programs to be killed at every crash point, and the oracles that compare what was told with what is there."""
