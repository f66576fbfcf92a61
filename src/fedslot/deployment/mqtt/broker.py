"""A connection to an MQTT broker that comes back by itself, for the PS and for devices.

Sessions begin clean and end with the connection: a broker keeps nothing for somebody who was away, so that no message
of an old frame is delivered later.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from fedslot.deployment.mqtt.chunks import PACKET, Assembler, is_chunk, split
from fedslot.deployment.screening import Refusal
from fedslot.support.errors import InputError, RefusedError

KEEPALIVE = 30  # seconds; a device that vanishes without a word is offline after one and a half of these
FIRST_RETRY, LAST_RETRY = 0.2, 5.0  # seconds between attempts to connect again
ANSWER = 10.0  # seconds that a broker has to answer
BRIEF, MOST_BRIEF = 5.0, 10  # seconds of a brief connection, and how many in a row are enough
PORTS = {"mqtt": 1883, "mqtts": 8883}
CHUNKED = ("/model", "/update")  # ends of the topics of large messages
MOST_CHUNKED = 1 << 30  # bytes of a message in chunks, where nothing else is known
logger = getLogger(__name__)

OnMessage = Callable[[str, bytes, bool], None]
"""Takes the topic, the content, and whether the message was retained."""


@dataclass(frozen=True)
class Broker:
    """The address of a broker, and the files for TLS.

    url: `mqtt://HOST:PORT`, or `mqtts://HOST:PORT` for TLS. The ports are 1883 and 8883 unless given.
    ca: certificates of the authorities that may certify the broker; by default those of the system.
    cert, key: one's own certificate and its key. Both may have `{ue}` for the number of the UE.
    """

    url: str
    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            more = parts.path.strip("/") or parts.query or parts.username
            if parts.scheme not in PORTS or not parts.hostname or more or parts.port == 0:
                raise ValueError
        except ValueError:
            raise InputError("broker", self.url, "mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS") from None
        if (self.cert is None) != (self.key is None):
            raise InputError("cert", str(self.cert), "given together with its key")
        if not self.tls and (self.ca or self.cert):
            raise InputError("broker", self.url, "mqtts://HOST:PORT where certificates are given")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "mqtts"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port or PORTS[parts.scheme]

    def of(self, ue: int) -> Broker:
        """Return the same broker with the certificate of a UE."""
        own = {name: str(path).replace("{ue}", str(ue)) for name in ("cert", "key") if (path := getattr(self, name))}
        return Broker(self.url, self.ca, **own)

    def context(self) -> ssl.SSLContext:
        """Return the settings of TLS; files that cannot be used are refused."""
        files = {name: str(file) for name in ("ca", "cert", "key") if (file := getattr(self, name)) is not None}
        for name, file in files.items():
            if not Path(file).is_file():
                raise InputError(name, file, "a file in PEM format")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None and self.key is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise RefusedError(f"{', '.join(files.values())} cannot be used for TLS ({_why(error)})") from None
        return context


class Connection:
    """A connection to a broker.

    subscriptions: topics to hear, each with whether retained messages are wanted.
    on_message: called in the connection's own thread, and must be quick.
    on_up, on_lost: called whenever the connection is there (again), and when it is lost.
    on_failure: called with a line if it cannot go on.
    name: of this side, for the log. will: topic and content of the last will, which is retained.
    most_bytes: messages that are larger are not delivered by the broker; None for any.
    chunked: those of the subscriptions whose messages may come in chunks.
    """

    def __init__(
        self,
        broker: Broker,
        subscriptions: Sequence[tuple[str, bool]],
        on_message: OnMessage,
        *,
        on_up: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        on_failure: Callable[[str], None] = lambda line: None,
        name: str = "",
        will: tuple[str, bytes] | None = None,
        most_bytes: int | None = None,
        chunked: Sequence[str] = (),
    ) -> None:
        self.assembler = Assembler(MOST_CHUNKED if most_bytes is None else most_bytes)
        subscriptions = [*subscriptions, *((f"{topic}/+", kept) for topic, kept in subscriptions if topic in chunked)]
        self._who = f"{name}: " if name else ""
        self.broker, self._subscriptions, self._most_bytes = broker, list(subscriptions), most_bytes
        self._on_message, self._on_up, self._on_lost, self._on_failure = on_message, on_up, on_lost, on_failure
        self._refused = 0  # chunks
        self.connections = 0  # number of times that the connection was made
        self.largest: int | None = None  # bytes of the largest message that the broker takes; None if it does not say
        self.up = threading.Event()  # whether the connection is there now
        self._changed, self._failure = threading.Event(), ""
        self._sent: dict[int, str] = {}  # messages that the broker has not acknowledged yet
        self._since, self._brief = 0.0, 0  # when the connection was made, and brief ones before it
        client = self._client = PahoClient(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        client.reconnect_delay_set(FIRST_RETRY, LAST_RETRY)  # type: ignore[arg-type]
        client.connect_timeout = ANSWER
        if broker.tls:
            client.tls_set_context(broker.context())
        if will is not None:
            client.will_set(*will, qos=1, retain=True)
        client.on_connect, client.on_disconnect = self._connected, self._disconnected
        client.on_subscribe, client.on_publish = self._subscribed, self._published
        client.on_message, client.on_socket_open = self._message, _without_delay

    def open(self, wait: float) -> None:
        """Connect; a broker that does not listen yet is waited for, one that turns us away is not."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0
        if self._most_bytes is not None:
            properties.MaximumPacketSize = self._most_bytes
        until, warned = time.monotonic() + wait, False
        while True:
            try:
                self._client.connect(*self.broker.address, KEEPALIVE, clean_start=True, properties=properties)
                break
            except ssl.SSLError as error:
                raise RefusedError(f"{self.broker.url}: TLS failed ({_why(error)})") from None
            except OSError as error:
                if time.monotonic() >= until or isinstance(error, socket.gaierror):
                    advice = "is a broker running there? On a laptop: mosquitto -p 1883"
                    raise RefusedError(f"{self.broker.url} cannot be reached ({_why(error)}); {advice}") from None
                if not warned:
                    logger.warning("%swaiting for the broker at %s", self._who, self.broker.url)
                warned = True
                time.sleep(FIRST_RETRY)
        self._client.loop_start()
        self._changed.wait(ANSWER)
        if not self.up.is_set():
            self.close()
            raise RefusedError(f"{self.broker.url}: {self._failure or 'the broker does not answer'}")

    def publish(self, topic: str, content: bytes, *, qos: int = 1, retain: bool = False, expires: int = 0) -> bool:
        """Send a message, if the connection is there; return whether it is. expires: seconds; 0 for never."""
        if not self.up.is_set():
            return False
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if expires:
            properties.MessageExpiryInterval = expires
        packets = {topic: content}
        if self.largest is not None and len(content) + PACKET > self.largest and topic.endswith(CHUNKED):
            packets = {f"{topic}/{number}": chunk for number, chunk in enumerate(split(content, self.largest))}
        for where, packet in packets.items():
            done = self._client.publish(where, packet, qos, retain, properties)
            if qos:
                self._sent[done.mid] = f"{where} with {len(packet)} bytes"
        return True

    def close(self, last: tuple[str, bytes] | None = None) -> None:
        """Disconnect without the last will, after a retained message in its place."""
        was_up = self.up.is_set()
        self.up.clear()  # nothing else is sent from now on
        if last is not None and was_up:
            done = self._client.publish(*last, qos=1, retain=True)
            try:
                done.wait_for_publish(ANSWER)
            except (RuntimeError, ValueError):  # the connection broke
                logger.debug("the last message could not be sent")
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, client: PahoClient, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            return self._fail(f"the broker turned us away ({reason})")
        self.largest = getattr(properties, "MaximumPacketSize", None)
        # with `retainAsPublished`, a retained message is known as such even if it is new
        options = [
            (topic, SubscribeOptions(qos=1, retainAsPublished=True, retainHandling=0 if retained else 2))
            for topic, retained in self._subscriptions
        ]
        if options:
            client.subscribe(options)
        else:
            self._ready()

    def _subscribed(self, client: PahoClient, data: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            return self._fail("the broker does not allow us to subscribe; see its access control list")
        self._ready()

    def _ready(self) -> None:
        self._sent.clear()
        if self.connections:
            logger.warning("%sconnected again to %s", self._who, self.broker.url)
        elif self._who:
            logger.info("%sconnected to %s", self._who, self.broker.url)
        self._since = time.monotonic()
        self.connections += 1
        self.up.set()
        self._changed.set()
        self._safely(self._on_up)

    def _disconnected(self, client: PahoClient, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        was_up = self.up.is_set()
        self.up.clear()
        if was_up:
            self._safely(self._on_lost)
            self._brief = self._brief + 1 if time.monotonic() - self._since < BRIEF else 0
        if self._brief >= MOST_BRIEF:  # brokers do not tell, but two clients of one name displace each other for ever
            self._fail("the connection is lost again and again; is another client here under the same name?")
            client.disconnect()
        elif was_up:
            line = "%sthe connection to %s is lost (%s); connecting again"
            logger.warning(line, self._who, self.broker.url, reason)
        elif not self._changed.is_set():
            self._fail("the broker closed the connection; does it want TLS, or another certificate?")

    def _published(self, client: PahoClient, data: Any, mid: int, reason: Any, properties: Any) -> None:
        what = self._sent.pop(mid, "a message")
        if reason.is_failure:
            self._fail(f"the broker refused {what} ({reason}); see its access control list and limits")

    def _message(self, client: PahoClient, data: Any, message: Any) -> None:
        self._safely(self._take, message.topic, message.payload, bool(message.retain))

    def _take(self, topic: str, content: bytes, retained: bool) -> None:
        """Hand over a message, of one in chunks the whole once it is there."""
        if not is_chunk(topic):
            return self._on_message(topic, content, retained)
        try:
            whole = self.assembler.add(topic, content)
        except Refusal as refusal:
            self._refused += 1
            if str(self._refused).strip("0") == "1":  # the first, the tenth, ..., so that nobody can fill the log
                logger.warning("%s%s refused (%s)", self._who, topic, refusal)
            return
        if whole is not None:
            self._on_message(*whole, retained)

    def _safely(self, call: Callable[..., None], *arguments: object) -> None:
        """Call back without letting an error end the connection's thread."""
        try:
            call(*arguments)
        except Exception as error:
            logger.exception("unexpected")
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, line: str) -> None:
        self._failure = self._failure or line
        self._changed.set()
        self._on_failure(f"{self.broker.url}: {line}")


def _without_delay(client: PahoClient, data: Any, connection: Any) -> None:
    """Send small messages at once (TCP_NODELAY): the system would collect them for up to 40 ms."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.strerror or str(error) or type(error).__name__
