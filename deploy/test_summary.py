#!/usr/bin/env python3
"""Counts the results in a file that `ctest --output-junit` wrote.

    deploy/test_summary.py FILE

Prints the names of the failed cases and then, as the last line, "N passed, N failed, N skipped"; exits 1 if a case failed or if
there is none at all. A case that was not run counts as skipped only if the test itself said so (SKIP_REGULAR_EXPRESSION, which
CMake sets for GTEST_SKIP, or SKIP_RETURN_CODE) or is disabled; one whose program is missing counts as failed, as ctest does.
"""
import sys
import xml.etree.ElementTree as ElementTree

SAID_SO = ("SKIP_REGULAR_EXPRESSION_MATCHED", "SKIP_RETURN_CODE")


def result_of(case):
    """passed, failed or skipped."""
    if case.get("status") == "disabled":
        return "skipped"
    if case.get("status") == "notrun":
        skipped = case.find("skipped")
        said = "" if skipped is None else skipped.get("message", "")
        return "skipped" if said.startswith(SAID_SO) else "failed"
    return "passed" if case.get("status") == "run" and case.find("failure") is None else "failed"


def summarize(path):
    """Counts by result, and the names of the failed cases. A file that cannot be read, or has no results, is a failed case."""
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, []
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        counts["failed"] = 1
        return counts, ["%s: %s" % (path, error)]
    for case in cases:
        result = result_of(case)
        counts[result] += 1
        if result == "failed":
            failed.append(case.get("name"))
    if not cases:
        counts["failed"] = 1
        failed.append("%s has no results" % path)
    return counts, failed


def line(counts):
    return "%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts


def main(path):
    counts, failed = summarize(path)
    for name in failed:
        print("failed: %s" % name)
    print(line(counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("deploy/test_summary.py: give the file that ctest wrote")
    sys.exit(main(sys.argv[1]))
