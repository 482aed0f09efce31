"""A TCP proxy that disturbs connections as networks do, on the test's command.

    with Redis() as server, Proxy(server.port) as proxy:
        client = Puppet(program, server.url(port=proxy.port))
        proxy.hold("down")                    # replies wait in the network ...
        proxy.wait(lambda: proxy.held["down"] > 0)
        proxy.let_go()                        # ... and arrive late

A direction is "up" (client to server), "down" (replies) or "both". It does one thing at a time: pass, delay, hold or
drop. When a command returns, it has taken effect, also for the bytes that are under way in the proxy. The ends of
connections travel like bytes: if one side closes while a direction is held or dropped, the other side does not
notice.

part() cuts off some clients, by their addresses, and nobody else. This makes a partition, together with owner_of()
and a proxy in front of each server, if the servers know each other by the proxies' ports.

A network never leaves a hole in a stream. So a connection that lost bytes is reset as soon as its
direction passes again.

Design: one thread, over a selector. All state is protected by the lock, which the thread releases while it waits
for events. Each direction of a connection is a Flow: a queue of pieces, each with the time when it is due.
"""
import collections
import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

from servers.process import LIMIT_S, reserve_port

DIRECTIONS = {"up": ["up"], "down": ["down"], "both": ["up", "down"]}
NEVER = float("inf")
RESET = None  # a piece; b"" is the orderly end
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def owner_of(address, processes):
    """Which of these processes has the socket of this IPv4 address and port; None: none of them, or it is closed."""
    local = f"{int.from_bytes(socket.inet_aton(address[0]), 'little'):08X}:{address[1]:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    targets = {f"socket:[{words[9]}]" for words in lines if words[1] == local}
    for process in processes:
        for fd in Path(f"/proc/{process.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if os.readlink(fd) in targets:
                    return process
    return None


class Mode:
    """What happens in one direction."""

    def __init__(self, delay_s=0.0, drop=False):
        self.delay_s, self.drop = delay_s, drop  # held means delayed forever


class Trap:
    """Lets a number of requests or replies pass, and catches all that follow; several proxies may share one."""

    def __init__(self, direction, count):
        self.direction, self.left = direction, count
        self.lock, self.sprung = threading.Lock(), threading.Event()

    def catches(self, direction):
        if direction != self.direction:
            return False
        with self.lock:
            self.left -= 1
            if self.left < 0:
                self.sprung.set()
            return self.left < 0


class Flow:
    """One direction of one connection."""

    def __init__(self, direction, source, target):
        self.direction, self.source, self.target = direction, source, target
        self.pieces = collections.deque()  # [due, bytes]
        self.recent = b""  # what was sent last, to find a request that comes in pieces
        self.has_hole = self.blocked = False
        self.ended = False  # nothing more comes from the source
        self.done = False  # and nothing more goes to the target


class Connection:
    def __init__(self, client, server, address):
        self.client, self.server, self.address = client, server, address
        self.up, self.down = Flow("up", client, server), Flow("down", server, client)
        self.flows = (self.up, self.down)
        self.up.blocked = True  # until it is connected
        self.last = None  # the direction of the bytes that came last
        self.cut = None  # the event to set when its next reply has been swallowed


class Proxy:
    """Counters for the test: accepted and open (connections, ever and now); bytes (delivered), swallowed and held, by
    direction. A byte is counted before its receiver can see it."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.changed = threading.Condition()
        self.waker, self.woken = socket.socketpair()
        self.selector.register(self.woken, READ)
        self.listener = None
        self.connections = []
        self.modes = {"up": Mode(), "down": Mode()}
        self.cut_at = None  # (bytes of a request, event, how many such requests pass)
        self.hang_up = True
        self.trap = None
        self.is_parted = None  # a function of a client's address; None: nobody is
        self.accept_count = 0
        self.sent_bytes = {"up": 0, "down": 0}
        self.lost_bytes = {"up": 0, "down": 0}
        self.closing = False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.accept()
        self.thread.start()
        return self

    def __exit__(self, *_):
        with self.changed:
            self.closing = True
            self.wake()
        self.thread.join(LIMIT_S)
        self.refuse()
        self.reset()
        for thing in (self.selector, self.waker, self.woken, self.reserved):
            thing.close()

    # ---- Commands ----

    def pass_all(self):
        """Ends every disturbance. Held and delayed bytes are sent at once."""
        with self.changed:
            self.cut_at = self.trap = self.is_parted = None
            self.let_pass("both")
            self.accept()

    def delay(self, ms, direction="both"):
        with self.changed:
            self.let_pass(direction, ms / 1000)

    def drop(self, direction):
        """Swallows what goes this way; connections stay open, and new ones are accepted."""
        with self.changed:
            for flow in self.set_mode(direction, Mode(drop=True)):
                for _, piece in flow.pieces:
                    self.swallow(flow, piece)
                flow.pieces.clear()

    def blackhole(self):
        self.drop("both")

    def part(self, is_parted):
        """Swallows what goes to and from the clients whose addresses this function selects, over old connections and
        new ones, until pass_all()."""
        with self.changed:
            self.is_parted = is_parted
            for connection in self.connections:
                self.part_if_due(connection)

    def hold(self, direction="both"):
        """Keeps what goes this way until let_go()."""
        with self.changed:
            for flow in self.set_mode(direction, Mode(delay_s=NEVER)):
                for piece in flow.pieces:
                    piece[0] = NEVER

    def hold_after(self, count, direction="up", others=()):
        """Lets this many requests pass, or replies if the direction is "down", and holds everything from the next one
        on, until let_go(). Returns an event that is set when that one is held. A reply is what the server sends on a
        connection after a request; a request is what a client sends after a reply, or first of all. Bytes that it
        sends without waiting for a reply are one request. others: proxies that count together with this one."""
        trap = Trap(direction, count)
        for proxy in (self, *others):
            with proxy.changed:
                proxy.trap = trap
        return trap.sprung

    def let_go(self):
        """Delivers the held bytes in order, and stops holding."""
        with self.changed:
            for direction, mode in self.modes.items():
                if mode.delay_s == NEVER:
                    self.let_pass(direction)

    def reset(self):
        """Sends an RST to both sides of every connection."""
        with self.changed:
            for connection in list(self.connections):
                self.abort(connection)

    def refuse(self):
        """Connecting is refused from now on; the connections that exist stay."""
        with self.changed:
            if self.listener:
                self.selector.unregister(self.listener)
                self.listener.close()
                self.listener = None

    def accept(self):
        """Ends refuse()."""
        with self.changed:
            if not self.listener:
                self.listener = socket.socket()
                self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.listener.bind(("127.0.0.1", self.port))
                self.listener.listen(1000)
                self.listener.setblocking(False)
                self.selector.register(self.listener, READ)

    def drop_reply_to(self, request, after=0, hang_up=True):
        """The next request that contains these bytes, after this many others that do, reaches the server; its reply is
        swallowed (with whatever comes with it), and the client gets an RST. Returns an event that is set when that has
        happened. Requests that were sent before it on the same connection must have been answered. hang_up=False: the
        server does not notice that the client is gone. A server that speaks HTTP/2 sends something before its reply,
        and drops the requests of a client that leaves."""
        with self.changed:
            for flow in self.flows_of("up"):
                flow.recent = b""
            self.cut_at = (request.encode() if isinstance(request, str) else request, threading.Event(), after)
            self.hang_up = hang_up
            return self.cut_at[1]

    # ---- Looking ----

    @property
    def accepted(self):
        with self.changed:
            return self.accept_count

    @property
    def open(self):
        with self.changed:
            return len(self.connections)

    @property
    def bytes(self):
        with self.changed:
            return dict(self.sent_bytes)

    @property
    def swallowed(self):
        with self.changed:
            return dict(self.lost_bytes)

    @property
    def held(self):
        with self.changed:
            return {direction: sum(len(piece or b"") for flow in self.flows_of(direction)
                                   for due, piece in flow.pieces if due == NEVER)
                    for direction in ("up", "down")}

    def wait(self, condition, limit_s=LIMIT_S):
        """Waits until the condition, on this object's counters, is true."""
        with self.changed:
            assert self.changed.wait_for(condition, limit_s), "the proxy waited in vain"

    # ---- With the lock: modes ----

    def flows_of(self, direction):
        return [flow for connection in self.connections for flow in connection.flows
                if flow.direction in DIRECTIONS[direction]]

    def set_mode(self, direction, mode):
        for each in DIRECTIONS[direction]:
            self.modes[each] = mode
        self.wake()
        return self.flows_of(direction)

    def let_pass(self, direction, delay_s=0.0):
        for flow in self.set_mode(direction, Mode(delay_s)):
            for piece in flow.pieces:
                piece[0] = min(piece[0], time.monotonic() + delay_s)
        for connection in list(self.connections):
            if any(flow.has_hole and not self.modes[flow.direction].drop for flow in connection.flows):
                self.abort(connection)

    def wake(self):
        self.waker.send(b"!")

    # ---- With the lock: connections ----

    def connect(self):
        try:
            client, address = self.listener.accept()
        except OSError:  # the client left while in the queue
            return
        server = socket.socket()
        for side in (client, server):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(("127.0.0.1", self.server_port))  # reading or writing shows the result
        connection = Connection(client, server, address)
        self.part_if_due(connection)
        self.connections.append(connection)
        self.accept_count += 1
        self.look_after(connection)

    def part_if_due(self, connection):
        if self.is_parted and self.is_parted(connection.address):
            for flow in connection.flows:
                flow.pieces.clear()
                flow.has_hole = True

    def abort(self, connection):
        self.connections.remove(connection)
        for side in (connection.client, connection.server):
            self.close(side, reset=True)

    def close(self, side, reset):
        if side.fileno() < 0:
            return
        if side in self.selector.get_map():
            self.selector.unregister(side)
        if reset:
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.close()

    def look_after(self, connection):
        """Asks the selector for the events that matter now."""
        for incoming, outgoing in (connection.flows, connection.flows[::-1]):
            side = incoming.source
            if side.fileno() < 0:
                continue
            events = (0 if incoming.ended else READ) | (WRITE if outgoing.blocked else 0)
            key = self.selector.get_map().get(side)
            if key and key.events != events:
                self.selector.unregister(side)
            if events and (not key or key.events != events):
                self.selector.register(side, events, (connection, incoming, outgoing))

    # ---- With the lock: bytes ----

    def receive(self, connection, flow):
        try:
            piece = flow.source.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            piece = RESET
        flow.ended = not piece
        if piece:
            self.look_for_turn(connection, flow.direction)
        mode = self.modes[flow.direction]
        if flow is connection.down and connection.cut:
            self.cut_off(connection, flow, piece)
        elif mode.drop or flow.has_hole:
            self.swallow(flow, piece)
        else:
            flow.pieces.append([time.monotonic() + mode.delay_s, piece])

    def look_for_turn(self, connection, direction):
        """A hold that begins here does not affect earlier bytes, even if they are not delivered yet."""
        begins = (connection.last == "up") == (direction == "down")
        connection.last = direction
        if begins and self.trap and self.trap.catches(direction):
            self.trap = None
            self.modes[direction] = Mode(delay_s=NEVER)

    def swallow(self, flow, piece):
        flow.has_hole = True
        self.lost_bytes[flow.direction] += len(piece or b"")

    def cut_off(self, connection, flow, piece):
        """The reply has arrived: the client is reset, and the server sees an orderly end, so that it still executes
        everything it was sent. The server's side stays, without a reader, until it also ends."""
        self.lost_bytes["down"] += len(piece or b"")
        self.close(connection.client, reset=True)
        connection.up.ended = connection.up.done = True
        connection.up.pieces.clear()
        flow.pieces.clear()
        flow.done = flow.ended
        if self.hang_up:
            with contextlib.suppress(OSError):  # it may have gone
                connection.server.shutdown(socket.SHUT_WR)
        connection.cut.set()

    def deliver(self, connection, flow):
        """Sends what is due; False if the connection had to be reset."""
        while flow.pieces and flow.pieces[0][0] <= time.monotonic() and not flow.blocked:
            piece = flow.pieces[0][1]
            if piece is RESET:
                return False
            if flow is connection.up:
                self.look_for_request(connection, flow, piece)
            try:
                sent = flow.target.send(piece) if piece else flow.target.shutdown(socket.SHUT_WR) or 0
            except BlockingIOError:
                flow.blocked = True
                return True
            except OSError:
                return False
            self.sent_bytes[flow.direction] += sent
            flow.pieces[0][1] = piece[sent:]
            if sent == len(piece):
                flow.pieces.popleft()
                flow.done = not piece
        return True

    def look_for_request(self, connection, flow, piece):
        if not self.cut_at:
            return
        request, event, after = self.cut_at
        text = flow.recent + piece
        flow.recent = text[1 - len(request):]
        if request in text and after:
            self.cut_at = (request, event, after - 1)
        elif request in text:
            connection.cut, self.cut_at = event, None

    # ---- The thread ----

    def handle(self, key, events):
        if key.fileobj is self.woken:
            self.woken.recv(4096)
        elif key.fileobj is self.listener:
            self.connect()
        elif key.data and key.data[0] in self.connections and key.fileobj.fileno() >= 0:
            connection, incoming, outgoing = key.data
            if events & WRITE:
                outgoing.blocked = False
            if events & READ:
                self.receive(connection, incoming)

    def move(self):
        for connection in list(self.connections):
            if not all(self.deliver(connection, flow) for flow in connection.flows):
                self.abort(connection)
            elif all(flow.done for flow in connection.flows):
                self.connections.remove(connection)
                self.close(connection.client, reset=False)
                self.close(connection.server, reset=False)
            else:
                self.look_after(connection)

    def next_due(self):
        """Seconds until a piece is due; None if none is."""
        due = min((flow.pieces[0][0] for flow in self.flows_of("both") if flow.pieces and not flow.blocked),
                  default=NEVER)
        return None if due == NEVER else max(0, due - time.monotonic())

    def run(self):
        left_s = None
        while not self.closing:
            events = self.selector.select(left_s)
            with self.changed:
                for key, mask in events:
                    self.handle(key, mask)
                self.move()
                left_s = self.next_due()
                self.changed.notify_all()
