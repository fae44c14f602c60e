"""A tiny target and its text, to practise and to test with."""
