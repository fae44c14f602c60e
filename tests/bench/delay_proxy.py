"""A TCP proxy that adds a delay: `delay_proxy.py PORT HOST:PORT MILLISECONDS` (a round trip's, half of it each way)."""

from __future__ import annotations

import asyncio
import socket
import sys
import time


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Carry bytes on, each chunk `delay` seconds after it came, in order."""
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def take() -> None:
        while data := await reader.read(1 << 16):
            chunks.put_nowait((time.monotonic() + delay, data))
        chunks.put_nowait((time.monotonic() + delay, b""))

    taking = asyncio.create_task(take())
    try:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
    except OSError:  # one side is gone
        pass
    finally:
        taking.cancel()


async def serve(port: int, host: str, target: int, delay: float) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * delay)  # the TCP handshake, which loopback hides
        far_reader, far_writer = await asyncio.open_connection(host, target)
        for side in (writer, far_writer):
            side.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(pump(reader, far_writer, delay), pump(far_reader, writer, delay))
        for side in (writer, far_writer):
            side.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    name, _, number = sys.argv[2].rpartition(":")
    asyncio.run(serve(int(sys.argv[1]), name, int(number), float(sys.argv[3]) / 2000))
