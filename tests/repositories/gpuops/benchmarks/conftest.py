from benchmarks.benchmark import BenchmarkReport


def pytest_sessionstart(session):
    BenchmarkReport.rows.clear()


def pytest_sessionfinish(session, exitstatus):
    BenchmarkReport.dump("profile_run.log")
