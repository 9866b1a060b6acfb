"""Random programs against models of a few lines: after any calls in any order, both agree.

Each module holds the model of one feature, its `STEPS`, and either `Program`, a state machine of
hypothesis, or `program_on(url, data)`, a function that hypothesis gives its programs to. One store serves all
the programs of a run: each has a scope of its own.
"""
