"""Time in which this machine ran: laptops sleep, virtual machines and groups of processes are frozen, and what stood
still with the rest noticed nothing. A gap of the ticking thread that is longer than STOOD_S is left out."""
import threading
import time

TICK_S, STOOD_S = 0.05, 0.7
_stood, _ticked, _told = 0.0, 0.0, 0.0


def _tick():
    global _stood, _ticked
    while True:
        time.sleep(TICK_S)
        ticked = time.monotonic()
        if ticked - _ticked > STOOD_S:
            _stood += ticked - _ticked - TICK_S
        _ticked = ticked


def start():
    global _ticked
    _ticked = time.monotonic()
    threading.Thread(target=_tick, daemon=True).start()


def stood():
    """Seconds that were left out so far."""
    return _stood


def now():
    """Seconds, which never go back."""
    global _told
    # Whoever goes on before the ticking thread does knows nothing of the gap yet.
    _told = max(_told, min(time.monotonic(), _ticked + STOOD_S) - _stood)
    return _told


def wait_until(condition, seconds, look_every=0.01):
    """Until the condition holds, for so many seconds of running at most; returns how long it took."""
    begun = now()
    while True:
        is_last = now() - begun > seconds
        if condition():
            return now() - begun
        assert not is_last, f"still not so after {seconds} s"
        time.sleep(look_every)
