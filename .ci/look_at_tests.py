#!/usr/bin/env python3
"""Fail unless the tests that matter ran: look_at_tests.py TESTS.xml SHARED

If the folder with validation data exists, no test may have been skipped for lack of it, and the comparisons with
specter must have passed.
"""
import sys
from pathlib import Path
from xml.etree import ElementTree

FEWEST = 200       # there are more tests; fewer means that a folder was not found
NOT_PASSED = ("skipped", "failure", "error")


def name_of(case: ElementTree.Element) -> str:
    """module.test[parameters]"""
    return f"{case.get('classname')}.{case.get('name')}"


def main() -> int:
    """Check the report and print what is wrong; returns the exit code."""
    cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
    skipped = {name_of(c): str(s.get("message")) for c in cases for s in c.iter("skipped")}
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}")
    print(f"{len(cases)} tests, {len(skipped)} skipped")
    if len(cases) < FEWEST:
        print(f"fewer tests than {FEWEST}: were all found?")
        return 1
    if not Path(sys.argv[2]).is_dir():
        print("no validation data beside the clone: comparisons with specter were left out")
        return 0
    wanting = [name for name, reason in skipped.items() if "validation data" in reason]
    specter = [c for c in cases if "specter" in name_of(c)]
    passed = [c for c in specter if not any(c.find(tag) is not None for tag in NOT_PASSED)]
    print(f"{len(passed)} of {len(specter)} comparisons with specter passed, {len(wanting)} tests missed the data")
    return 1 if wanting or not specter or len(passed) < len(specter) else 0


if __name__ == "__main__":
    raise SystemExit(main())
