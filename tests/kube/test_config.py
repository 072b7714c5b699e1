"""Kubeconfig, service accounts and credentials."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from karpenter.base.clock import ManualClock, format_time
from karpenter.kube.config import (
    ClientConfig,
    ConfigError,
    Credentials,
    ExecPlugin,
    in_cluster,
    load_config,
    run_plugin,
)


def document(**user: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://host:6443/"}}],
        "users": [{"name": "u", "user": user}],
    }


def write(path: Path, body: Any) -> str:
    path.write_text(yaml.safe_dump(body), "utf-8")
    return str(path)


def test_one_file(tmp_path: Path) -> None:
    """Server, token and namespace come from the current context; nothing secret is shown."""
    config = load_config(write(tmp_path / "a", document(token="s3cret")), environ={})
    assert (config.server, config.token, config.namespace) == ("https://host:6443", "s3cret", "ns")
    assert "s3cret" not in repr(config)


def test_files_merge_and_the_first_wins(tmp_path: Path) -> None:
    """KUBECONFIG may name several; missing ones are skipped, the first to name a thing wins."""
    first = {"users": [{"name": "u", "user": {"token": "first"}}]}
    paths = [
        str(tmp_path / "none"),
        write(tmp_path / "a", first),
        write(tmp_path / "b", document(token="second")),
    ]
    config = load_config(None, environ={"KUBECONFIG": ":".join(paths)})
    assert config.token == "first"


def test_authority_and_certificates_from_data_and_files(tmp_path: Path) -> None:
    """`-data` is base64 (line breaks allowed); paths are relative to the kubeconfig's folder."""
    (tmp_path / "ca.pem").write_bytes(b"CA")
    data = base64.b64encode(b"KEY" * 40).decode()
    broken = data[:60] + "\n" + data[60:]
    body = document(**{"client-certificate-data": "Q0VSVA==", "client-key-data": broken})
    body["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    config = load_config(write(tmp_path / "a", body), environ={})
    assert (config.ca_data, config.client_cert, config.client_key) == (b"CA", b"CERT", b"KEY" * 40)


def _with(cluster: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    body = {**document(token="t"), **top}
    body["current-context"] = top.get("current", "c")
    if cluster is not None:
        body["clusters"] = [{"name": "k", "cluster": cluster}]
    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "not a kubeconfig"),
        (_with(current="x"), "'x' is not among the contexts"),
        (_with(clusters=[]), "names cluster 'k'"),
        (_with(users=[]), "names user 'u'"),
        (_with(users=["u"]), r"users\[0\]"),
        (_with(users="u"), "users is not a list"),
        (_with({"server": "host:6443"}), "want https://host:port"),
        (_with({"server": "https://h", "insecure-skip-tls-verify": True}), "certificate-authority"),
        (_with({"server": "https://h", "certificate-authority-data": "%"}), "certificate-authority-data"),
        (_with({"server": "https://h", "certificate-authority": "none"}), "none"),
        (document(username="a", password="b"), "username is not supported"),
        (document(**{"as": "admin"}), "impersonation"),
        (document(**{"client-certificate-data": "Q0VSVA=="}), "no client-key"),
        (document(exec={"args": []}), "exec has no command"),
        (document(exec={"command": "x", "env": [{"name": "A"}]}), "exec env"),
    ],
)
def test_errors_name_file_and_field(tmp_path: Path, body: Any, message: str) -> None:
    """What cannot be used is refused with the file's path and the field at fault."""
    path = write(tmp_path / "config", body)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path, environ={})
    assert path in str(caught.value)


def test_nothing_to_go_by() -> None:
    """Without any configuration the message lists the ways to give one."""
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load_config(None, environ={"HOME": "/nonexistent"})


def test_service_account_token_is_read_again(tmp_path: Path) -> None:
    """In a cluster the rotated token is picked up within a minute."""
    for name, text in (("ca.crt", "CA"), ("namespace", "karpenter\n"), ("token", "one")):
        (tmp_path / name).write_text(text, "utf-8")
    config = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "karpenter")

    async def main() -> list[str | None]:
        clock = ManualClock()
        credentials = Credentials(config, clock)
        tokens = [await credentials.token()]
        (tmp_path / "token").write_text("two", "utf-8")
        for seconds in (30, 31):
            clock.advance(seconds)
            tokens.append(await credentials.token())
        return tokens

    assert asyncio.run(main()) == ["one", "one", "two"]


def test_exec_credentials_are_kept_until_they_run_out(tmp_path: Path) -> None:
    """The plugin runs once per lifetime; a refused token makes it run again; new certificates are noticed."""
    path = write(tmp_path / "a", document(exec={"command": "bin/get", "env": [{"name": "A", "value": "b"}]}))
    config = load_config(path, environ={"PATH": "/bin"})
    assert config.exec_plugin is not None
    assert config.exec_plugin.command == str(tmp_path / "bin/get")
    clock, calls = ManualClock(), []

    async def run(plugin: ExecPlugin) -> bytes:
        calls.append(plugin)
        status = {
            "token": f"t{len(calls)}",
            "expirationTimestamp": format_time(clock.now() + 900),
            "clientCertificateData": "CERT" if len(calls) < 3 else "NEW",
            "clientKeyData": "KEY",
        }
        return json.dumps({"status": status}).encode()

    async def main() -> list[tuple[str | None, int]]:
        credentials, seen = Credentials(config, clock, run), []
        for seconds, refused in ((0, False), (800, False), (60, False), (0, True)):
            clock.advance(seconds)
            if refused:
                credentials.invalidate()
            seen.append((await credentials.token(), credentials.version))
        return seen

    assert asyncio.run(main()) == [("t1", 1), ("t1", 1), ("t2", 1), ("t3", 2)]


@pytest.mark.parametrize(
    "output", [b"", b"[]", b'{"status":{}}', b'{"status":{"clientCertificateData":"c"}}']
)
def test_a_plugin_that_prints_nonsense(output: bytes) -> None:
    """Its output is refused, naming the plugin and not the output."""
    config = load_config_with(ExecPlugin(command="get"))

    async def run(plugin: ExecPlugin) -> bytes:
        return output

    with pytest.raises(ConfigError, match="exec plugin get"):
        asyncio.run(Credentials(config, ManualClock(), run).token())


def load_config_with(plugin: ExecPlugin) -> Any:
    return ClientConfig(server="https://h", exec_plugin=plugin)


def test_real_plugins_get_their_environment(tmp_path: Path) -> None:
    """A plugin sees what it inherits, what is added, and the protocol's own variable; failures are told."""
    script = ExecPlugin(
        command="/bin/sh",
        args=("-c", 'echo "$A$B$KUBERNETES_EXEC_INFO"'),
        env=(("B", "2"),),
        environ={"A": "1"},
    )
    assert asyncio.run(run_plugin(script)).startswith(b'12{"apiVersion"')
    with pytest.raises(ConfigError, match="code 3"):
        asyncio.run(run_plugin(ExecPlugin(command="/bin/sh", args=("-c", "exit 3"))))
    with pytest.raises(ConfigError, match="installed"):
        asyncio.run(run_plugin(ExecPlugin(command=str(tmp_path / "none"))))
