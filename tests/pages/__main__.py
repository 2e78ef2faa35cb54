"""python -m tests.pages [PART OF A NAME ...]    lint the pages that agents read, and count what was checked"""

import sys

from tests.pages import claims, names
from tests.pages.page import pages

listed = [page for page in pages() if len(sys.argv) < 2 or any(part in page.name for part in sys.argv[1:])]
results = [(claims.check(page), names.check(page)) for page in listed]
problems = [problem for (_, unsupported), (_, unknown) in results for problem in (*unsupported, *unknown)]
for problem in problems:
    print(problem)
print(f"{sum(one[0][0] for one in results)} claims, {sum(one[1][0] for one in results)} links")
sys.exit(bool(problems))
