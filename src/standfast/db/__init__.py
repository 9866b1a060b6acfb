"""The cellar: the only place that knows SQLite or PostgreSQL.

`contract` says what an engine offers and what a method's body may use; `sql` reads the
statements that stand beside each feature; `migrations` is the ordered history of the schema;
`sqlite/` and `postgres/` are the two engines; `store` binds one of them to a caller.
Driver errors are translated here and nowhere else.
"""
