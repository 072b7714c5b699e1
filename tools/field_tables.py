"""Derive the field tables of the built-in kinds from the Go modules that define them.

Usage: python tools/field_tables.py MODULE_ROOT > src/karpenter/embedded/fields.json

MODULE_ROOT holds k8s.io/{api,apimachinery,apiextensions-apiserver}@VERSION, as `go mod download` leaves
them. Only facts are taken: names, types, protobuf numbers, merge keys; no prose. For each struct:

    field: [number, type, shape, flags, list type, keys, strategic strategy, strategic key]

with flags 1 (required) + 2 (a pointer in Go, so that zero differs from absent), shape "" (one), "*" (list)
or "m" (map by string), and inlined structs under the name "+TYPE".
"""

import json
import re
import sys
from pathlib import Path

PACKAGES = {
    "meta.v1": "apimachinery@*/pkg/apis/meta/v1/types.go",
    "core.v1": "api@*/core/v1/types.go",
    "apps.v1": "api@*/apps/v1/types.go",
    "batch.v1": "api@*/batch/v1/types.go",
    "policy.v1": "api@*/policy/v1/types.go",
    "storage.v1": "api@*/storage/v1/types.go",
    "coordination.v1": "api@*/coordination/v1/types.go",
    "scheduling.v1": "api@*/scheduling/v1/types.go",
    "autoscaling.v1": "api@*/autoscaling/v1/types.go",
    "autoscaling.v2": "api@*/autoscaling/v2/types.go",
    "rbac.v1": "api@*/rbac/v1/types.go",
    "networking.v1": "api@*/networking/v1/types.go",
    "discovery.v1": "api@*/discovery/v1/types.go",
    "resource.v1": "api@*/resource/v1/types.go",
    "node.v1": "api@*/node/v1/types.go",
    "authorization.v1": "api@*/authorization/v1/types.go",
    "authentication.v1": "api@*/authentication/v1/types.go",
    "apiextensions.v1": "apiextensions-apiserver@*/pkg/apis/apiextensions/v1/types.go",
    "apiextensions.v1.schema": "apiextensions-apiserver@*/pkg/apis/apiextensions/v1/types_jsonschema.go",
}
ALIASES = {"v1": "core.v1", "corev1": "core.v1", "metav1": "meta.v1", "apiv1": "core.v1", "api": "core.v1"}
PRIMITIVE = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "int": "int64",
    "uint8": "int32",
    "byte": "bytes",
    "float64": "double",
    "types.UID": "string",
    "types.NodeName": "string",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "raw",
    "runtime.Object": "raw",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "microtime",
    "meta.v1.Duration": "duration",
    "meta.v1.FieldsV1": "raw",
    "apiextensions.v1.JSON": "any",
    "apiextensions.v1.JSONSchemaPropsOrBool": "any",
    "apiextensions.v1.JSONSchemaPropsOrArray": "any",
    "apiextensions.v1.JSONSchemaPropsOrStringArray": "any",
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^type (\w+) (string|int32|bool|map\[.*|\[\].*)$", re.MULTILINE)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`([^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')


def main(root: Path) -> None:
    """Print the tables of all packages."""
    sources: dict[str, str] = {}
    for package, pattern in PACKAGES.items():
        path = next(iter(sorted(root.glob(pattern))))
        name = package.removesuffix(".schema")
        sources[name] = sources.get(name, "") + path.read_text()
    aliases: dict[str, str] = {}
    for package, text in sources.items():
        for match in ALIAS.finditer(text):
            aliases[f"{package}.{match[1]}"] = match[2].split("//")[0].strip()
    tables: dict[str, dict[str, list[object]]] = {}
    for package, text in sorted(sources.items()):
        for match in STRUCT.finditer(text):
            table = fields_of(package, match[2], aliases)
            if table:
                tables[f"{package}.{match[1]}"] = table
    json.dump(tables, sys.stdout, separators=(",", ":"), sort_keys=True)


def fields_of(package: str, body: str, aliases: dict[str, str]) -> dict[str, list[object]]:
    """Return one struct's fields."""
    table: dict[str, list[object]] = {}
    markers: dict[str, list[str]] = {}
    for line in body.splitlines():
        comment = re.match(r"\s*// ?\+(\w[\w:]*)(?:=(.*))?", line)
        if comment:
            markers.setdefault(comment[1], []).append((comment[2] or "").strip())
            continue
        field = FIELD.match(line)
        if not field:
            if not line.strip().startswith("//"):
                markers = {}
            continue
        tags = dict(TAG.findall(field[3]))
        json_name, *json_options = tags.get("json", "").split(",")
        shape, type_name = type_of(package, field[2], aliases)
        proto = tags.get("protobuf", "").split(",")
        number = int(proto[1]) if len(proto) > 1 and proto[1].isdigit() else 0
        if type_name == "meta.v1.TypeMeta":
            markers = {}
            continue
        inline = "inline" in json_options and not json_name
        required = "omitempty" not in json_options and "optional" not in markers and not inline
        keys = ",".join(markers.get("listMapKey", []))
        table["+" + type_name if inline else json_name] = [
            number,
            type_name,
            shape,
            int(required) + (2 if field[2].startswith("*") else 0),
            (markers.get("listType") or markers.get("mapType") or markers.get("structType") or [""])[0],
            keys,
            tags.get("patchStrategy", ""),
            tags.get("patchMergeKey", ""),
        ]
        markers = {}
    return table


def type_of(package: str, text: str, aliases: dict[str, str]) -> tuple[str, str]:
    """Return the shape and the resolved name of a Go type."""
    text = text.lstrip("*")
    if text == "[]byte":
        return "", "bytes"
    if text.startswith("[]"):
        return "*", type_of(package, text[2:], aliases)[1]
    if text.startswith("map["):
        inner_shape, inner = type_of(package, text.split("]", 1)[1], aliases)
        return "m", inner + inner_shape
    if text in PRIMITIVE:
        return "", PRIMITIVE[text]
    if "." in text:
        head, tail = text.split(".", 1)
        full = f"{ALIASES.get(head, head)}.{tail}"
    else:
        full = f"{package}.{text}"
    if full in PRIMITIVE:
        return "", PRIMITIVE[full]
    if full in aliases:
        return type_of(full.rsplit(".", 1)[0], aliases[full], aliases)
    return "", full


if __name__ == "__main__":
    main(Path(sys.argv[1]))
