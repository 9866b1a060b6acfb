"""Everything at once on a virtual clock, from a seed that replays.

The real resources on the real engine. The machine around them is virtual: the clock, who lives and who is
killed, the network and the world behind it, and who runs next. A process runs until it is about to touch the
store or the world; there the seed decides who continues, who is killed, who is stopped for longer than its lease,
and what the clock says then. The same seed gives the same trace.
"""
