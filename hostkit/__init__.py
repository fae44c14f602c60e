"""Remote orchestration for ML work on hosts that somebody's long training run depends on."""

__version__ = "0.1.0"
