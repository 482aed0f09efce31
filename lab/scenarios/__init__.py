"""The days on which something goes wrong, one in each file."""
