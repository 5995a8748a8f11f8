"""procrastinate at the same work: `prepare DSN PENDING` queues jobs, and `work DSN JOBS SLOTS` runs JOBS of them, SLOTS at once.

A worker says `ready`, waits for a line on its standard input, and says `done` with the number of jobs it ran: all, or as many
as it could in ten seconds.
"""
import asyncio
import sys

import procrastinate

command, dsn, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=1, max_size=1 if command == "prepare" else 3)
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
        # This writes what defer writes, but many at once and without the triggers that announce each.
        await connector.execute_query_async("SET session_replication_role = replica")
        await connector.execute_query_async(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args) SELECT 'default', 'bench', '{}' FROM generate_series(1, %(count)s)",
            count=count,
        )
        await connector.execute_query_async("ANALYZE procrastinate_jobs")


async def work():
    async with app.open_async():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        worker = asyncio.create_task(app.run_worker_async(concurrency=int(sys.argv[4]), install_signal_handlers=False))
        try:
            await asyncio.wait_for(ended.wait(), 10)
        except TimeoutError:
            pass
        print("done", count - left, flush=True)
        worker.cancel()


try:
    asyncio.run(prepare() if command == "prepare" else work())
except asyncio.CancelledError:
    pass
