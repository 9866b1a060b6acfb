"""Programs to be killed at every crash point, and the oracles that compare acknowledgements with rows."""
