"""SIGTERM ends a test as Ctrl-C does: unittest lets KeyboardInterrupt pass, so what main has started is stopped."""
import signal


def interrupt(*_):
    raise KeyboardInterrupt


def heed_sigterm():
    signal.signal(signal.SIGTERM, interrupt)
