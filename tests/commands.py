"""Running commands in tests."""

import subprocess


def run(*command, timeout=100, **options):
    """What the command prints. AssertionError, with all of its output, when it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
