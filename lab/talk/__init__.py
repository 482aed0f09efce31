"""How the protocols' clients talk to servers, where Python itself has no library for it."""
