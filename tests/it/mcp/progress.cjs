// Calls a tool with the client of the inspector, and prints how far it was told to be and the answer.
// node progress.cjs PACKAGES http|stdio TARGET TOOL ARGUMENTS, where TARGET is an address, or a program with its arguments as JSON.
const { createRequire } = require('node:module');
const [packages, kind, target, name, given] = process.argv.slice(2);
const load = createRequire(`${packages}/_.js`);
const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');

const transport = () => {
  if (kind === 'http') {
    return new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${process.env.SVC_TOKEN}` } } });
  }
  const { StdioClientTransport } = load('@modelcontextprotocol/client/stdio');
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env });
};

(async () => {
  const client = new Client({ name: 'a-client-of-others', version: '1.0.0' });
  await client.connect(transport());
  const told = [];
  const answer = await client.callTool({ name, arguments: JSON.parse(given) }, { onprogress: (progress) => told.push(progress), timeout: 170000 });
  await client.close();
  console.log(JSON.stringify({ told, answer }));
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
