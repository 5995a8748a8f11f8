"""procrastinate at the same work: `prepare DSN PENDING` queues jobs, `work DSN JOBS` runs so many, one at a time.

A worker says `ready`, waits for a line on its standard input, and says `done` when it has run its jobs.
"""
import asyncio
import sys

import procrastinate

command, dsn, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=1, max_size=3)
app = procrastinate.App(connector=connector)
left = count
ended = asyncio.Event()


@app.task(name="bench")
async def bench():
    global left
    left -= 1
    if left == 0:
        ended.set()


async def prepare():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await connector.execute_query_async(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args) SELECT 'default', 'bench', '{}' FROM generate_series(1, %(count)s)",
            count=count,
        )


async def work():
    async with app.open_async():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker = asyncio.create_task(app.run_worker_async(concurrency=1, install_signal_handlers=False))
        await ended.wait()
        print("done", flush=True)
        worker.cancel()


try:
    asyncio.run(prepare() if command == "prepare" else work())
except asyncio.CancelledError:
    pass
