"""Python source without what only people read: comments and docstrings go, and every line keeps its number."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache

_HOLDS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def bare(source: str) -> str:
    """Return a program that does the same, with tracebacks that name the lines of `source`.

    It travels to hosts whose Python may be older than ours, so that it is cut rather than written anew from
    its tree (`ast.unparse` writes for its own version, and loses the lines).
    """
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _HOLDS_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            _cut(lines, node.body)
    return "".join(lines)


def _cut(lines: list[str], body: list[ast.stmt]) -> None:
    """Blank the docstring that a body begins with, where it has its lines for itself."""
    first = body[0]
    start, end = first.lineno - 1, first.end_lineno or first.lineno
    head = lines[start].encode()[: first.col_offset]
    rest = lines[end - 1].encode()[first.end_col_offset :]
    if head.strip() or rest.strip():
        return
    lines[start:end] = ["\n"] * (end - start)
    if len(body) == 1:
        lines[start] = head.decode() + "pass\n"
