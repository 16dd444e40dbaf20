"""What each kind of fault does to the site, and how it is mended."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil

from codefyui_core.errors import CodefyError

from .databases import Postgres
from .injector import Acts, Injected, Injector, wall_ms
from .machines import STEP_S
from .processes import KEEPER, RUN, ZYGOTE
from .proxy import Line
from .schedule import Kind
from .storages import Bucket
from .watcher import Asked

STOP_WITHIN_S = 40.0
STORE_WITHIN_S = 60.0
END_WITHIN_S = 3.0
"""How long a kill at the end of a run waits for one."""
SLOW_BYTES_S = 20_000.0
LATENCY_S = 0.4


# ------------------------------------------------------------ servers and agents


def kill(injector: Injector, done: Injected) -> bool:
    process = injector.process(done)
    if not process.up:
        return False
    process.kill()
    injector.later(done.fault.lasts_s, lambda: injector.start(done))
    return True


def lose_power(injector: Injector, done: Injected) -> bool:
    process = injector.process(done)
    if not process.up:
        return False
    injector.site.lose_power(done.fault.target)
    injector.site.machines[done.fault.target].lose_unsynced(injector.rng)
    injector.later(done.fault.lasts_s, lambda: injector.start(done))
    return True


def kill_at_end(injector: Injector, done: Injected) -> bool:
    """Between the last word of user code and the end that the server stores."""
    before = {one.label for one in injector.watcher.active(done.fault.target) if _is_over(injector, one)}
    ended = partial(_another_is_over, injector, done.fault.target, before)
    mended = injector.held()

    def then(found: bool) -> None:
        mended()
        if found:
            injector.later(injector.rng.uniform(0, 0.15), kill_now)

    def kill_now() -> None:
        done.wall_ms = wall_ms()
        if kill(injector, done):
            injector.injected.append(done)

    injector.when(ended, END_WITHIN_S, then)
    return False


def _another_is_over(injector: Injector, target: str, before: set[str]) -> bool:
    active = injector.watcher.active(target)
    return any(one.label not in before and _is_over(injector, one) for one in active)


def _is_over(injector: Injector, one: Asked) -> bool:
    return injector.watcher.journal_over(one)


def pause(injector: Injector, done: Injected) -> bool:
    process = injector.process(done)
    if not process.up:
        return False
    process.pause()

    def wake() -> None:
        process.wake()
        done.mend()

    injector.later(done.fault.lasts_s, wake)
    return True


def stop(injector: Injector, done: Injected) -> bool:
    process = injector.process(done)
    if not process.up:
        return False
    if done.fault.kind is Kind.RESTART_SERVER:
        try:
            injector.site.post("/api/server/stop", {"runs": "keep"}, 3.0)
        except (CodefyError, OSError):
            return False
    else:
        process.send(signal.SIGTERM)
    process.expected = True

    def then(ended: bool) -> None:
        if not ended:
            injector.say(f"{done.fault.target} didn't end within {STOP_WITHIN_S:g} s of its stop")
            process.kill()
        elif process.popen.returncode not in {0, -signal.SIGTERM}:
            injector.say(f"{done.fault.target} was stopped: status {process.popen.returncode}")
        injector.later(done.fault.lasts_s, lambda: injector.start(done))

    injector.when(lambda: not process.alive, STOP_WITHIN_S, then)
    return True


# ------------------------------------------------------------ runs


def kill_zygote(injector: Injector, done: Injected) -> bool:
    return _kill_process(done, next(iter(injector.process(done).below(ZYGOTE)), None))


def kill_run(injector: Injector, done: Injected) -> bool:
    """Or its keeper: a process of a run of that place whose user code executes."""
    active = injector.watcher.active(done.fault.target)
    executing = {pid: one for one in active for pid in _pid(injector, one)}
    if not executing:
        return False
    pid, one = injector.rng.choice(sorted(executing.items(), key=lambda item: item[0]))
    done.run = one.label
    return _kill_process(done, _of_run(pid, keeper=done.fault.kind is Kind.KILL_KEEPER))


def _of_run(pid: int, *, keeper: bool) -> psutil.Process | None:
    with suppress(psutil.Error):
        process: psutil.Process | None = psutil.Process(pid)
        if process is not None and keeper:
            process = process.parent()
        if process is not None and process.name() == (KEEPER if keeper else RUN):
            return process
    return None


def _kill_process(done: Injected, victim: psutil.Process | None) -> bool:
    if victim is None:
        return False
    with suppress(psutil.Error):
        victim.kill()
        done.mend()
        return True
    return False


def _pid(injector: Injector, one: Asked) -> tuple[int, ...]:
    journal = injector.watcher.journal(one)
    return () if journal.over else journal.pids[-1:]


def cancel(injector: Injector, done: Injected) -> bool:
    there = [one for one in injector.watcher.active(done.fault.target) if one.run_id]
    if not there:
        return False
    one = injector.rng.choice(there)
    done.run = one.label
    with suppress(CodefyError, OSError):
        injector.site.post(f"/api/runs/{one.run_id}/cancel", timeout_s=3.0)
    done.mend()
    return True


# ------------------------------------------------------------ lines


def break_line(injector: Injector, done: Injected) -> bool:
    fault, proxy = done.fault, injector.site.proxy
    begin, end = _LINES[fault.kind]
    if not injector.site.pace.tells_half_open and fault.kind in _HALF_OPEN:
        end = _nothing
    before = proxy.lines[fault.target].corrupted
    proxy.do(fault.target, begin)

    def mend() -> None:
        proxy.do(fault.target, end)
        done.mend()
        if fault.kind is Kind.CORRUPT and proxy.lines[fault.target].corrupted == before:
            injector.injected.remove(done)  # nothing came by

    injector.later(0.0 if end is _nothing else fault.lasts_s, mend)
    return True


def _nothing(_line: Line) -> None:
    pass


def _put(name: str, value: float) -> Callable[[Line], None]:
    return lambda line: setattr(line, name, value)


_HALF_OPEN = frozenset({Kind.HALF_OPEN_AGENT, Kind.HALF_OPEN_SERVER})
_LINES: dict[Kind, tuple[Callable[[Line], None], Callable[[Line], None]]] = {
    Kind.CUT: (Line.cut, _nothing),
    Kind.HALF_OPEN_AGENT: (lambda line: line.half_open(told="server"), Line.tell),
    Kind.HALF_OPEN_SERVER: (lambda line: line.half_open(told="agent"), Line.tell),
    Kind.STALL: (lambda line: line.flows.clear(), lambda line: line.flows.set()),
    Kind.SLOW: (_put("rate", SLOW_BYTES_S), _put("rate", 0.0)),
    Kind.LATENCY: (_put("latency_s", LATENCY_S), _put("latency_s", 0.0)),
    Kind.CORRUPT: (_put("corrupt", 1), _put("corrupt", 0)),
}


# ------------------------------------------------------------ machines and the database


def fill_disk(injector: Injector, done: Injected) -> bool:
    machine = injector.site.machines[done.fault.target]
    if machine.full:
        return False
    machine.fill()

    def mend() -> None:
        machine.free()
        done.mend()

    injector.later(done.fault.lasts_s, mend)
    return True


def step_clock(injector: Injector, done: Injected) -> bool:
    """An hour ahead or back, and right again."""
    machine = injector.site.machines[done.fault.target]
    machine.step(injector.rng.choice((STEP_S, -STEP_S)))

    def mend() -> None:
        machine.step(0)
        done.mend()

    injector.later(done.fault.lasts_s, mend)
    return True


def lock_database(injector: Injector, done: Injected) -> bool:
    if not injector.site.store.up:
        return False
    mended = injector.held()

    def over() -> None:
        done.mend()
        mended()

    injector.site.store.hold(done.fault.lasts_s, over)
    return True


def kill_database(injector: Injector, done: Injected) -> bool:
    store = injector.site.store
    if not isinstance(store, Postgres) or not store.server.up:
        return False
    server = store.server
    server.kill()
    deadline = time.monotonic() + STOP_WITHIN_S

    def start() -> None:
        server.start()
        look()

    def look() -> None:
        if server.ready():
            done.mend()
        elif time.monotonic() < deadline:
            injector.later(0.2, look)
        else:
            injector.say(f"PostgreSQL doesn't start again, see {server.folder}/log")

    injector.later(done.fault.lasts_s, start)
    return True


def break_store(injector: Injector, done: Injected) -> bool:
    """Kill the bucket's server, or let it hang."""
    bucket = injector.site.carrying
    if not isinstance(bucket, Bucket) or not bucket.up:
        return False
    if done.fault.kind is Kind.PAUSE_STORE:
        bucket.pause()

        def wake() -> None:
            bucket.wake()
            done.mend()

        injector.later(done.fault.lasts_s, wake)
        return True
    bucket.server.stop()

    def start() -> None:
        bucket.server.begin()
        injector.when(bucket.server.answers, STORE_WITHIN_S, then)

    def then(answers: bool) -> None:
        done.mend()
        if not answers:
            injector.say(f"the bucket doesn't come again, see {bucket.server.folder}/log")

    injector.later(done.fault.lasts_s, start)
    return True


ACTS: Acts = {
    Kind.KILL_SERVER: kill,
    Kind.KILL_AGENT: kill,
    Kind.KILL_AT_END: kill_at_end,
    Kind.POWER_LOSS: lose_power,
    Kind.KILL_RUN: kill_run,
    Kind.KILL_KEEPER: kill_run,
    Kind.KILL_ZYGOTE: kill_zygote,
    Kind.PAUSE_SERVER: pause,
    Kind.PAUSE_AGENT: pause,
    **dict.fromkeys(_LINES, break_line),
    Kind.FULL_SERVER: fill_disk,
    Kind.FULL_AGENT: fill_disk,
    Kind.CLOCK: step_clock,
    Kind.LOCKED_DATABASE: lock_database,
    Kind.KILL_DATABASE: kill_database,
    Kind.STOP_AGENT: stop,
    Kind.RESTART_SERVER: stop,
    Kind.CANCEL: cancel,
    Kind.KILL_STORE: break_store,
    Kind.PAUSE_STORE: break_store,
}
