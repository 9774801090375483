"""Go on in a child process, so that a crash of an engine ends a command in an error and not in a dead terminal.

ONNX Runtime and LiteRT are C++; a damaged file may end the process that reads it, without an exception. The process is
forked before anything is imported: the child does the work, the parent waits, passes signals on and reads how it ended.
"""

from __future__ import annotations

import os
import signal
import sys

#: What ends a process that did something impossible, and `SIGKILL`, by which Linux takes memory back.
_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV")
_PR_SET_PDEATHSIG = 1


class Crash(Exception):
    """The child was ended by a signal; its name is the message."""


def in_child() -> int | None:
    """Go on in a child process; return None there, and the child's exit status here when it has ended.

    Off Linux there is no fork that is safe, and the work is done here: None.

    Raises:
        Crash: A signal ended the child.
    """
    if sys.platform != "linux":
        return None
    passed_on = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    waited_for = {*passed_on, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _die_with(parent)
        return None
    while True:
        got = signal.sigwaitinfo(waited_for)
        if got.si_signo != signal.SIGCHLD:
            if got.si_pid:  # from the terminal it has no sender, and the child has it too
                os.kill(child, got.si_signo)
            continue
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    name = signal.Signals(-code).name
    if name in _CRASHES:
        raise Crash(name)
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _die_with(parent: int) -> None:
    """Let the system end this process when its parent ends, however that happens."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
