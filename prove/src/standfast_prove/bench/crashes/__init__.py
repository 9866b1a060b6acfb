"""The same crash schedules for every contestant: work lost, doubled or in doubt after a kill.

    python -m standfast_prove.bench.crashes [--kills N] [--seed S] [--only NAME] [--results DIR]

One small agent performs three effects on a world that keeps its own books, once with each way of being
durable. Its process is killed (SIGKILL) right before and right after each request arrives, and at N other
moments spread over its whole life, counted in Python calls and returns; then it is started again, as the
documentation of its framework says, until it ends. `programs` has the agent in each framework, short enough to
be judged.
"""
