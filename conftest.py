"""For all tests: Ctrl-C is told apart from a stop also where a shell started them in the background."""

import signal

# A shell without job control has its background commands ignore both, and so would all that the tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
