"""Seeded bugs: "nothing bad was found" means something only if each of these is found."""
