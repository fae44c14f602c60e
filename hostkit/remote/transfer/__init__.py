"""The destination's side of a copy: protocol, staging folder, verification."""
