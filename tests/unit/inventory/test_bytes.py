"""A file is UTF-8 text of reasonable size, and anything else ends at once in a fault."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from hostkit.errors import ConfigError
from hostkit.inventory.loading import check_bytes, load
from hostkit.inventory.source import MAX_BYTES

SOUND = b"hostkit: 1\narchive: /data/archive\nhosts:\n  trainer: {address: 10.0.0.1}\n"


def faults(content: bytes) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        check_bytes(content, Path("f"), {})
    return caught.value.faults


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            b"\xef\xbb\xbf" + SOUND,
            "f:1: the file begins with a byte-order mark; save it as UTF-8 without BOM",
        ),
        (SOUND.decode().encode("utf-16"), "f:1: the file begins with a byte-order mark of UTF-16"),
        (SOUND.decode().encode("utf-32"), "f:1: the file begins with a byte-order mark of UTF-32"),
        (SOUND.decode().encode("utf-16-le"), "f:1: an invisible character, U+0000"),
        (SOUND + b"  b\xfccher: {}\n", "f:5: byte 0xfc is not UTF-8; save the file as UTF-8"),
        (SOUND + b"  a: \x00\n", "f:5: an invisible character, U+0000 (a control character)"),
        (SOUND + b"  a: \xed\xa0\x80\n", "f:5: byte 0xed is not UTF-8"),
        (SOUND + b"  a: \x1b[31mred\n", "f:5: an invisible character, U+001B"),
        (SOUND.replace(b"\n", b"\r"), "f:1: a lone carriage return ends a line to YAML and to no editor"),
        (SOUND + "  a: \ufeff{}\n".encode(), "f:5: an invisible character, U+FEFF"),
        (SOUND + "  a\u0085b: {}\n".encode(), "f:5: U+0085 ends a line to YAML and to no editor"),
        (b"", "f:1: the file is empty; copy the example"),
        (b" \n\n  \n", "f:1: the file is empty; copy the example"),
        (b"\x80\x81\xfe\xff", "f:1: byte 0x80 is not UTF-8"),
        (b"PK\x03\x04\x14\x00", "f:1: an invisible character, U+0003"),
    ],
)
def test_bytes_that_are_no_plain_text_are_refused(content: bytes, fault: str) -> None:
    assert faults(content)[0].startswith(fault)


def test_an_escape_sequence_of_the_file_does_not_reach_the_message() -> None:
    assert "\x1b" not in "".join(faults(SOUND + b'  "\\e[31m": {address: "\\e]0;x\\a"}\n  \x1b[31m: {}\n'))


def levels(count: int, first: str, line: str) -> str:
    return "\n".join([first, *(line.format(this=n, last=n - 1) for n in range(1, count))])


BOMBS = {
    "a million lists": levels(8, "a0: &a0 x", "a{this}: &a{this} [" + ",".join(["*a{last}"] * 10) + "]"),
    "a million merges": levels(
        8, "a0: &a0 {{k: 1}}".format(), "a{this}: &a{this} {{<<: [" + ",".join(["*a{last}"] * 10) + "]}}"
    ),
    "a million mappings": levels(
        8,
        "a0: &a0 {{k: 1}}".format(),
        "a{this}: &a{this} {{" + ",".join(f"b{n}: *a{{last}}" for n in range(10)) + "}}",
    ),
    "a long text behind many aliases": "s: &s '" + "x" * 16_000 + "'\nl: [" + ",".join(["*s"] * 10_000) + "]",
    "a chain of anchors": levels(3_000, "a0: &a0 {{k: 1}}".format(), "a{this}: &a{this} {{n: *a{last}}}"),
    "an anchor in itself": "a: &a [*a, *a, *a]",
    "a merge of itself": "a: &a {<<: [*a, *a]}",
    "two anchors in each other": "a: &a {b: &b {c: *a, d: *b}}",
    "deep brackets": "a: " + "[" * 100_000,
    "deep braces": "{a: " * 25_000,
    "deep dashes": "- " * 60_000,
    "many lists": "[" + "1," * 60_000,
    "many keys": "".join(f"k{n}: v\n" for n in range(13_500)),
    "many words": "a: " + "x " * 60_000,
    "many comments": "# x\n" * 32_000,
    "many digits": "a: " + "9" * 120_000,
    "many digits in a version": "%YAML 1." + "9" * 5_000 + "\n---\na: 1",
    "many question marks": "? " * 60_000,
    "many sixtieths": "a: " + "1" + ":59" * 40_000,
    "many dots": "a: 1." + "0" * 120_000,
    "a pattern of braces": "archive: " + "${" * 60_000,
}


@pytest.mark.report("j11")
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_bomb_ends_in_a_fault_within_a_second_and_little_memory(text: str) -> None:
    began = time.process_time()
    assert faults(text.encode())
    assert time.process_time() - began < 1


def test_a_bomb_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        faults(BOMBS["a million mappings"].encode())
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def test_a_large_fleet_is_no_bomb() -> None:
    hosts = "".join(f"  h{n}: {{<<: *d, address: 10.0.{n // 250}.{n % 250 + 1}}}\n" for n in range(500))
    text = (
        f"hostkit: 1\narchive: /a/b\ndefaults: &d {{user: root, timeouts: {{connect: 5s}}}}\nhosts:\n{hosts}"
    )
    assert len(check_bytes(text.encode(), Path("f")).inventory.hosts) == 500


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    file.write_bytes(SOUND)
    os.truncate(file, 10 * 2**30)
    with pytest.raises(ConfigError, match=f"larger than {MAX_BYTES // 1024} KiB"):
        load(file)


def test_a_pipe_or_a_folder_named_as_inventory_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match=r"regular file|cannot be read"):
            load(file)


def test_a_file_that_may_not_be_read_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret.yaml").write_bytes(SOUND)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load(tmp_path / "secret.yaml")
