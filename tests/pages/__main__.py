"""python -m tests.pages [PART OF A NAME ...]    lint the pages for agents and for people, and count what was checked"""

import sys

from tests.pages import claims, names
from tests.pages.page import documents, pages

wanted = sys.argv[1:] or [""]
listed = [(page, True) for page in pages()] + [(page, False) for page in documents()]
chosen = [(page, words) for page, words in listed if any(part in page.name for part in wanted)]
results = [(claims.check(page) if page.claims else (0, []), names.check(page, words)) for page, words in chosen]
problems = [problem for (_, unsupported), (_, unknown) in results for problem in (*unsupported, *unknown)]
for problem in problems:
    print(problem)
print(f"{sum(one[0][0] for one in results)} claims, {sum(one[1][0] for one in results)} links")
sys.exit(bool(problems))
