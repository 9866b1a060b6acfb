"""The database: the only package that knows SQLite or PostgreSQL.

`contract` defines the methods of an engine and of a transaction. `sql` reads the `.sql` file beside each feature.
`migrations` is the ordered history of the schema. `sqlite/` and `postgres/` are the two engines. `store` binds an
engine to a caller. Only this package translates driver errors.
"""
