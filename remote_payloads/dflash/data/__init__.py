"""Prompts, samples, references, and the names under which they are cached."""
