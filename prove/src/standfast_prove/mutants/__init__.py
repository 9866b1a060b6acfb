"""Seeded bugs. A run that finds no violation proves something only if it finds each of these bugs."""
