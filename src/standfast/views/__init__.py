"""Views: what needs a person, what happened when. They read and never write."""
