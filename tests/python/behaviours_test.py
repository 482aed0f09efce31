"""What every binding does (tests/bindings/behaviours.json), with the client that blocks and the one for asyncio:
behaviours_test.py LIBRARY URL. "sqlite:" stands for a fresh file."""
import asyncio
import contextlib
import functools
import json
import secrets
import sys

from harness import PATIENCE_S, ROOT, add_test, main, new_url

import holdfast
import holdfast.aio

URL = sys.argv.pop(2)
OBJECTS = {"counter": ("expiry",), "latch": ("count", "expiry"), "barrier": ("parties", "ttl", "wait")}


class Blocking:
    """Runs each call on its own thread, since a step may start one and continue."""
    has = {"recipes"}
    open = staticmethod(holdfast.open)
    call = staticmethod(asyncio.to_thread)

    @contextlib.asynccontextmanager
    async def lock(self, client, **options):
        block = client.lock(**options)
        hold = await self.call(block.__enter__)
        try:
            yield hold
        finally:
            await self.call(block.__exit__, None, None, None)


class Asynchronous:
    has = {"cancel"}
    open = staticmethod(holdfast.aio.open)

    async def call(self, function, *arguments, **options):
        result = function(*arguments, **options)
        return await result if asyncio.iscoroutine(result) else result

    def lock(self, client, **options):
        return client.lock(**options)


class Player:
    """Plays the steps of one behaviour."""

    def __init__(self, way, url):
        self.way, self.url = way, url
        self.prefix = secrets.token_hex(4) + "/"
        self.clients, self.kept, self.lost, self.begun = {}, {}, {}, {}

    def client(self, number):
        if number not in self.clients:
            self.clients[number] = self.way.open(self.url)
        return self.clients[number]

    def prefixed(self, name):
        if isinstance(name, dict):
            return holdfast.Want(**{**name, "name": self.prefixed(name["name"])})
        return self.prefix + name if name else name

    def arguments(self, given):
        given = {key: self.kept[value["of"]].token if isinstance(value, dict) else value for key, value in given.items()}
        if "name" in given:
            given["name"] = self.prefixed(given["name"])
        if "names" in given:
            names = given["names"]
            given["names"] = [self.prefixed(name) for name in names] if isinstance(names, list) else self.prefixed(names)
        return given

    def function(self, step):
        """What the step calls, with its arguments."""
        given = self.arguments(step.get("with", {}))
        name = step["call"]
        if "hold" in step:
            return functools.partial(getattr(self.kept[step["hold"]], name), **given)
        if "." in name:  # counter.add: of an object that the client makes
            kind, name = name.split(".")
            made = {key: given.pop(key) for key in ("name", *OBJECTS[kind]) if key in given}
            return functools.partial(getattr(getattr(self.client(step["client"]), kind)(**made), name), **given)
        return functools.partial(getattr(self.client(step["client"]), name), **given)

    def keep(self, name, result):
        self.kept[name] = result
        if isinstance(result, (holdfast.Hold, holdfast.aio.Hold)):
            loop = asyncio.get_running_loop()
            self.lost[name] = event = asyncio.Event()
            result.on_lost(lambda _: loop.call_soon_threadsafe(event.set))

    def same(self, actual, expected):
        """Of an object, compares only the fields that are given."""
        if isinstance(expected, dict):
            expected = self.kept[expected["of"]].token if "of" in expected else expected
        if isinstance(expected, dict):
            return all(self.same(getattr(actual, key), value) for key, value in expected.items())
        if isinstance(expected, list):
            return len(actual) == len(expected) and all(map(self.same, actual, expected))
        return actual == expected

    async def expect(self, step, awaitable):
        try:
            result = await asyncio.wait_for(awaitable, PATIENCE_S)
        except holdfast.Error as error:
            code = "".join("_" + letter if letter.isupper() else letter for letter in type(error).__name__)[1:].upper()
            assert code == step.get("fails"), f"{step}: {error!r}"
            assert self.same(error, step.get("error", {})), f"{step}: {vars(error)}"
            return
        assert "fails" not in step, f"{step}: succeeded with {result!r}"
        if "returns" in step:
            assert self.same(result, step["returns"]), f"{step}: {result!r}"
        if "as" in step:
            self.keep(step["as"], result)

    async def run_block(self, step):
        async with self.way.lock(self.client(step["client"]), **self.arguments(step["with"])) as hold:
            self.keep(step["as"], hold)
            await self.play(step["block"])
        return hold

    async def wait_for_queue(self, name, length):
        for _ in range(PATIENCE_S * 50):
            found = await self.way.call(self.client("looks").inspect, self.prefixed(name))
            if len(found.waiters if found else ()) == length:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not {length} wait for {name}: {found}")

    async def play(self, steps):
        for step in steps:
            if "begin" in step:
                self.begun[step["begin"]] = asyncio.create_task(self.way.call(self.function(step)))
                await asyncio.sleep(0)
            elif "call" in step:
                await self.expect(step, self.way.call(self.function(step)))
            elif "block" in step:
                await self.expect(step, self.run_block(step))
            elif "end" in step:
                await self.expect(step, self.begun.pop(step["end"]))
            elif "cancel" in step:
                task = self.begun.pop(step["cancel"])
                task.cancel()
                assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
            elif "queue" in step:
                await self.wait_for_queue(step["queue"], step["of"])
            elif "lost" in step:
                await asyncio.wait_for(self.lost[step["lost"]].wait(), PATIENCE_S)
            elif "pass" in step:
                await asyncio.sleep(step["pass"])
            elif "larger" in step:
                large, small = (self.kept[name].token for name in step["larger"])
                assert large > small, f"{step}: {large}, {small}"
            else:
                raise AssertionError(f"no such step: {step}")

    async def run(self, steps):
        try:
            await self.play(steps)
            assert not self.begun, self.begun
        finally:
            for client in self.clients.values():
                await self.way.call(client.close)


def add_behaviour(way, behaviour, name):
    def run():
        url = new_url() if URL == "sqlite:" else URL
        asyncio.run(Player(way, url).run(behaviour["steps"]))

    if way.has >= set(behaviour.get("needs", ())):
        add_test(name, run)


for each in json.loads((ROOT / "tests/bindings/behaviours.json").read_text())["behaviours"]:
    add_behaviour(Blocking(), each, each["behaviour"])
    add_behaviour(Asynchronous(), each, each["behaviour"] + " (asyncio)")
main()
