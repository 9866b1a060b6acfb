"""What every resource uses: the journal, leases, claims, artifacts, and checks of arguments."""
