"""Looking after a store: is it healthy, how much is in it. Nothing here deletes anybody's data."""
