"""How much memory this process has and had, from `/proc/self`."""

from pathlib import Path


def resident(field: str) -> int:
    """Return a size of this process in bytes: `VmRSS`, now, or `VmHWM`, its peak."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"`field` must be in /proc/self/status. Received: field={field!r}.")


def forget_peak() -> int:
    """Let the peak begin anew at what is resident now, and return that in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")
