"""What became of a model, from how its commands ended. Nothing but Python's own modules, so that tests need no package."""
import collections
import dataclasses

# From the worst to the best.
KINDS = ("wrong", "crashed", "hung", "refused", "right")


@dataclasses.dataclass(frozen=True)
class Verdict:
    kind: str
    step: str = ""
    text: str = ""


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else ""


def of_command(step, code, said):
    """The verdict of a command that ended with this code and said this on stderr, or nothing where it did what it should."""
    if code == 0:
        return None
    broken = [line for line in said.splitlines() if "check failed" in line.lower() or "internal error" in line.lower() or "terminate called" in line.lower()]
    if code < 0 or code >= 128 or broken:
        return Verdict("crashed", step, broken[0][:500] if broken else f"exit {code}: {last_line(said)}")
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    return Verdict("refused", step, (errors or [last_line(said)])[-1][:500])




def table(verdicts):
    """Lines of Markdown: how many of each kind, then every model that is not right; `verdicts` by name."""
    counts = collections.Counter(v.kind for v in verdicts.values())
    lines = [", ".join(f"{counts[k]} {k}" for k in reversed(KINDS) if counts[k]) or "no models", ""]
    bad = sorted((KINDS.index(v.kind), name) for name, v in verdicts.items() if v.kind != "right")
    if bad:
        lines += ["| model | result | step | what was said |", "|---|---|---|---|"]
    for _, name in bad:
        v = verdicts[name]
        lines.append(f"| {name} | {v.kind} | {v.step} | {v.text.replace('|', '/')} |")
    return lines
