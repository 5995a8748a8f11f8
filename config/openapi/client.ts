// Uses the types that openapi-typescript generates, with openapi-fetch, against a running service: client.js URL TOKEN FILE.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./generated";

const [url, token, file] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });

function must<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(what);
  return value;
}

async function main(): Promise<void> {
  const content = readFileSync(file);
  const stored = await client.POST("/ingest/file", {
    body: { file: content.toString("latin1") },
    bodySerializer: () => {
      const form = new FormData();
      form.append("file", new Blob([content]), "sample.md");
      return form;
    },
  });
  const id = must(stored.data, JSON.stringify(stored.error)).document_id;
  const path = { id };
  for (;;) {
    const { data, error } = await client.GET("/ingest/file/{id}/frontier", { params: { path } });
    const frontier = must(data, JSON.stringify(error));
    if (typeof frontier === "string") throw new Error("a stream was not asked for");
    if (frontier.nodes_in_flight === 0 && frontier.tasks_unfinished === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }

  // The same path as a stream, which ends by itself.
  const events = await client.GET("/ingest/file/{id}/frontier", {
    params: { path },
    headers: { accept: "text/event-stream" },
    parseAs: "text",
  });
  if (!String(events.data).includes("event: end")) throw new Error(String(events.data));

  const read = await client.GET("/documents/{id}", { params: { path } });
  const title: string = must(read.data, JSON.stringify(read.error)).title;
  if (title !== "sample.md") throw new Error(title);
  const etag = must(read.response.headers.get("etag") ?? undefined, "no ETag");
  const again = await client.GET("/documents/{id}", { params: { path, header: { "If-None-Match": etag } } });
  if (again.response.status !== 304) throw new Error(`${again.response.status}`);

  const part = await client.GET("/documents/{id}/bytes", {
    params: { path, header: { Range: "bytes=5-9" } },
    parseAs: "arrayBuffer",
  });
  if (part.response.status !== 206) throw new Error(`${part.response.status}`);
  if (!Buffer.from(must(part.data, "no bytes") as unknown as ArrayBuffer).equals(content.subarray(5, 10))) throw new Error("other bytes");

  await client.DELETE("/documents/{id}", { params: { path } });
  const gone = await client.GET("/documents/{id}", { params: { path } });
  // The types know each code that the operation can answer with.
  const problem = must(gone.error, "it is still there") as components["schemas"]["NotFoundProblem"];
  const code: "not_found" = must(problem.code, "no code");
  if (code !== "not_found") throw new Error(code);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
