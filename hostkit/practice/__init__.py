"""The embedded fleet: SSH servers on loopback, a `pct` stand-in and a real small training, without root."""
