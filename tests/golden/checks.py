"""What must hold in tests that go on behind a failure, which they print and count."""

import sys

failed = 0


def expect(holds, what):
    global failed
    if not holds:
        failed += 1
        print("FAILED", what)


def near(a, b, what, most=1e-9):
    expect(abs(a - b) <= most * max(abs(a), abs(b), 1e-300), f"{what}: {a!r} beside {b!r}")


def end(tested):
    """Ends the test, with a failure where something did not hold."""
    print(f"{tested}, {failed} complaints")
    sys.exit(failed > 0)
