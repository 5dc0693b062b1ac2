"""Numbers for people, as the command line writes them."""

from __future__ import annotations

from collections.abc import Iterable


def duration(microseconds: float | None) -> str:
    """``"18.6 ms"``; "-": not known."""
    if microseconds is None:
        return "-"
    if microseconds < 1000:
        return f"{microseconds:.4g} us"
    return f"{microseconds / 1000:.4g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.4g} s"


def seconds_text(value: float) -> str:
    """``"119 s"``, ``"2.5 s"``."""
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def operations(flops: float) -> str:
    """``"237.6 MFLOP"``."""
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP"):
        if flops < 1000:
            return f"{flops:.4g} {unit}"
        flops /= 1000
    return f"{flops:.4g} TFLOP"


def count(number: int, noun: str, nouns: str = "") -> str:
    """``"1 task"``, ``"18 tasks"``."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


def shown(kind: str, parts: Iterable[str]) -> str:
    """The repr of an object of the package; empty parts are left out."""
    return f"<diapason.{kind} {', '.join(part for part in parts if part)}>"


def sizes_text(sizes: dict[str, int]) -> str:
    """``"batch=4, seq=128"``."""
    return ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
