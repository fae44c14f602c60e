"""A program loses on its way what only people read, and nothing that counts: not a statement, not a line's number."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hostkit.transport import program
from hostkit.transport.bare import bare

REMOTE = sorted((Path(program.__file__).parents[1] / "remote").glob("*.py"))


def tree(source: str, *, documented: bool = True) -> tuple[str, list[tuple[int, int]]]:
    """The syntax tree, and where each node begins; without docstrings if so asked."""
    found = ast.parse(source)
    for node in ast.walk(found):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not documented and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            node.body = [one for one in node.body if not isinstance(one, ast.Pass)]
    nodes = [node for node in ast.walk(found) if isinstance(node, ast.stmt | ast.expr)]
    return ast.dump(found), [(node.lineno, node.col_offset) for node in nodes]


@pytest.mark.parametrize("path", REMOTE, ids=lambda path: path.stem)
def test_hostkits_own_programs_keep_every_statement_at_its_line(path: Path) -> None:
    source = path.read_text()
    less = bare(source)
    assert tree(less) == tree(source, documented=False)
    assert ast.get_docstring(ast.parse(less)) is None
    assert len(less) < len(source)


@pytest.mark.parametrize(
    ("source", "less"),
    [
        ("x = 1  # one\n# two\ny = 2\n", "x = 1\n\ny = 2\n"),
        ("x = '# no comment'\n", "x = '# no comment'\n"),
        ('x = """\n# no comment\n"""\n', 'x = """\n# no comment\n"""\n'),
        ('def f():\n    """ü\n\n    more"""\n', "def f():\n    pass\n\n\n"),
        ('class C:\n    """doc"""\n\n    a = 1\n', "class C:\n\n\n    a = 1\n"),
        ('def f(): "doc"\n', 'def f(): "doc"\n'),
        ('"""doc"""; x = 1\n', '"""doc"""; x = 1\n'),
        ("def f():\n    return 1\n    'no docstring'\n", "def f():\n    return 1\n    'no docstring'\n"),
        ("x = 1  # the end", "x = 1\n"),
        ("", ""),
    ],
)
def test_only_comments_and_docstrings_go(source: str, less: str) -> None:
    assert bare(source) == less
