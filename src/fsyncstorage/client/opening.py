"""Opens the commit channel, in a thread that then reads it."""

import threading

from .stream import open_stream


def opening(loop, name, *server):
    """A future of `loop` for the Stream, or for `Lost`."""
    future = loop.create_future()

    def tell(stream, error):
        if future.done():  # nobody waits for it any more
            if stream is not None:
                stream.close('the connection has ended')
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(stream)

    def run():
        stream = error = None
        try:
            stream = open_stream(*server)
        except Exception as reason:
            error = reason
        try:
            loop.call_soon_threadsafe(tell, stream, error)
        except RuntimeError:  # the loop is closed
            if stream is not None:
                stream.end('the client is closed')
        if stream is not None:
            stream.read_in_background()

    threading.Thread(
        target=run, daemon=True, name=f'{name} commit channel').start()
    return future
