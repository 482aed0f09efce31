"""Where the locks are, one kind of place in each file."""
