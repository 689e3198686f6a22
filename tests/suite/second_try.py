"""`python -m tests.suite.second_try`: run the tests with real processes that failed beside others once more, alone.

Two lanes share two cores with whatever else runs on the machine. A test that fails there and passes alone is a defect, of the test
or of Stoker, and is printed as FLAKY; it fails `make test` only if there are more than `MAX_FLAKY` of them. One that fails again
fails it.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from tests.suite.share import ROOT

# More than these at once are no accident of timing.
MAX_FLAKY = 2
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"


def read_failed() -> list[str]:
    """Return the ids of the tests that pytest's cache has as failed, sorted; raises ValueError where it has none."""
    found = json.loads(FAILED.read_text()) if FAILED.exists() else {}
    if not found:
        raise ValueError(f"{FAILED.relative_to(ROOT)} names no failed test: pytest itself failed")
    return sorted(found)


def problem_of(failed: Sequence[str]) -> str:
    """Return why these failures stand without a second try; "" where they get one."""
    if len(failed) > MAX_FLAKY:
        return f"{len(failed)} tests failed, more than the {MAX_FLAKY} that are tried again alone"
    return ""


def main() -> int:
    """Try again what failed; return 0 if all of it passed alone, else 1."""
    try:
        failed = read_failed()
    except ValueError as error:
        print(f"no second try: {error}", file=sys.stderr)
        return 1
    if problem := problem_of(failed):
        print(f"no second try: {problem}", file=sys.stderr)
        return 1
    print(f"second try, alone: {', '.join(failed)}", flush=True)
    tried = subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False)
    if tried.returncode != 0:
        return 1
    for name in failed:
        print(f"FLAKY: {name} failed beside other tests and passed alone; find out why")
    return 0


if __name__ == "__main__":
    sys.exit(main())
