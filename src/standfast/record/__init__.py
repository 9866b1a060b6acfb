"""The record: sessions and everything they hold. It is the system of record: without it a session is lost."""
