import pytest
import torch


def pytest_addoption(parser):
    parser.addoption("--print-record", action="store_true", help="print what the benchmarks recorded")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(42)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" and item.config.getoption("--print-record"):
        for name, value in item.user_properties:
            if name == "benchmark":
                for framework, figures in value.items():
                    print(f"\n{framework.capitalize()}: {figures} ms")
