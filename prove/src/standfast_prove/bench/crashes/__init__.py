"""The same crash schedules for every contestant. Counted are requests that are lost, doubled or in doubt after a kill.

    python -m standfast_prove.bench.crashes [--kills N] [--seed S] [--only NAME] [--results DIR]

One small agent sends three effects to an outside system that records its requests. There is one version of the agent
for each framework. Its process is killed (SIGKILL) right before and right after each request arrives, and at N other
moments spread over the run, counted in Python calls and returns. Then it is started again, as the documentation of its
framework says, until it ends. `programs` has the agent in each framework.
"""
