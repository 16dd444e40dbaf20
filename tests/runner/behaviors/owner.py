"""A process that owns a supervisor with one run, says what there is, and waits to be killed."""

import asyncio
import json
import logging
import sys
from pathlib import Path

from codefyui_core.runner.api import FolderSpec, Go, Launch
from codefyui_core.runner.supervisor import Supervisor


async def main() -> None:
    asked = json.loads(sys.argv[1])
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
