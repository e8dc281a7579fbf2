// The official clients of TypeScript, of both generations: lists tools, makes calls, and prints what came as JSON lines.
const asked = JSON.parse(process.argv[2]);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const info = { name: "assistant", version: "1" };

const newer = asked.client === "client";
const { Client } = newer ? await import("@modelcontextprotocol/client") : await import("@modelcontextprotocol/sdk/client/index.js");
let transport;
if (typeof asked.target === "string") {
  const { StreamableHTTPClientTransport } = newer ? await import("@modelcontextprotocol/client") : await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  transport = new StreamableHTTPClientTransport(new URL(asked.target));
} else {
  const { StdioClientTransport } = newer ? await import("@modelcontextprotocol/client/stdio") : await import("@modelcontextprotocol/sdk/client/stdio.js");
  transport = new StdioClientTransport({ command: asked.target[0], args: asked.target.slice(1), env: process.env });
}
const client = new Client(info, newer ? { versionNegotiation: { mode: "auto" } } : undefined);
await client.connect(transport);
say({ tools: (await client.listTools()).tools.map((each) => each.name) });
for (const [name, args] of asked.calls) {
  let found = await client.callTool({ name, arguments: args });
  while (isEarly(found.structuredContent)) {
    found = await client.callTool({ name, arguments: { ...args, cursor: found.structuredContent.cursor } });
  }
  say({ isError: found.isError ?? false, content: found.structuredContent ?? null, text: found.content[0].text });
}
await client.close();

/** Whether an answer was not done in its time, or has found nothing yet, and there is a cursor to go on. */
function isEarly(answer) {
  return answer?.cursor && (answer.messages?.length === 0 || answer.notes.some((note) => note.includes("call again")));
}
