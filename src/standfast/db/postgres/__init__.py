"""PostgreSQL through libpq: one schema, many machines, the server's own clock.

`engine` is the story: a body runs inside a pipelined transaction on a pooled connection, and is
run again where the server asks for it. `registry` keeps one engine per process and URL; `address`
reads the URL and `connect` goes there; `wire` is the conversation on one connection and `values` what travels
on it; `pool` lends connections;
`tx` is the transaction a body sees; `faults` says what an error means, and `retry` how long to try again;
`first_trip` judges the server; `migrate` brings the schema up; `notify` wakes other processes; `submit_threads` serve
callers who do not wait; `user_queries` is what a person asks.

Nothing here belongs to a session of the server: every setting is local to a transaction, so
that a transaction pooler may give each transaction another session. The driver is an extra of
the package: this folder is imported only when a PostgreSQL URL is opened.
"""
