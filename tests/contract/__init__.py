"""Contract tests: every transport keeps the same promises."""
