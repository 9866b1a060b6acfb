"""Mutation testing: change one place of the product, run the tests that execute it, and expect one to fail.

    mutants.py      Mutant: one changed place of one file, and the sample that a seed gives
    python.py       mutants of Python code
    sql.py          mutants of named SQL and of the schema
    tree.py         a copy of the repository with an environment of its own, to change and to test
    calls.py        records which functions and statements a process executes
    recorder.py     pytest plugin: records the same for each test, with its child processes
    call_map.py     the recorded tests by function and statement
    order.py        pytest plugin: run listed tests in the order of the list
    run.py          mutants against their tests, in two trees at once; results are appended to a file
    equivalent.toml mutants that no test can catch, each with its reason
    gaps.py         the mutants of gaps.toml and repairs.toml, each with the one test that must fail
    gaps.toml       gaps that the first mutation run found, in 31 groups
    repairs.toml    repaired defects: each mutant reverts one repair

`python -m standfast_prove.mutate --seed N --count 400` draws a sample and prints its score:
caught / (all - equivalent). A mutant that outlasts its time limit is caught.
"""
