#!/usr/bin/env python3
"""The fault proxy, in front of a server that answers every line with "you said LINE"."""
import contextlib
import socket
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from servers.process import Process, reserve_port
from servers.proxy import Proxy, owner_of
from servers.suite import equal, main, test

SILENCE_S = 0.2


class Echo:
    """heard: the lines that came, of all connections; ends: "end" or "reset" of each connection that ended."""

    def __enter__(self):
        self.heard, self.ends = [], []
        self.changed = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=[self.listener.accept()[0]], daemon=True).start()

    def serve(self, client):
        end = "end"
        try:
            with client, client.makefile("rb") as lines:
                for line in lines:
                    self.note(self.heard, line.strip().decode())
                    client.sendall(b"you said " + line)
        except OSError:
            end = "reset"
        self.note(self.ends, end)

    def note(self, where, what):
        with self.changed:
            where.append(what)
            self.changed.notify_all()

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, 30), (self.heard, self.ends)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.lines = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()

    def say(self, line):
        self.socket.sendall(line.encode() + b"\n")

    def hear(self):
        """The next line; "" is the end."""
        return self.lines.readline().strip().decode()

    def hears_nothing(self):
        self.socket.settimeout(SILENCE_S)
        try:
            raise AssertionError(f"came: {self.socket.recv(100)}")
        except TimeoutError:
            self.socket.settimeout(30)

    def is_reset(self):
        try:
            raise AssertionError(f"came: {self.hear()!r}")
        except ConnectionResetError:
            pass

    def works(self, line):
        self.say(line)
        equal(self.hear(), f"you said {line}")


@contextlib.contextmanager
def setting():
    with Echo() as echo, Proxy(echo.port) as proxy, Client(proxy.port) as client:
        client.works("hello")
        yield echo, proxy, client


@test
def bytes_pass_both_ways_and_are_counted():
    with setting() as (_, proxy, client), Client(proxy.port) as other:
        other.works("good day")
        equal((proxy.accepted, proxy.open), (2, 2))
        equal(proxy.bytes, {"up": 15, "down": 33})
        equal(proxy.swallowed, {"up": 0, "down": 0})
        client.works("x" * 3000000)


@test
def some_clients_are_parted_and_no_others():
    with setting() as (echo, proxy, client), Client(proxy.port) as other:
        other.works("good day")
        parted = client.socket.getsockname()
        proxy.part(lambda address: address == parted)
        client.say("anybody?")
        client.hears_nothing()
        other.works("still here")
        assert "anybody?" not in echo.heard
        proxy.part(lambda address: address != other.socket.getsockname())
        with Client(proxy.port) as late:
            late.say("hello?")
            proxy.wait(lambda: proxy.open == 3)
            late.hears_nothing()
            proxy.pass_all()
            late.is_reset()
        client.is_reset()
        other.works("and still")
        with Client(proxy.port) as late:
            late.works("hello again")


@test
def the_owner_of_an_address_is_found():
    program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    with socket.create_server(("127.0.0.1", 0)) as listener, Process() as one, Process() as two:
        for process in (one, two):
            process.launch(["python3", "-c", program, listener.getsockname()[1]])
            with listener.accept()[0] as end:
                equal(owner_of(end.getpeername(), [one, process]), process)
                equal(owner_of(end.getpeername(), [one] if process is two else []), None)


@test
def the_end_of_a_connection_is_passed_on():
    with setting() as (echo, proxy, client):
        client.say("the last")
        client.socket.shutdown(socket.SHUT_WR)
        equal((client.hear(), client.hear()), ("you said the last", ""))
        proxy.wait(lambda: proxy.open == 0)
        echo.wait(lambda: echo.ends == ["end"])


@test("up", "down")
def what_is_delayed_comes_late_and_in_order(direction):
    with setting() as (_, proxy, client):
        start = time.monotonic()
        proxy.delay(300, direction)
        client.say("one")
        client.say("two")
        equal([client.hear(), client.hear()], ["you said one", "you said two"])
        assert time.monotonic() - start >= 0.3
        proxy.delay(1000000, direction)
        client.say("three")
        client.hears_nothing()
        proxy.pass_all()
        equal(client.hear(), "you said three")


@test
def requests_are_dropped_and_the_connection_is_reset_when_they_pass_again():
    with setting() as (echo, proxy, client):
        proxy.drop("up")
        client.say("lost")
        proxy.wait(lambda: proxy.swallowed == {"up": 5, "down": 0})
        client.hears_nothing()
        equal(echo.heard, ["hello"])
        proxy.pass_all()
        client.is_reset()
        with Client(proxy.port) as other:
            other.works("again")


@test
def replies_are_dropped_while_requests_pass():
    with setting() as (echo, proxy, client):
        proxy.drop("down")
        client.say("heard")
        echo.wait(lambda: echo.heard == ["hello", "heard"])
        proxy.wait(lambda: proxy.swallowed["down"] == 15)
        client.hears_nothing()


@test
def a_black_hole_swallows_old_connections_and_new_ones():
    with setting() as (echo, proxy, client):
        proxy.blackhole()
        client.say("lost")
        with Client(proxy.port) as other:
            other.say("lost as well")
            other.hears_nothing()
            client.hears_nothing()
            proxy.wait(lambda: proxy.open == 2 and proxy.swallowed["up"] == 18)
            equal(echo.heard, ["hello"])


@test
def nobody_learns_of_an_end_in_a_black_hole():
    with setting() as (echo, proxy, client):
        proxy.blackhole()
        client.__exit__()
        proxy.wait(lambda: proxy.flows_of("up")[0].ended)
        time.sleep(SILENCE_S)
        equal((echo.ends, proxy.open), ([], 1))
        proxy.pass_all()
        echo.wait(lambda: echo.ends == ["reset"])


@test
def what_was_held_when_a_drop_began_is_dropped():
    with setting() as (echo, proxy, client):
        proxy.hold("up")
        client.say("lost")
        proxy.wait(lambda: proxy.held["up"] == 5)
        proxy.drop("up")
        proxy.let_go()
        client.hears_nothing()
        equal((proxy.held["up"], proxy.swallowed["up"], echo.heard), (0, 5, ["hello"]))


@test
def requests_are_held_and_let_go():
    with setting() as (echo, proxy, client):
        proxy.hold("up")
        client.say("one")
        client.say("two")
        proxy.wait(lambda: proxy.held["up"] == 8)
        client.hears_nothing()
        equal(echo.heard, ["hello"])
        proxy.let_go()
        equal([client.hear(), client.hear()], ["you said one", "you said two"])
        client.works("three")


@test
def replies_are_held_and_let_go():
    with setting() as (echo, proxy, client):
        proxy.hold("down")
        client.say("one")
        proxy.wait(lambda: proxy.held["down"] > 0)
        equal(echo.heard, ["hello", "one"])
        client.hears_nothing()
        proxy.let_go()
        equal(client.hear(), "you said one")


@test
def what_is_delayed_when_a_hold_begins_is_held():
    with setting() as (_, proxy, client):
        proxy.delay(1000000, "up")
        client.say("one")
        proxy.wait(lambda: proxy.flows_of("up")[0].pieces)
        client.hears_nothing()
        proxy.hold("up")
        equal(proxy.held["up"], 4)
        proxy.let_go()
        equal(client.hear(), "you said one")


@test
def so_many_requests_pass_and_the_next_is_held():
    with setting() as (echo, proxy, client), Client(proxy.port) as other:
        held = proxy.hold_after(2)
        client.works("one")
        other.works("two")
        assert not held.is_set()
        client.say("three")
        assert held.wait(30)
        other.say("four")
        client.hears_nothing()
        other.hears_nothing()
        equal(echo.heard, ["hello", "one", "two"])
        proxy.let_go()
        equal([client.hear(), other.hear()], ["you said three", "you said four"])
        client.works("five")


@test
def so_many_replies_pass_and_the_next_is_held():
    with setting() as (echo, proxy, client):
        held = proxy.hold_after(1, "down")
        client.works("one")
        assert not held.is_set()
        client.say("two")
        assert held.wait(30)
        client.hears_nothing()
        equal(echo.heard, ["hello", "one", "two"])
        proxy.pass_all()
        equal(client.hear(), "you said two")


@test
def what_is_sent_without_waiting_for_a_reply_is_one_request():
    with setting() as (echo, proxy, client):
        held = proxy.hold_after(1)
        client.socket.sendall(b"one ")
        proxy.wait(lambda: proxy.bytes["up"] == 10)
        client.say("and a half")
        equal(client.hear(), "you said one and a half")
        assert not held.is_set()
        client.say("two")
        assert held.wait(30)
        equal(echo.heard, ["hello", "one and a half"])


@test
def proxies_count_requests_together():
    with setting() as (echo, proxy, client), Proxy(echo.port) as second, Client(second.port) as other:
        held = proxy.hold_after(1, others=[second])
        other.works("one")
        client.say("two")
        assert held.wait(30)
        other.say("three")
        second.wait(lambda: second.held["up"] == 6)
        equal(echo.heard, ["hello", "one"])


@test
def a_hold_that_has_not_begun_is_called_off():
    with setting() as (_, proxy, client):
        held = proxy.hold_after(0)
        proxy.pass_all()
        client.works("one")
        assert not held.is_set()


@test
def a_reset_reaches_both_sides():
    with setting() as (echo, proxy, client):
        proxy.reset()
        client.is_reset()
        echo.wait(lambda: echo.ends == ["reset"])
        with Client(proxy.port) as other:
            other.works("again")


@test
def who_connects_is_refused_while_connections_stay():
    with setting() as (_, proxy, client):
        proxy.refuse()
        try:
            Client(proxy.port)
            raise AssertionError("it was accepted")
        except ConnectionRefusedError:
            pass
        client.works("still here")
        proxy.accept()
        with Client(proxy.port) as other:
            other.works("again")


@test
def without_a_server_connections_are_reset():
    with reserve_port() as nobody, Proxy(nobody.getsockname()[1]) as proxy:
        try:
            with Client(proxy.port) as client:
                raise AssertionError(f"came: {client.hear()!r}")
        except ConnectionResetError:  # perhaps while it connects
            pass


@test
def the_reply_to_one_request_is_dropped_and_the_connection_reset():
    with setting() as (echo, proxy, client), Client(proxy.port) as other:
        dropped = proxy.drop_reply_to("EVAL 2")
        client.works("EVAL 1")
        other.say("EVAL 2")
        other.is_reset()
        assert dropped.wait(30)
        equal(echo.heard, ["hello", "EVAL 1", "EVAL 2"])
        echo.wait(lambda: echo.ends == ["end"])
        proxy.wait(lambda: proxy.open == 1)
        client.works("EVAL 2")


@test
def the_server_need_not_learn_that_the_client_of_a_dropped_reply_has_gone():
    with setting() as (echo, proxy, _), Client(proxy.port) as other:
        dropped = proxy.drop_reply_to("EVAL 2", hang_up=False)
        other.say("EVAL 2")
        other.is_reset()
        assert dropped.wait(30)
        equal((echo.heard, echo.ends, proxy.open), (["hello", "EVAL 2"], [], 2))


@test
def a_request_that_comes_in_pieces_is_found():
    with setting() as (echo, proxy, client):
        proxy.drop_reply_to(b"EVAL 2")
        client.socket.sendall(b"a long EV")
        proxy.wait(lambda: proxy.bytes["up"] == 15)
        client.say("AL 2")
        client.is_reset()
        echo.wait(lambda: echo.heard == ["hello", "a long EVAL 2"])


@test
def many_connections_at_once_are_served():
    with setting() as (_, proxy, client):
        clients = [Client(proxy.port) for _ in range(100)]
        for number, other in enumerate(clients):
            other.say(f"number {number}")
        for number, other in enumerate(clients):
            equal(other.hear(), f"you said number {number}")
            other.__exit__()
        proxy.wait(lambda: proxy.open == 1)
        client.works("the first one")


main()
