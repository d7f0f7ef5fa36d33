"""One thread of a running process stands still while all others go on, as one that hangs in a system call or a loop:
ptrace stops it where it is."""

import contextlib
import ctypes
import os
import pathlib

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WAIT_ALL = 0x40000000  # threads, too
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace, which takes a descendant of this process, or root")


@contextlib.contextmanager
def stopped_thread(pid, name):
    """Within `with`, which this thread must leave itself, the process's thread of this name stands."""
    [thread] = [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                if (task / "comm").read_text().strip() == name]
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WAIT_ALL)
        yield
    finally:
        _ptrace(_DETACH, thread)
