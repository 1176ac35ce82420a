"""A progress bar on a real terminal: it is drawn, lines go above it, and Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

pty = pytest.importorskip("pty", reason="pseudo-terminals are a matter of Unix")

BAR = """
import sys, time
from llamita.cli.progress import progress_bar, say
with progress_bar("counting", 5, "units") as bar:
    for number in range(5):
        bar.advance(1, "note")
        time.sleep(0.1)
        if number == 2:
            say("a line above the bar")
            print("and one of stdout")
print("over")
"""

ENDLESS = """
import time
from llamita.cli import main, progress
def wait():
    with progress.progress_bar("waiting", None, "units") as bar:
        while True:
            bar.advance(1)
            time.sleep(0.05)
main._run_command = lambda name, arguments: wait()
main.main(["x"])
"""


def on_terminal(program: str, until: bytes, then: bytes = b"") -> tuple[int, bytes]:
    """Run a program on a terminal of its own; once it has shown `until`, type `then`.

    Gives its exit code and all that it showed.
    """
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background shell has it ignored
        os.execv(sys.executable, [sys.executable, "-c", program])
    shown = b""
    deadline = time.monotonic() + 60
    os.set_blocking(terminal, False)
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            try:
                shown += os.read(terminal, 1 << 16)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # nobody holds the other end any more
                time.sleep(0.02)
            if ended:
                return os.waitstatus_to_exitcode(status), shown
            if then and until in shown:
                os.write(terminal, then)
                then = b""
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError(f"it has not ended; it showed {shown[-500:]!r}")
    finally:
        os.close(terminal)


def test_a_bar_is_drawn_with_lines_above_it_and_goes() -> None:
    code, shown = on_terminal(BAR, b"over")
    assert code == 0
    assert b"counting" in shown
    assert b"100%" in shown
    assert b"a line above the bar\r\n" in shown
    assert b"and one of stdout\r\n" in shown
    assert shown.endswith(b"over\r\n")


def test_ctrl_c_ends_a_bar_and_shows_the_cursor_again() -> None:
    code, shown = on_terminal(ENDLESS, b"waiting", b"\x03")
    assert code == 130
    assert b"stopped." in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
