# ruff: noqa: PTH109, PTH110, NPY002, ICN001  what user code does
"""What the runs of these tests do instead of a graph; imported in run processes only, by name."""

import json
import os
import signal
import subprocess
import sys
import time


def execute(go, request, emit, should_stop):
    return BEHAVIORS[go.options["do"]](go, request, emit, should_stop)


def event(emit, **payload):
    emit(
        json.dumps(
            {"kind": "event", "type": "said", "payload": payload, "ts": 1}, separators=(",", ":")
        ).encode()
    )


SUCCEEDED = {"outcome": "succeeded"}


def report(go, request, emit, should_stop):
    import threading

    event(
        emit,
        pid=os.getpid(),
        parent=os.getppid(),
        session=os.getsid(0),
        folder=os.getcwd(),
        device=os.environ.get("CUDA_VISIBLE_DEVICES"),
        threads={name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
        modules=sorted(name for name in sys.modules if "." not in name),
        python_threads=threading.active_count(),
        secret=go.document.get("secret"),
    )
    return SUCCEEDED


def until_stopped(go, request, emit, should_stop):
    event(emit, pid=os.getpid(), keeper=os.getppid())
    while not should_stop():
        time.sleep(0.005)
    return {"outcome": "stopped"}


def deaf(go, request, emit, should_stop):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    event(emit, pid=os.getpid(), keeper=os.getppid())
    while True:
        time.sleep(1)


def stray(go, request, emit, should_stop):
    """Leaves a double-forked process in a session of its own, that holds every descriptor it was given."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            while True:
                time.sleep(1)
        os._exit(0)
    event(emit, pid=os.getpid(), keeper=os.getppid(), stray=int(os.read(read, 20)))
    if go.options.get("stay"):
        while True:
            time.sleep(1)
    return SUCCEEDED


def executed_stray(go, request, emit, should_stop):
    code = "import subprocess,sys; p=subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)'],start_new_session=True,stdout=subprocess.DEVNULL); print(p.pid)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    event(emit, pid=os.getpid(), keeper=os.getppid(), stray=int(done.stdout))
    if go.options.get("stay"):
        while True:
            time.sleep(1)
    return SUCCEEDED


def family(go, request, emit, should_stop):
    """Children of every kind, none of which wants to end; then the run goes on as asked."""
    read, write = os.pipe()
    emptied = {} if go.options.get("scrubbed") else dict(os.environ)
    for kind in (_deaf, _daemon, lambda report: _executed(report, emptied), _plain):
        if os.fork() == 0:
            kind(lambda: os.write(write, f"{os.getpid()}\n".encode()))
    pids = []
    with os.fdopen(read) as lines:
        while len(pids) < 4:
            pids.append(int(lines.readline()))
    event(emit, pid=os.getpid(), keeper=os.getppid(), stray=pids[0], family=pids)
    match go.options.get("then"):
        case "fail":
            raise RuntimeError("as asked")
        case "crash":
            os.abort()
        case "succeed":
            return SUCCEEDED
    while not should_stop():
        time.sleep(0.005)
    return {"outcome": "stopped"}


def _forever():
    while True:
        time.sleep(1)


def _deaf(report):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    report()
    _forever()


def _daemon(report):
    os.setsid()
    if os.fork() == 0:
        report()
        _forever()
    os._exit(0)


def _executed(report, environment):
    """Another program under the same number."""
    report()
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], environment)


def _plain(report):
    report()
    _forever()


def flood(go, request, emit, should_stop):
    text = "x" * 1000
    progress = os.open(go.options["progress"], os.O_WRONLY | os.O_CREAT)
    for number in range(go.options["events"]):
        event(emit, number=number, text=text)
        os.pwrite(progress, f"{number:8}".encode(), 0)
    return SUCCEEDED


def holds_interpreter(go, request, emit, should_stop):
    """One C call that doesn't give the interpreter's lock back until a file is there: no thread of ours runs."""
    import ctypes

    event(emit, pid=os.getpid())
    usleep = ctypes.PyDLL(None).usleep
    while not os.path.exists(go.options["until"]):
        usleep(200_000)
    return SUCCEEDED


def eats_memory(go, request, emit, should_stop):
    b"x" * go.options["bytes"]
    return SUCCEEDED


def child_eats_memory(go, request, emit, should_stop):
    """As a loader does whose worker was killed."""
    pid = os.fork()
    if pid == 0:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        b"x" * go.options["bytes"]
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return {"outcome": "failed", "error": f"a child ended with {status}", "cause": "signal"}


def prints(go, request, emit, should_stop):
    print("one")
    print("zwei ✓")
    os.write(1, b"broken \xff text\n")
    os.write(2, b"10%\r50%\r100%\n")
    print("to stderr", file=sys.stderr)
    os.write(1, b"y" * 100_000 + b"\nno line end")
    return SUCCEEDED


def fails(go, request, emit, should_stop):
    raise RuntimeError("as asked")


def huge_line(go, request, emit, should_stop):
    event(emit, text="z" * 600_000)
    return SUCCEEDED


def late_words(go, request, emit, should_stop):
    import atexit

    atexit.register(lambda: print("printed at exit"))
    return SUCCEEDED


def stuck_at_exit(go, request, emit, should_stop):
    import atexit

    atexit.register(time.sleep, 600)
    return SUCCEEDED


def numbers(go, request, emit, should_stop):
    import random

    import numpy
    import torch

    event(
        emit,
        random=random.random(),
        numpy=float(numpy.random.rand()),
        torch=float(torch.rand(())),
        torch_threads=torch.get_num_threads(),
    )
    return SUCCEEDED


BEHAVIORS = {
    "report": report,
    "until_stopped": until_stopped,
    "deaf": deaf,
    "stray": stray,
    "executed_stray": executed_stray,
    "family": family,
    "flood": flood,
    "holds_interpreter": holds_interpreter,
    "priority": lambda go, request, emit, should_stop: (
        event(emit, nice=os.getpriority(os.PRIO_PROCESS, 0), group=request.group_name) or SUCCEEDED
    ),
    "eats_memory": eats_memory,
    "child_eats_memory": child_eats_memory,
    "prints": prints,
    "fails": fails,
    "huge_line": huge_line,
    "late_words": late_words,
    "stuck_at_exit": stuck_at_exit,
    "numbers": numbers,
    "exit7": lambda *_: os._exit(7),
    "abort": lambda *_: os.abort(),
    "killed": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
}
