"""What a candidate may not reach from its worker, and what happens when it takes too much of the machine."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body
from tests.conftest import SCALE_KERNEL
from tests.redteam.faults import EVERYWHERE, judge, make_bench, on_small_disk
from tilewright.evaluation.results import Status
from tilewright.isolation import limits
from tilewright.isolation.confinement import Isolation
from tilewright.isolation.supervisor import descendants
from tilewright.task import Backend


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One evaluator for all: what one candidate does to its worker must not reach the next."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TILEWRIGHT_MEMORY_MIB", "1536")
        patched.setenv("TILEWRIGHT_SCRATCH_MIB", "1024")
        made = make_bench(tmp_path_factory.mktemp("isolated") / "repo", Backend.CPU)
        yield made
        made.close()


FORBIDDEN = {
    "write outside its folder": "open('/tmp/tilewright-escape', 'w')",
    "truncate a file": "os.truncate(REPOSITORY + '/task/kernel.py', 0)",
    "write to shared memory": "open('/dev/shm/tilewright-escape', 'w')",
    "list the root of the disk": "os.listdir('/')",
    "read the repository": "open(REPOSITORY + '/task/kernel.py').read()",
    "write to its snapshot": "open(__file__, 'a')",
    "write beside its snapshot": "open(os.path.dirname(__file__) + '/torch.py', 'w')",
    "write bytecode to the packages": "open(os.path.dirname(torch.__file__) + '/x.pth', 'w')",
    "read the server's environment": "open(f'/proc/{SERVER}/environ').read()",
    "read the referee's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "follow the referee's files": "os.listdir(f'/proc/{os.getppid()}/cwd')",
    "signal the referee": "os.kill(os.getppid(), 0)",
    "slow the referee": "os.sched_setaffinity(os.getppid(), [0])",
    "watch a folder": "check(libc.inotify_init() < 0)",
    "slow all of this user": "os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0))",
    "connect by TCP": "socket.create_connection(('127.0.0.1', PORT), timeout=2)",
    "open a UDP socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "connect to a Unix socket": "socket.socket(socket.AF_UNIX).connect(UNIX)",
    "send to a Unix datagram socket": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', DATAGRAM)",
    "open a Unix datagram socket": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "pass a file": "socket.send_fds(socket.socketpair()[0], [b'x'], [0])",
    "trace the referee": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "make a user namespace": "check(libc.unshare(0x10000000))",
    "leave memory to later processes": "check(libc.shmget(0x7471, 4096, 0o1600) < 0)",
    "change who may use a file": "os.setxattr(torch.__file__, 'user.mark', b'1')",
    "mark a file by its flags": "fcntl.ioctl(os.open(torch.__file__, 0), 0x80086601, bytes(8))",
    "control others' memory": "check(libc.shmctl(0, 14, ctypes.create_string_buffer(256)) < 0)",
    "leave messages to later processes": "check(libc.msgget(0x7471, 0o1600) < 0)",
}
FEIGNED = {
    "leave its process group": ("os.setsid(); os.setpgid(0, 0)", "os.getpgid(0) == os.getsid(0) == os.getpid()"),
    "mark a file by its time": ("os.utime(__file__, (1, 1))", "os.stat(__file__).st_atime != 1"),
    "mark a file by its mode": ("os.chmod(__file__, 0o123)", "os.stat(__file__).st_mode & 0o777 != 0o123"),
}


def test_what_a_candidate_may_not_do(bench: Bench, tmp_path: Path) -> None:
    """Each attempt fails by the kernel's refusal, in a thread as well."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box,
    ):
        box.bind(str(tmp_path / "box"))
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        names = {
            "REPOSITORY": str(bench.root),
            "PORT": tcp.getsockname()[1],
            "UNIX": str(tmp_path / "socket"),
            "DATAGRAM": str(tmp_path / "box"),
            "SERVER": os.getpid(),
        }
        top = (
            "import ctypes, fcntl, os, socket, threading\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "def check(result):\n    if result: raise OSError(ctypes.get_errno(), 'refused')\n"
            "refused = []\n"
            f"def attempts(x):\n    for what, code in {list(FORBIDDEN.items())!r}:\n"
            f"        try:\n            exec(code, globals() | {names!r} | {{'x': x}})\n"
            "        except PermissionError:\n            refused.append(what)\n"
        )
        lines = (
            "attempts(x)\nthread = threading.Thread(target=attempts, args=(x,))\nthread.start()\nthread.join()\n"
            f"left = [what for what in {list(FORBIDDEN)!r} if refused.count(what) < 2]\nassert not left, left\n"
            "refused.clear()\n"
            + "".join(f"{doing}\nassert {undone}, {what!r}\n" for what, (doing, undone) in FEIGNED.items())
            + "return right(x, factor)"
        )
        result = bench.check(body(lines, top))
    assert result.passed, result.message


def test_a_candidate_may_talk_to_what_it_starts(bench: Bench) -> None:
    """As compilers do: by pipes, pairs of sockets and an event loop."""
    lines = """
ours, theirs = multiprocessing.Pipe()
ours.send([1])
assert theirs.recv() == [1]
one, other = socket.socketpair()
one.sendall(b"x")
assert other.recv(1) == b"x"
async def said():
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    return (await child.communicate(b"y"))[0]
assert asyncio.run(said()) == b"y"
child = subprocess.Popen(["sleep", "60"])
child.kill()
assert child.wait() == -9
return right(x, factor)
"""
    result = bench.check(body(lines.strip(), "import asyncio, multiprocessing, socket, subprocess"))
    assert result.passed, result.message


def test_what_a_candidate_finds_in_its_process(bench: Bench) -> None:
    """Workers are forks: nothing of the process that they come from, nor of each other, may reach them."""
    lines = """
import sys, random, numpy
handles = {}
for entry in os.listdir('/proc/self/fd'):
    try:
        handles[int(entry)] = os.readlink(f'/proc/self/fd/{entry}')
    except OSError:  # the listing's own
        pass
sockets = [name for name in handles.values() if name.startswith('socket:')]
assert len(sockets) == 1 and len(handles) <= 6, handles
(own,) = os.listdir(handles[200])
assert len(own) == 64, own
assert handles[0] == '/dev/null' and handles[1] == handles[2], handles
assert not [one for one in handles if os.get_inheritable(one) and one > 2], handles
ours = [name for name in sys.modules if name.startswith('tilewright')]
assert not [name for name in ours if name.endswith(('seeds', 'comparison', 'referee', 'correctness'))], ours
assert os.environ['HOME'] == os.getcwd() == os.environ['TMPDIR'], os.environ
assert not [name for name in os.environ if name.startswith('TILEWRIGHT_FOLDER')]
print('drew', random.getrandbits(60), numpy.random.randint(2**60))
assert open('/proc/self/comm').read() == 'tw-worker\\n'
return right(x, 2 * factor)
"""
    said = [bench.check(body(lines.strip(), "import os")) for _ in range(2)]
    for result in said:
        assert result.status is Status.WRONG_VALUES, result.message
    drawn = {number for result in said for number in re.findall(r"\d{9,}", result.output)}
    assert len(drawn) >= 4, said


def test_what_a_candidate_leaves_in_its_caches_reaches_no_other(bench: Bench) -> None:
    """It writes into every folder that compilers use, and beside the candidates; the next finds nothing."""
    leave = """
places = [value for name, value in os.environ.items() if "CACHE" in name or name in ("HOME", "TMPDIR")]
places.append(cuda.tile._cext.default_tile_context.config.cache_dir)
for place in (*places, "/proc/self/fd/200", f"/proc/self/fd/200/{os.listdir('/proc/self/fd/200')[0]}"):
    with contextlib.suppress(PermissionError):
        os.makedirs(place, exist_ok=True)
        open(os.path.join(place, "left"), "w").close()
return right(x, factor)
"""
    look = """
found = [f"{folder}/{name}" for top in (os.environ["HOME"], "/proc/self/fd/200/")
         for folder, _, names in os.walk(top) for name in names if name == "left"]
assert not found, found
return right(x, factor)
"""
    top = "import contextlib, os\nimport cuda.tile._cext"
    for lines in (leave, look):
        result = bench.check(body(lines.strip(), top))
        assert result.passed, result.message


@pytest.mark.slow
def test_where_the_process_that_starts_workers_is_gone_the_next_run_has_a_new_one(bench: Bench) -> None:
    assert bench.check(SCALE_KERNEL).passed
    for pid in descendants(os.getpid()):
        if Path(f"/proc/{pid}/comm").read_text() == "tw-fork-server\n":
            os.kill(pid, signal.SIGKILL)
    assert bench.check(SCALE_KERNEL).status in (Status.VOID, Status.CRASHED)
    assert bench.check(SCALE_KERNEL).passed


def test_how_workers_are_confined_is_on_record(bench: Bench) -> None:
    stated = bench.environment().isolation
    assert stated.startswith("Landlock"), stated
    assert stated.endswith("seccomp"), stated
    assert str(Isolation()) == "none"


@pytest.mark.parametrize(
    "what",
    [what if what == "memory without end" else pytest.param(what, marks=pytest.mark.slow) for what in EVERYWHERE],
)
def test_a_fault_is_classified_and_the_next_run_unaffected(bench: Bench, what: str) -> None:
    found = judge(bench, EVERYWHERE[what])
    assert found["as_told"], found
    assert found["next"] == "passed", found


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_next_run_unaffected() -> None:
    """One that the candidate fills, and one that was full before it came: a small disk of the test's own."""
    try:
        seen = on_small_disk()
    except RuntimeError as error:
        pytest.skip(str(error))
    assert len(seen) == 2
    for found in seen.values():
        assert found["as_told"], found
        assert found["next"] == "passed", found


def test_the_limits_count_what_they_say(tmp_path: Path) -> None:
    assert limits.overuse(os.getpid(), tmp_path) == ""
    (tmp_path / "file").write_bytes(os.urandom(2**20))
    assert limits._size(tmp_path) >= 2**20
    assert limits._resident([os.getpid()]) > 2**20
