"""The Invoke tasks: each parses its flags, calls the core, renders, and ends with a documented exit code."""
