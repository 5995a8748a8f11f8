// graphile-worker at the same work: `prepare DSN PENDING` queues jobs, `work DSN JOBS BATCH` runs so many, one at a time, or
// fetched and completed in batches. A worker says `ready` in its first job, waits for a line on its standard input, and says `done`
// with how many it ran: all, or those of ten seconds.
import { run, runMigrations } from "graphile-worker";
import pg from "pg";

const [command, connectionString, count, batch] = process.argv.slice(2);
let left = Number(count);

if (command === "prepare") {
  await runMigrations({ connectionString });
  const client = new pg.Client({ connectionString });
  await client.connect();
  await client.query("SELECT graphile_worker.add_job('bench')");
  // As add_job writes it, many at once.
  await client.query(
    "INSERT INTO graphile_worker._private_jobs (task_id, payload) SELECT id, '{}'::json FROM graphile_worker._private_tasks, generate_series(2, $1::int) WHERE identifier = 'bench'",
    [count],
  );
  await client.query("VACUUM ANALYZE graphile_worker._private_jobs");
  await client.end();
} else {
  let ready;
  const isReady = new Promise((resolve) => (ready = resolve));
  const go = new Promise((resolve) => process.stdin.once("data", resolve));
  const size = Number(batch);
  const batched = size > 1 ? { localQueue: { size }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
  let done;
  const ended = new Promise((resolve) => (done = resolve));
  const runner = await run({
    preset: { worker: { connectionString, concurrentJobs: size > 1 ? size : 1, maxPoolSize: 4, ...batched } },
    noHandleSignals: true,
    logger: undefined,
    taskList: {
      bench: async () => {
        ready();
        await go;
        left -= 1;
        if (left === 0) done();
      },
    },
  });
  await isReady;
  console.log("ready");
  await go;
  await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 10_000))]);
  console.log(`done ${Number(count) - left}`);
  process.exit(0);
}
