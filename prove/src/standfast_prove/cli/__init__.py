"""The commands `standfast prove` and `standfast bench`. The product's CLI imports them when they are called."""
