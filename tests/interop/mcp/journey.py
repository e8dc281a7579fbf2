"""An assistant that is not ours, `mcp` or `fastmcp`: lists tools, makes calls, and prints what came as JSON lines."""

import asyncio
import json
import sys


async def with_mcp(target, mode, calls) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    place = target if isinstance(target, str) else StdioServerParameters(command=target[0], args=target[1:])
    async with Client(place, mode=mode) as client:
        tools = await client.list_tools()
        tell({"tools": [each.name for each in tools.tools]})
        for name, arguments in calls:
            found = await client.call_tool(name, arguments)
            while cursor := left(found.structured_content):
                found = await client.call_tool(name, {**arguments, "cursor": cursor})
            tell({"isError": found.is_error, "content": found.structured_content, "text": found.content[0].text})


async def with_fastmcp(target, calls) -> None:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    place = target if isinstance(target, str) else StdioTransport(command=target[0], args=target[1:])
    async with Client(place) as client:
        tell({"tools": [each.name for each in await client.list_tools()]})
        for name, arguments in calls:
            found = await client.call_tool(name, arguments, raise_on_error=False)
            while cursor := left(found.structured_content):
                found = await client.call_tool(name, {**arguments, "cursor": cursor}, raise_on_error=False)
            tell({"isError": found.is_error, "content": found.structured_content, "text": found.content[0].text})


def left(answer) -> str | None:
    is_early = answer and (answer.get("messages") == [] or any("call again" in note for note in answer["notes"]))
    return answer["cursor"] if answer and is_early else None


def tell(answer) -> None:
    print(json.dumps(answer), flush=True)


asked = json.loads(sys.argv[1])
if asked["client"] == "fastmcp":
    asyncio.run(with_fastmcp(asked["target"], asked["calls"]))
else:
    asyncio.run(with_mcp(asked["target"], asked["mode"], asked["calls"]))
