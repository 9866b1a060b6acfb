"""One module per campaign. `standfast prove` runs a campaign with one seed after another while there is time."""
