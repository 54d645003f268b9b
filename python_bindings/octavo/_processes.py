"""Signals that end a command written in Python, and the programs that it starts: when it ends, they end, and what is temporary goes."""

import collections
import contextlib
import os
import signal
import subprocess
import threading

# What of a program's output is kept: its last words count, and one that writes for ever must not fill the memory.
_KEPT = 1 << 16


def _interrupt(*_):
    raise KeyboardInterrupt


@contextlib.contextmanager
def ended_by_signals():
    """SIGTERM and SIGHUP end what runs inside as Ctrl-C does, unless somebody else has decided what they do."""
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _deferred():
    """A signal that comes inside is heard at the end: a program on its way to start would be left running by nobody who knows of it."""
    came, before = [], {}
    if threading.current_thread() is threading.main_thread():
        before = {number: old for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if callable(old := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda *_: came.append(True))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    if came:
        raise KeyboardInterrupt


def _end(process, send, patience):
    """Asks a program to end, and makes it where it does not."""
    for number, seconds in ((None, patience), (signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                send(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def run_program(arguments):
    """The exit status of a program with the terminal of this one. Where this one is interrupted, so is that."""
    process = None
    try:
        with _deferred():
            process = subprocess.Popen(arguments)
        return process.wait()
    except BaseException:
        if process is not None:
            _end(process, process.send_signal, 0.5)  # Ctrl-C on a terminal has reached it already
        raise


def _keep(stream, pieces):
    size = 0
    for piece in iter(lambda: stream.read1(_KEPT), b""):
        pieces.append(piece)
        size += len(piece)
        while size - len(pieces[0]) >= _KEPT:
            size -= len(pieces.popleft())


def last_words(command):
    """(exit status, the end of what it printed, the end of its messages) of a command line for the shell, which is given no input.

    It and what it starts are a group of processes, which ends when it is interrupted.
    """
    process, kept = None, (collections.deque(), collections.deque())
    try:
        with _deferred():
            process = subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            readers = [threading.Thread(target=_keep, args=pair, daemon=True) for pair in zip((process.stdout, process.stderr), kept)]
            for reader in readers:
                reader.start()
        process.wait()
    except BaseException:
        if process is None:
            raise
        _end(process, lambda number: os.killpg(process.pid, number), 0.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whom the shell left behind
        raise
    for reader in readers:
        reader.join(1.0)  # what it left running may hold the pipe for ever
    return process.returncode, *(b"".join(pieces).decode("utf-8", "replace") for pieces in kept)


def shown(text, most=200):
    """Words of another program in a sentence: one line, without what a terminal obeys."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.strip())
    return text if len(text) <= most else text[: most - 3] + "..."
