"""run.py SECONDS: Bochs in the current folder under a pseudo terminal (its display wants one); prints the guest's console.

Bochs exits with 1 after a proper power-off, so the status comes from the line GUEST-RC=n of the guest; 70 without one.
"""
import os
import pty
import re
import select
import subprocess
import sys
import time


class Console:
    """The lines of the serial port, printed as they come."""

    def __init__(self, path):
        self.path, self.position, self.pending, self.lines = path, 0, b"", []

    def pump(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.position)
                data = f.read()
        except FileNotFoundError:
            return
        self.position += len(data)
        *whole, self.pending = (self.pending + data).split(b"\n")
        for line in whole:
            self.lines.append(line.decode("latin1").rstrip())
            print(self.lines[-1], flush=True)


def main():
    limit = float(sys.argv[1])
    for name in ("serial.txt", "bochs.log"):
        if os.path.exists(name):
            os.remove(name)
    console = Console("serial.txt")
    master, slave = pty.openpty()
    start = time.time()
    bochs = subprocess.Popen(["bochs", "-q", "-f", "bochsrc"], stdin=slave, stdout=slave, stderr=slave,
                             env=dict(os.environ, TERM="xterm"))
    os.close(slave)
    why, panic = "bochs ended", None
    while bochs.poll() is None:
        if select.select([master], [], [], 0.05)[0]:
            try:
                os.read(master, 65536)  # keeps the display's terminal drained
            except OSError:
                pass
        console.pump()
        if panic is None and any("Kernel panic" in line for line in console.lines):
            panic = time.time()
        if panic is not None and time.time() - panic > 1.5:
            why = "the guest panicked"
        elif time.time() - start > limit:
            why = "time limit"
        else:
            continue
        bochs.kill()
        bochs.wait()
    time.sleep(0.05)
    console.pump()
    codes = [m[1] for line in console.lines if (m := re.fullmatch(r"GUEST-RC=(\d+)", line))]
    print(f"{why} after {time.time() - start:.1f} s, status of the guest: {codes[-1] if codes else 'none'}")
    return int(codes[-1]) if codes and why == "bochs ended" else 70


sys.exit(main())
