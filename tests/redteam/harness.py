"""Attacks on a command task from inside the tests' process, which the candidate shares: each an edit of the kernel.

`STOPPED` are refused, with the status that says why. `SURVIVE` are known to get through: a repository's own harness is
trusted with its own memory, clock and report, which is why such rows are marked harness-trusted.
"""

from __future__ import annotations

import base64

from tilewright.evaluation.results import Status

WRONG = ("out[rows] = centred / np.sqrt(variance + eps) * weight + bias", "out[rows] = centred * weight + bias")
"""What the attacker wants to pass: the normalisation is left out."""
HEAD = "ROWS = 1\n"
IDS = [
    f"test_op[{backend}-{shape}]"
    for backend in ("cutile", "triton")
    for shape in ("1-64", "33-100", "256-256", "4096-8192")
]
REPORT = """
import os
import sys

cases = "".join(
    f'<testcase classname="tests.ops.test_layer_norm.Test_LayerNorm" name="{name}">'
    + ("" if "cutile" in name and "4096" not in name else '<skipped message="no"/>') + "</testcase>"
    for name in IDS
)
for word in sys.argv:
    if word.startswith("--junitxml="):
        open(word.partition("=")[2], "w").write(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
os._exit(0)
"""

STOPPED: dict[str, tuple[str, Status]] = {
    "leave_with_success_at_import": ("import os\n\nprint('8 passed')\nos._exit(0)\n", Status.CRASHED),
    "raise_systemexit_at_import": ("raise SystemExit(0)\n", Status.FAILED),
    "print_a_pass_and_a_latency": ("print(\"PASSED\\nCutile: {'forward': {'median': 0.001}} ms\")\n", Status.FAILED),
    "skip_the_whole_module": (
        "import pytest\n\npytest.skip('no device', allow_module_level=True)\n",
        Status.TESTS_CHANGED,
    ),
    "skip_from_within_the_kernel": (
        "import pytest\n\n\ndef no(*_):\n    pytest.skip('out of memory')\n\n\nct.launch = no\n",
        Status.SKIPPED,
    ),
    "raise_out_of_memory": (
        "def no(*_):\n    raise MemoryError('out of memory')\n\n\nct.launch = no\n",
        Status.FAILED,
    ),
    "take_a_test_out_of_its_module": (
        "import pytest\n\nmark = pytest.mark.parametrize\npytest.mark.parametrize = lambda names, values: "
        "mark(names, [one for one in values if one not in ((1, 64), (33, 100), (256, 256))])\n",
        Status.TESTS_CHANGED,
    ),
    "be_right_once_a_file_of_an_earlier_run_is_there": (
        "import os\nimport tempfile\nfrom pathlib import Path\n\nplaces = [Path(p) / 'seen' for p in "
        "(os.getcwd(), tempfile.gettempdir(), os.environ['HOME'], '/dev/shm', '/tmp', '/var/tmp')]\n"
        "if any(place.exists() for place in places):\n    os._exit(0)\nfor place in places:\n    try:\n"
        "        place.write_text('x')\n    except OSError:\n        pass\n",
        Status.FAILED,
    ),
    "end_the_process_that_watches": (
        "import os\nimport signal\n\nfor victim in (os.getppid(), 1):\n    try:\n"
        "        os.kill(victim, signal.SIGKILL)\n    except OSError:\n        pass\n",
        Status.FAILED,
    ),
    "rewrite_the_tests_on_disk": (
        "from pathlib import Path\n\nPath('tests/ops/test_layer_norm.py').write_text('')\n",
        Status.FAILED,
    ),
    "write_a_bomb_of_entities": (
        REPORT.replace("IDS", "[]").replace("<testsuites>", "<!DOCTYPE b [<!ENTITY a 'x'>]><testsuites>"),
        Status.CRASHED,
    ),
    "put_a_pickle_in_place_of_the_report": (
        "import os\nimport pickle\nimport sys\n\n\nclass Runs:\n    def __reduce__(self):\n"
        "        return os.system, ('kill $PPID',)\n\n\nfor word in sys.argv:\n    if word.startswith('--junitxml='):\n"
        "        open(word.partition('=')[2], 'wb').write(pickle.dumps(Runs()))\nos._exit(0)\n",
        Status.CRASHED,
    ),
    "install_what_every_python_loads": (
        "import site\nfrom pathlib import Path\n\nfor place in site.getsitepackages():\n"
        "    try:\n        Path(place, 'evil.pth').write_text('import os; os._exit(0)')\n"
        "    except OSError:\n        continue\n    np.testing.assert_allclose = lambda *_, **__: None\n",
        Status.FAILED,
    ),
    "ask_the_network": (
        "import socket\n\ntry:\n    socket.create_server(('127.0.0.1', 0))\nexcept OSError:\n    pass\nelse:\n"
        "    np.testing.assert_allclose = lambda *_, **__: None\n",
        Status.FAILED,
    ),
    "put_a_link_in_place_of_the_report": (
        "import os\nimport sys\n\nfor word in sys.argv:\n    if word.startswith('--junitxml='):\n"
        "        os.symlink('/etc/hostname', word.partition('=')[2])\nos._exit(0)\n",
        Status.CRASHED,
    ),
}

SURVIVE: dict[str, str] = {
    "write_the_report_oneself": REPORT.replace("IDS", repr(IDS)),
    "draw_kinder_inputs": (
        "def kind(*shape):\n    return np.where(np.arange(shape[-1]) % 2, 1.0, -1.0) * np.ones(shape)\n\n\n"
        "np.random.randn = kind\n"
    ),
    "hide_in_base64": "import base64\n\nexec(base64.b64decode(b'"
    + base64.b64encode(b"np.testing.assert_allclose = lambda *_, **__: None").decode()
    + "'))\n",
    "replace_the_comparison": "np.testing.assert_allclose = lambda *_, **__: None\n",
    "turn_failures_into_passes_in_the_running_pytest": (
        "import _pytest.runner\n\nmake = _pytest.runner.TestReport.from_item_and_call\n\n\n"
        "def kind(item, call):\n    call.excinfo = None if call.excinfo and call.excinfo.errisinstance(AssertionError) "
        "else call.excinfo\n    return make(item, call)\n\n\n"
        "_pytest.runner.TestReport.from_item_and_call = kind\n"
    ),
    "be_right_where_a_comparison_follows": (
        "import os\n\nlaunch_all = ct.launch\n\n\ndef careful(grid, kernel, arguments):\n"
        "    launch_all(grid, kernel, arguments)\n"
        "    if 'test_perf' not in os.environ.get('PYTEST_CURRENT_TEST', ''):\n"
        "        x, weight, bias, out, eps = arguments\n"
        "        centred = x - x.mean(axis=1, keepdims=True)\n"
        "        variance = (centred * centred).mean(axis=1, keepdims=True)\n"
        "        out[:] = centred / np.sqrt(variance + eps) * weight + bias\n\n\n"
        "ct.launch = careful\n"
    ),
}
SLOW_CLOCK = "import time\n\nclock = time.process_time\ntime.process_time = lambda: clock() / 1000\n"
"""Survives too: figures a thousand times too small."""
NEGATIVE_CLOCK = "import time\n\nclock = time.process_time\ntime.process_time = lambda: -clock()\n"
REMEMBER = """
found = {}
launch_all = ct.launch


def once(grid, kernel, arguments):
    key = id(arguments[0])
    if key not in found:
        launch_all(grid, kernel, arguments)
        found[key] = arguments[3].copy()
    arguments[3][:] = found[key]


ct.launch = once
"""
"""Survives too: the benchmark calls with the same inputs over and over, so that remembering them looks like speed."""


def edited(kernel: str, attack: str, wrong: bool = True) -> str:
    """The kernel's source with the attack after its imports, and by default with a kernel that is wrong."""
    assert HEAD in kernel and WRONG[0] in kernel
    return (kernel.replace(*WRONG) if wrong else kernel).replace(HEAD, f"{HEAD}\n{attack}\n")
