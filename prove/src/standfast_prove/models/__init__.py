"""Random programs run against the store and against models of a few lines. After any calls in any order, both agree.

Each module holds the model of one feature and its `STEPS`. It also has `Program`, a state machine of hypothesis, or
`program_on(url, data)`, a function that plays programs of hypothesis. All programs of a run share one store, and each
has its own scope.
"""
