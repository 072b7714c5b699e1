"""Decoding protobuf bodies, against an encoder written here from the wire format."""

from typing import Any

import pytest

from karpenter.embedded import protobuf
from karpenter.embedded.errors import StatusError
from karpenter.testing.embeddedapi import Api


def varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    type_meta = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, type_meta) + field(2, message)


def test_a_namespace() -> None:
    """Name and labels."""
    label = field(1, "team") + field(2, "a")
    meta = field(1, "room") + field(2, "") + field(11, label)
    body = envelope("v1", "Namespace", field(1, meta) + field(2, b"") + field(3, b""))
    assert protobuf.decode(body) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "room", "labels": {"team": "a"}},
        "spec": {},
        "status": {},
    }


def test_numbers_quantities_and_inlined_messages() -> None:
    """Negative numbers, quantities in maps, int-or-string, and a volume's inlined source."""
    entry = field(1, "cpu") + field(2, field(1, "500m"))
    probe_port = field(1, 0) + field(2, 8080)
    http = field(1, "/ok") + field(2, probe_port)
    probe = field(1, field(2, http)) + field(2, -5)
    container = field(1, "app") + field(8, field(2, entry)) + field(10, probe)
    volume = field(1, "v") + field(2, field(1, field(1, "/host")))
    spec = field(1, volume) + field(2, container)
    pod = protobuf.decode(envelope("v1", "Pod", field(2, spec)))
    [made] = pod["spec"]["containers"]
    assert made["resources"]["requests"] == {"cpu": "500m"}
    assert made["livenessProbe"] == {"httpGet": {"path": "/ok", "port": 8080}, "initialDelaySeconds": -5}
    assert pod["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/host"}}]


def test_delete_options_over_the_wire() -> None:
    """kubectl drain without evictions sends these."""
    api = Api()
    api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    body = envelope("v1", "DeleteOptions", field(1, 0) + field(4, "Orphan"))
    path = "/api/v1/namespaces/default/configmaps/c"
    assert api.call("DELETE", path, body, content_type=protobuf.MEDIA_TYPE).code == 200
    assert api.get(path).body["metadata"]["finalizers"] == ["orphan"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{}", 400, "does not start with"),
        (b"k8s\x00" + b"\xff\xff\xff", 400, "not valid protobuf"),
        (envelope("v1", "Namespace", b"\x0a\x50ab"), 400, "not valid protobuf"),
        (envelope("v1", "Gadget", b""), 415, "v1, Kind=Gadget are not supported"),
        (envelope("v1", "Namespace", field(1, 5)), 400, "a message was expected"),
    ],
)
def test_malformed_bodies(body: bytes, code: int, words: str) -> None:
    """400 when broken, 415 when unknown, never a crash."""
    with pytest.raises(StatusError) as caught:
        protobuf.decode(body)
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_cut_off_bodies_are_refused_or_partial(length: int) -> None:
    """A truncated body gives an error or a smaller object."""
    body = envelope("v1", "Namespace", field(1, field(1, "a-rather-long-name-for-a-namespace")))
    code = 0
    result: Any = {}
    try:
        result = protobuf.decode(body[:length])
    except StatusError as error:
        code = error.code
    assert code in (0, 400, 415)
    assert isinstance(result, dict)
