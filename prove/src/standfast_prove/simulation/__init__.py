"""A simulation of all features on a virtual clock. The same seed repeats the same run.

The features and the engine are real. The machine around them is virtual: the clock, the processes, the network and the
outside system. A process runs until its next access to the store or the outside system. There the seed decides which
process runs next, which is killed, which is stopped for longer than its lease, and how the clock moves. The same seed
gives the same trace.
"""
