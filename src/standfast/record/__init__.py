"""The record: sessions and everything they hold. The system of record; lost, the session is gone."""
