"""Time in which this machine ran: laptops sleep, virtual machines and groups of processes are frozen, and what stood
still with the rest noticed nothing. A gap of the ticking thread that is longer than STOOD_S is left out."""
import threading
import time

TICK_S, STOOD_S = 0.05, 0.7
_stood = 0.0


def _tick():
    global _stood
    last = time.monotonic()
    while True:
        time.sleep(TICK_S)
        now = time.monotonic()
        if now - last > STOOD_S:
            _stood += now - last - TICK_S
        last = now


def start():
    threading.Thread(target=_tick, daemon=True).start()


def stood():
    """Seconds that were left out so far."""
    return _stood


def now():
    return time.monotonic() - _stood
