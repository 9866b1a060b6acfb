"""The footings: what every room stands on. The journal, the leases, the artifacts."""
