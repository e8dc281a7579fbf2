"""The asyncio process that answers RocketMQ clients: server, dispatcher, processors, and the client of our own.

The only package that imports asyncio.
"""
