"""How an argv reaches a host."""
