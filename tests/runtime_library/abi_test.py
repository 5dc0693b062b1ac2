"""The check of the runtime library's ABI (deploy/runtime_abi.sh): it passes as things are, and sees what changes."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["DIAPASON_EXAMPLES"]).parent
LIBRARY = os.environ["DIAPASON_RUNTIME_ABI_LIBRARY"]
ABI = (ROOT / "runtime/diapason_runtime.abi").read_text()


def check(abi):
    with tempfile.NamedTemporaryFile("w", suffix=".abi") as file:
        file.write(abi)
        file.flush()
        return subprocess.run([ROOT / "deploy/runtime_abi.sh", "check", LIBRARY], capture_output=True, text=True, timeout=50,
                              env={**os.environ, "DIAPASON_RUNTIME_ABI_FILE": file.name})


class Abi(unittest.TestCase):
    def test_it_is_the_one_that_is_committed(self):
        done = check(ABI)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_structure_of_another_size_is_a_change(self):
        before = "<class-decl name='diapason_buffer' size-in-bits='128'"
        self.assertIn(before, ABI)
        done = check(ABI.replace(before, before.replace("128", "192")))
        self.assertEqual(done.returncode, 1)
        self.assertIn("type size changed from 192 to 128", done.stdout)
        self.assertIn("if that is meant, run 'deploy/runtime_abi.sh renew", done.stderr)

    def test_a_function_that_is_gone_or_new_is_a_change(self):
        for name in ("diapason_run_on_stream", "diapason_package_load_memory"):
            self.assertIn(f"name='{name}'", ABI)
            done = check(ABI.replace(f"'{name}'", "'diapason_other'"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("1 Removed", done.stdout)
            self.assertIn("1 Added", done.stdout)


if __name__ == "__main__":
    unittest.main()
