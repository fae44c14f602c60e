"""rsync's statuses and complaints, and what each means for a checkpoint."""

from __future__ import annotations

import pytest

from hostkit.errors import CannotCreateError, DataError, HostkitError, RefusedError, UnreachableError
from hostkit.staging.rsync_exit import MEANINGS, failure

CASES: list[tuple[int, str, type[HostkitError], str]] = [
    (10, "rsync error: error in socket IO (code 10)", UnreachableError, "broke off"),
    (11, "rsync: [receiver] write failed on \"x\": No space left on device (28)", CannotCreateError, "disk full"),
    (11, "", CannotCreateError, "disk full"),
    (12, "rsync: [sender] write error: No space left on device (28)", CannotCreateError, "disk full"),
    (12, "Disk quota exceeded (122)", CannotCreateError, "disk full"),
    (12, "rsync: connection unexpectedly closed (0 bytes received so far)", UnreachableError, "broke off"),
    (12, "bash: line 1: rsync: command not found", CannotCreateError, "rsync missing on ct200"),
    (12, "nice: \u2018rsync\u2019: No such file or directory\nrsync: connection unexpectedly closed", CannotCreateError,
     "rsync missing on ct200"),
    (12, "ionice: failed to execute rsync: No such file or directory", CannotCreateError, "rsync missing on ct200"),
    (12, "zsh:1: command not found: rsync", CannotCreateError, "rsync missing on ct200"),
    (12, "sh: 1: rsync: not found", CannotCreateError, "rsync missing on ct200"),
    (2, 'lxc-attach: 200: No such file or directory - Failed to exec "rsync"', CannotCreateError,
     "rsync missing on ct200"),
    (11, 'rsync: [receiver] mkstemp "/r/x" failed: Read-only file system (30)', CannotCreateError, "read-only"),
    (11, "rsync: write failed: File too large (27)", CannotCreateError, "disk full"),
    (11, 'rsync: [receiver] open "/r/x" failed: Permission denied (13)', RefusedError, "no permission"),
    (23, 'rsync: [sender] read errors mapping "/w/x": Input/output error (5)', DataError, "could not be read"),
    (12, "rsync: [receiver] write failed: Input/output error (5)", DataError, "could not be read or written"),
    (255, "git@x: Permission denied (publickey).", UnreachableError, "broke off"),
    (255, "Host key verification failed.", UnreachableError, "broke off"),
    (143, "", UnreachableError, "signal 15"),
    (22, "out of memory in receive_sums", DataError, "out of memory"),
    (127, "", CannotCreateError, "rsync missing on"),
    (2, "protocol version mismatch -- is your shell clean?", UnreachableError, "login shell of ct200"),
    (12, "unexpected tag 25 [Receiver]", UnreachableError, "login shell of ct200"),
    (20, "rsync error: received SIGINT, SIGTERM, or SIGHUP (code 20)", UnreachableError, "broke off"),
    (23, 'rsync: link_stat "/w/x" failed: No such file or directory (2)', DataError, "source vanished"),
    (23, 'rsync: send_files failed to open "/w/x": Permission denied (13)', RefusedError, "no permission"),
    (23, "rsync error: some files/attrs were not transferred", DataError, "not everything"),
    (24, 'file has vanished: "/w/x"', DataError, "source vanished"),
    (30, "[Receiver] io timeout after 120 seconds -- exiting", UnreachableError, "broke off"),
    (35, "", UnreachableError, "broke off"),
    (255, "ssh: connect to host 10.1.2.6 port 22: Connection refused", UnreachableError, "broke off"),
    (-9, "", UnreachableError, "signal 9"),
    (137, "", UnreachableError, "signal 9"),
    (99, "what is this", DataError, "99: no known status"),
]  # fmt: skip


@pytest.mark.report("d1", "d3", "d5", "d7")
@pytest.mark.parametrize(("code", "said", "kind", "text"), CASES)
def test_a_status_with_its_complaint_becomes_the_error_that_it_stands_for(
    code: int, said: str, kind: type[HostkitError], text: str
) -> None:
    error = failure(code, said, source="ct200", destination="ct129")
    assert type(error) is kind
    assert text in str(error)
    assert not said or said.splitlines()[-1][:60] in error.what  # what rsync said stays in the message


@pytest.mark.report("d7")
def test_no_status_but_zero_is_success() -> None:
    assert failure(0, "a banner on stderr is no failure", source="a", destination="b") is None
    for code in [*MEANINGS, *range(-64, 0), *range(1, 256)]:
        assert failure(code, "", source="a", destination="b") is not None


def test_what_rsync_says_is_shown_without_control_characters() -> None:
    error = failure(23, "one\n\x1b[31mtwo\x07\n\nthree\n", source="a", destination="b")
    assert error is not None
    assert "one; two; three" in error.what
