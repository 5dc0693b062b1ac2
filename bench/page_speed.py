#!/usr/bin/env python3
"""How quick the page is with a large history: from opening it until it is on the screen, and from a change's arrival until that is.

    build/python-venv/bin/python bench/page_speed.py [--tasks 500] [--trials 10000] [--changes 20] [--program build/bin/diapason]

Opens the page in Debian's headless Chromium, then stores batches of 40 measurements and reads what the page has measured.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import sync_playwright

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests" / "ui"))
import histories  # noqa: E402

BATCH = 40
CHROMIUM = "/usr/bin/chromium-headless-shell"


def measures(page, name):
    return page.evaluate("name => performance.getEntriesByName(name).map((entry) => entry.duration)", name)


def wait_for(page, name, count):
    page.wait_for_function("([name, count]) => performance.getEntriesByName(name).length >= count", arg=[name, count], timeout=30000)


def opened(page, url, address):
    """Milliseconds of a fresh load."""
    page.goto("about:blank")
    page.goto(url + address)
    wait_for(page, "diapason-page", 1)
    return measures(page, "diapason-page")[0]


def row(name, values):
    print(f"{name:34} median {statistics.median(values):7.1f} ms   largest {max(values):7.1f} ms   of {len(values)}")


def measure(page, url, args, path, maker):
    task = "#/task/" + f"{0:032x}_1x64" + "/0"
    for name, address in [("network page", "#/"), ("roofline page", "#/roofline"), ("runs compared", "#/compare/1/2"), ("task page", task)]:
        row(f"open the {name}", [opened(page, url, address) for _ in range(5)])
    for name, address in [("network page", "#/"), ("task page", task)]:
        opened(page, url, address)
        for change in range(args.changes):
            lines = [maker.trial(i % 5, 1000 + change) for i in range(BATCH)]
            histories.write(args.program, path, lines)
            wait_for(page, "diapason-update", change + 1)
        row(f"update the {name}", measures(page, "diapason-update"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10000)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--program", default=str(TOP / "build" / "bin" / "diapason"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "big.db"
        maker = histories.Maker(histories.measured_lines(args.program, folder)[0])
        histories.write(args.program, path, maker.trials(args.tasks, args.trials))
        server = subprocess.Popen([args.program, "ui", "--history", path, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[2]
            time.sleep(0.2)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
                measure(browser.new_page(viewport={"width": 1366, "height": 768}), url, args, path, maker)
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
