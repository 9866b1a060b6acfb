"""Views: what needs a person, and what happened when. They only read."""
