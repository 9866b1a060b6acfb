"""PostgreSQL through libpq: one schema, many machines, the server's own clock.

Start with `engine`: a body runs inside a pipelined transaction on a pooled connection, and runs again if the server
asks for it. `registry` keeps one engine per process and URL; `address` reads the URL and `connect` opens a connection;
`wire` sends and receives on one connection, and `values` encodes and decodes; `pool` lends connections;
`tx` is the transaction a body sees; `faults` classifies errors, and `retry` limits the retries; `server_checks` checks
the server; `migrate` upgrades the schema; `notify` wakes other processes; `user_queries` run a person's SQL.

No state lives in a session of the server. Every setting is local to a transaction, so a transaction pooler may give
each transaction another session. The driver is an extra of
the package: this folder is imported only when a PostgreSQL URL is opened.
"""
