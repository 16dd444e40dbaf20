"""A process that owns a supervisor with one run, says what there is, and waits to be killed; or, in a control group,
says how two runs ended.
"""

import asyncio
import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path

from codefyui_core.runner.api import FolderSpec, Go, Launch
from codefyui_core.runner.supervisor import Supervisor


async def ending(starter: Supervisor, folder: Path, **options: object) -> dict[str, object]:
    """How one run ends by itself."""
    process = await starter.launch(Launch(run_id="r", attempt=1, work_dir=folder))
    await process.ready()
    folders = FolderSpec(base=str(folder), data=str(folder))
    await process.go(
        Go(run_id="r", attempt=1, document={}, options=dict(options), device="cpu", folders=folders)
    )
    async for _ in process.lines():
        pass
    return asdict(await process.ended())


async def main() -> None:
    asked = json.loads(sys.argv[1])
    if "group" in asked:
        (Path(asked["group"]) / "cgroup.procs").write_text(str(os.getpid()))
    folder = Path(asked["folder"])
    starter = Supervisor(
        preload=("run_behaviors",),
        zygote=asked["zygote"],
        log=logging.getLogger(),
        entry="run_behaviors:execute",
    )
    await starter.start()
    while asked["zygote"] and not starter.is_warm:
        await asyncio.sleep(0.01)
    if "group" in asked:
        killed = await ending(starter, folder, do="killed")
        told = await ending(starter, folder, do=asked["do"], bytes=asked["bytes"])
        print(json.dumps({**told, "killed": killed}))
        await starter.aclose()
        return
    process = await starter.launch(Launch(run_id="r", attempt=1, work_dir=folder))
    await process.ready()
    folders = FolderSpec(base=str(folder), data=str(folder))
    options = {"do": asked["do"], "stay": True}
    await process.go(Go(run_id="r", attempt=1, document={}, options=options, device="cpu", folders=folders))
    async for line in process.lines():
        said = json.loads(line)["payload"]
        print(json.dumps({**said, "zygotes": sorted(starter.zygotes())}), flush=True)
        await asyncio.sleep(600)


asyncio.run(main())
