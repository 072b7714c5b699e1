"""How to reach an API server and prove who we are: kubeconfig files, exec plugins, service accounts.

The environment is handed in. Files are read when they are needed, tokens again when they may have changed;
nothing secret is put into messages.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from karpenter.base.clock import Clock
from karpenter.base.timestamps import parse_time

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_FILE_SECONDS = 60.0  # projected tokens are rotated; client-go reads them again once a minute
_EXEC_MARGIN_SECONDS = 60.0
_EXEC_TIMEOUT_SECONDS = 60.0


_UNSUPPORTED = {
    "username": "use a token, a client certificate or an exec plugin",
    "auth-provider": "Kubernetes removed it: use an exec plugin",
    "as": "impersonation would be dropped silently: use credentials of that user",
}


class ConfigError(Exception):
    """The kubeconfig cannot be used; the message names file, field and fix."""


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A command that prints credentials (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    environ: Mapping[str, str] = {}
    """What it inherits; `env` is added."""

    def __repr__(self) -> str:
        return f"ExecPlugin({self.command!r})"  # the environment may hold secrets

    api_version: str = "client.authentication.k8s.io/v1"


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, whom we trust, and how we authenticate."""

    server: str
    ca_data: bytes | None = None
    """PEM; None: the system's authorities."""
    tls_server_name: str | None = None
    client_cert: bytes | None = None
    client_key: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    exec_plugin: ExecPlugin | None = None
    proxy_url: str | None = None
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"ClientConfig({self.server!r})"  # the rest is secret


def load_config(
    kubeconfig: str | None, *, environ: Mapping[str, str], context: str | None = None
) -> ClientConfig:
    """Return what `kubeconfig` says, else $KUBECONFIG, else the service account, else ~/.kube/config.

    Raises:
        ConfigError: when there is none, or it cannot be used.
    """
    if kubeconfig:
        return _from_files([Path(kubeconfig)], context, environ)
    paths = [Path(path) for path in environ.get("KUBECONFIG", "").split(":") if path]
    if paths:
        return _from_files(paths, context, environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    home = Path(environ.get("HOME", "/")) / ".kube" / "config"
    if home.exists():
        return _from_files([home], context, environ)
    raise ConfigError("no kubeconfig: give --kubeconfig, set KUBECONFIG, or run in a cluster")


def in_cluster(environ: Mapping[str, str], folder: Path = _SERVICE_ACCOUNT) -> ClientConfig:
    """Return the configuration of a pod's service account.

    Raises:
        ConfigError: when the account's files are missing.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        authority = (folder / "ca.crt").read_bytes()
        namespace = (folder / "namespace").read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"service account: {error}; is automountServiceAccountToken off?") from error
    shown = f"[{host}]" if ":" in host else host
    return ClientConfig(
        server=f"https://{shown}:{port}",
        ca_data=authority,
        token_file=folder / "token",
        namespace=namespace,
    )


def _from_files(paths: list[Path], context: str | None, environ: Mapping[str, str]) -> ClientConfig:
    """Merge the files as kubectl does (the first to name a thing wins) and resolve one context."""
    merged: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context or ""
    found = False
    for path in paths:
        document = _read(path)
        if document is None:
            continue
        found = True
        current = current or str(document.get("current-context") or "")
        for section, entries in merged.items():
            for name, body in _entries(path, document, section):
                entries.setdefault(name, (body, path.parent))
    shown = ":".join(map(str, paths))
    if not found:
        raise ConfigError(f"{shown}: no such file")
    if current not in merged["contexts"]:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        raise ConfigError(f"{shown}: current-context {current!r} is not among the contexts ({known})")
    chosen, _ = merged["contexts"][current]
    cluster_name, user_name = str(chosen.get("cluster")), str(chosen.get("user"))
    if cluster_name not in merged["clusters"]:
        raise ConfigError(f"{shown}: context {current!r} names cluster {cluster_name!r}, which is not there")
    cluster, cluster_dir = merged["clusters"][cluster_name]
    if chosen.get("user") and user_name not in merged["users"]:
        raise ConfigError(f"{shown}: context {current!r} names user {user_name!r}, which is not there")
    user, user_dir = merged["users"].get(user_name, ({}, Path()))
    return _resolve(shown, chosen, cluster, cluster_dir, user, user_dir, environ)


def _entries(path: Path, document: dict[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the named bodies of one section, e.g. of `clusters` the name and `cluster` of each."""
    field = section.removesuffix("s")
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise ConfigError(f"{path}: {section} is not a list")
    for number, entry in enumerate(listed):
        body = (entry.get(field) or {}) if isinstance(entry, dict) else None
        if not isinstance(body, dict) or not entry.get("name"):
            raise ConfigError(f"{path}: {section}[{number}] is not a mapping with name and {field}")
        yield str(entry["name"]), body


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not a kubeconfig (want a mapping with clusters, users, contexts)")
    return document


def _resolve(
    shown: str,
    context: dict[str, Any],
    cluster: dict[str, Any],
    cluster_dir: Path,
    user: dict[str, Any],
    user_dir: Path,
    environ: Mapping[str, str],
) -> ClientConfig:
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{shown}: cluster server is {server!r}: want https://host:port")
    if cluster.get("insecure-skip-tls-verify"):
        raise ConfigError(
            f"{shown}: insecure-skip-tls-verify is not supported: give certificate-authority instead"
        )
    for field, fix in _UNSUPPORTED.items():
        if user.get(field):
            raise ConfigError(f"{shown}: user field {field} is not supported: {fix}")
    certificate = _data(shown, user, "client-certificate", user_dir)
    key = _data(shown, user, "client-key", user_dir)
    if (certificate is None) is not (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise ConfigError(f"{shown}: user has no {missing}: a certificate and its key go together")
    plugin = user.get("exec")
    token_file = user.get("tokenFile")
    return ClientConfig(
        server=server.rstrip("/"),
        ca_data=_data(shown, cluster, "certificate-authority", cluster_dir),
        tls_server_name=cluster.get("tls-server-name"),
        client_cert=certificate,
        client_key=key,
        token=user.get("token"),
        token_file=user_dir / token_file if token_file else None,
        exec_plugin=_plugin(shown, plugin, user_dir, environ) if plugin else None,
        proxy_url=cluster.get("proxy-url"),
        namespace=str(context.get("namespace") or "default"),
    )


def _data(shown: str, body: dict[str, Any], field: str, folder: Path) -> bytes | None:
    """Return `FIELD-data` (base64), or the contents of the file `FIELD`, or None."""
    if body.get(f"{field}-data"):
        try:
            return base64.b64decode("".join(str(body[f"{field}-data"]).split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{shown}: {field}-data is not base64") from error
    if body.get(field):
        try:
            return (folder / str(body[field])).read_bytes()
        except OSError as error:
            raise ConfigError(f"{shown}: {field}: {error}") from error
    return None


def _plugin(shown: str, plugin: Any, folder: Path, environ: Mapping[str, str]) -> ExecPlugin:
    """Return the plugin; a command that is a relative path is one from the kubeconfig's folder."""
    command = str(plugin.get("command") or "") if isinstance(plugin, dict) else ""
    if not command:
        raise ConfigError(f"{shown}: user exec has no command: name the program that prints credentials")
    if "/" in command and not command.startswith("/"):
        command = str((folder / command).absolute())
    try:
        own = [(str(entry["name"]), str(entry["value"])) for entry in plugin.get("env") or ()]
    except (TypeError, KeyError) as error:
        raise ConfigError(f"{shown}: user exec env: every entry needs name and value") from error
    return ExecPlugin(
        command=command,
        args=tuple(map(str, plugin.get("args") or ())),
        env=tuple(own),
        environ=environ,
        api_version=str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1"),
    )


class Credentials:
    """Bearer tokens, fetched when they are needed and again when they may have run out."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        run: "Callable[[ExecPlugin], Awaitable[bytes]] | None" = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._run = run or run_plugin
        self._token = config.token
        # A token file wins over a token, as in client-go.
        self._fixed = config.token is not None and config.token_file is None
        self._valid_until = float("inf") if self._fixed else 0.0
        self._lock = asyncio.Lock()
        self.client_cert = config.client_cert
        self.client_key = config.client_key
        self.version = 0
        """Rises when the client certificate changes, so that connections are made anew."""

    async def token(self) -> str | None:
        """Return the bearer token to send, if there is one.

        Raises:
            ConfigError: when a token file or plugin fails.
        """
        if self._clock.now() < self._valid_until:
            return self._token
        async with self._lock:
            if self._clock.now() >= self._valid_until:
                await self._refresh()
        return self._token

    def invalidate(self) -> None:
        """Fetch anew next time: the server refused the token."""
        if not self._fixed:
            self._valid_until = 0.0

    async def _refresh(self) -> None:
        if self._config.token_file is not None:
            try:
                self._token = self._config.token_file.read_text("utf-8").strip()
            except OSError as error:
                raise ConfigError(f"tokenFile: {error}") from error
            self._valid_until = self._clock.now() + _TOKEN_FILE_SECONDS
        elif self._config.exec_plugin is not None:
            self._take(self._config.exec_plugin, await self._run(self._config.exec_plugin))
        else:
            self._valid_until = float("inf")

    def _take(self, plugin: ExecPlugin, output: bytes) -> None:
        try:
            status = json.loads(output)["status"]
            expiry = status.get("expirationTimestamp")
            until = parse_time(expiry) - _EXEC_MARGIN_SECONDS if expiry else float("inf")
            token, certificate = status.get("token"), status.get("clientCertificateData")
            key = status["clientKeyData"] if certificate else None
            if not token and not certificate:
                raise ValueError("neither token nor certificate")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"exec plugin {plugin.command}: did not print a usable ExecCredential"
            ) from error
        self._token = token
        if certificate and key:
            pair = (str(certificate).encode(), str(key).encode())
            if pair != (self.client_cert, self.client_key):
                self.client_cert, self.client_key = pair
                self.version += 1
        self._valid_until = until


async def run_plugin(plugin: ExecPlugin) -> bytes:
    """Run an exec plugin and return what it prints.

    Raises:
        ConfigError: when it cannot be started, fails, or takes longer than a minute.
    """
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {**plugin.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigError(f"exec plugin {plugin.command}: {error}; is it installed and on PATH?") from error
    try:
        async with asyncio.timeout(_EXEC_TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"exec plugin {plugin.command}: gave no answer within a minute") from error
    finally:
        if process.returncode is None:  # too slow, or we were cancelled
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(f"exec plugin {plugin.command}: ended with code {process.returncode}")
    return output
