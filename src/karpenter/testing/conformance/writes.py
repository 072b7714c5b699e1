"""Creating, replacing and deleting: identity, codes and reasons, generation, finalizers, preconditions."""

from karpenter.testing.conformance.steps import ABSENT, PRESENT, Case, Json, Step, case

MAPS = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"


def config_map(name: str = "one", **fields: object) -> Json:
    """Return a ConfigMap; `metadata` is merged."""
    metadata = {"name": name, **fields.pop("metadata", {})}  # type: ignore[dict-item]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def deployment(name: str = "web", **spec: object) -> Json:
    """Return a Deployment that starts no pods."""
    labels = {"app": name}
    containers = [{"name": "app", "image": "nginx:1.27"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    body = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def cases() -> list[Case]:
    """Return the cases."""
    return [*_identity(), *_updates(), *_deletes(), *_options()]


def _refused(path: str, body: object, code: int, reason: str, text: str = "", **more: object) -> Step:
    return Step("POST", path, body=body, code=code, has={"reason": reason, **more}, text=text)


def _identity() -> list[Case]:
    identity = dict.fromkeys(("uid", "resourceVersion", "creationTimestamp"), PRESENT)
    has = {f"metadata/{key}": value for key, value in identity.items()}
    return [
        case(
            "create",
            Step(
                "POST",
                MAPS,
                body=config_map(),
                code=201,
                has={**has, "metadata/generation": ABSENT, "metadata/namespace": "{ns}", "kind": "ConfigMap"},
            ),
            _refused(
                MAPS,
                config_map(),
                409,
                "AlreadyExists",
                'configmaps "one" already exists',
                **{"details/kind": "configmaps", "details/name": "one"},
            ),
        ),
        case(
            "create-without-identity",
            _refused(MAPS, {"metadata": {}}, 422, "Invalid", "name or generateName is required"),
            _refused(MAPS, config_map("Not_A_Name"), 422, "Invalid", "RFC 1123 subdomain"),
            _refused(MAPS, config_map(metadata={"namespace": "other"}), 400, "BadRequest", "namespace"),
            _refused(MAPS, config_map(metadata={"labels": {"a b": "c"}}), 422, "Invalid", "metadata.labels"),
            _refused(MAPS, {**config_map(), "kind": "Secret"}, 400, "BadRequest"),
        ),
        case(
            "create-in-a-namespace-that-is-not",
            _refused(
                "/api/v1/namespaces/{ns}-none/configmaps",
                config_map(),
                404,
                "NotFound",
                'namespaces "{ns}-none" not found',
            ),
        ),
        case(
            "generated-names",
            Step(
                "POST",
                MAPS,
                body={"metadata": {"generateName": "x-"}},
                code=201,
                has={"metadata/generateName": "x-"},
                keep={"name": "metadata/name"},
            ),
            Step("GET", f"{MAPS}/{{name}}"),
        ),
        case(
            "what-is-not-there",
            Step(
                "GET",
                f"{MAPS}/none",
                code=404,
                text='configmaps "none" not found',
                has={"reason": "NotFound", "details/kind": "configmaps", "status": "Failure"},
            ),
            Step("DELETE", f"{MAPS}/none", code=404, has={"reason": "NotFound"}),
            Step("PUT", f"{MAPS}/none", body=config_map("none"), code=404),
            Step("MERGE", f"{MAPS}/none", body={}, code=404, has={"reason": "NotFound"}),
            Step("GET", "/apis/none.example.com/v1/things", code=404),
            Step("POST", f"{MAPS}/none", body={}, code=405, has={"reason": "MethodNotAllowed"}),
        ),
    ]


def _updates() -> list[Case]:
    return [
        case(
            "conflicts",
            Step("POST", MAPS, body=config_map(), code=201, keep={"rv": "metadata/resourceVersion"}),
            Step("MERGE", f"{MAPS}/one", body={"data": {"a": "1"}}, has={"data/a": "1"}),
            Step(
                "PUT",
                f"{MAPS}/one",
                body=config_map(metadata={"resourceVersion": "{rv}"}),
                code=409,
                has={"reason": "Conflict", "details/name": "one", "details/kind": "configmaps"},
                text="the object has been modified; please apply your changes to the latest version",
            ),
            Step(
                "MERGE",
                f"{MAPS}/one",
                body={"metadata": {"resourceVersion": "{rv}"}},
                code=409,
                has={"reason": "Conflict"},
            ),
            Step("PUT", f"{MAPS}/one", body=config_map(), has={"data": ABSENT}),
            Step(
                "PUT",
                f"{MAPS}/one",
                body=config_map(metadata={"uid": "other"}),
                code=409,
                has={"reason": "Conflict"},
                text="Precondition failed: UID in precondition: other",
            ),
            Step("PUT", f"{MAPS}/one", body=config_map("two"), code=400, has={"reason": "BadRequest"}),
        ),
        case(
            "no-change-no-write",
            Step(
                "POST",
                MAPS,
                body=config_map(data={"a": "1"}),
                code=201,
                keep={"rv": "metadata/resourceVersion"},
            ),
            Step("MERGE", f"{MAPS}/one", body={"data": {"a": "1"}}, has={"metadata/resourceVersion": "{rv}"}),
        ),
        case(
            "immutable-maps",
            Step("POST", MAPS, body=config_map(immutable=True, data={"a": "1"}), code=201),
            Step("MERGE", f"{MAPS}/one", body={"data": {"a": "2"}}, code=422, has={"reason": "Invalid"}),
        ),
        case(
            "generation",
            Step("POST", DEPLOYMENTS, body=deployment(), code=201, has={"metadata/generation": 1}),
            Step(
                "MERGE",
                f"{DEPLOYMENTS}/web",
                body={"metadata": {"labels": {"a": "b"}}},
                has={"metadata/generation": 1, "metadata/labels/a": "b"},
            ),
            Step(
                "MERGE",
                f"{DEPLOYMENTS}/web",
                body={"spec": {"minReadySeconds": 3}},
                has={"metadata/generation": 2},
            ),
        ),
        case(
            "status-apart",
            Step(
                "POST",
                DEPLOYMENTS,
                body={**deployment(paused=True), "status": {"replicas": 9}},
                code=201,
                has={"status/replicas": ABSENT},
            ),
            Step(
                "MERGE",
                f"{DEPLOYMENTS}/web",
                body={"status": {"collisionCount": 7}},
                has={"status/collisionCount": ABSENT},
            ),
            Step(
                "MERGE",
                f"{DEPLOYMENTS}/web/status",
                body={"status": {"collisionCount": 7}, "spec": {"minReadySeconds": 9}},
                has={"status/collisionCount": 7, "spec/minReadySeconds": ABSENT, "metadata/generation": 1},
            ),
        ),
        case(
            "deployment-selectors-never-change",
            Step("POST", DEPLOYMENTS, body=deployment(), code=201),
            Step(
                "MERGE",
                f"{DEPLOYMENTS}/web",
                body={"spec": {"selector": {"matchLabels": {"app": "x"}}}},
                code=422,
                has={"reason": "Invalid", "details/group": "apps"},
                text="field is immutable",
            ),
            _refused(
                DEPLOYMENTS,
                deployment("two", selector={"matchLabels": {"app": "x"}}),
                422,
                "Invalid",
                "`selector` does not match template `labels`",
            ),
        ),
    ]


def _deletes() -> list[Case]:
    held = config_map(metadata={"finalizers": ["example.com/hold"]})
    return [
        case(
            "finalizers",
            Step("POST", MAPS, body=held, code=201),
            Step(
                "DELETE",
                f"{MAPS}/one",
                has={
                    "kind": "ConfigMap",
                    "metadata/deletionTimestamp": PRESENT,
                    "metadata/deletionGracePeriodSeconds": 0,
                },
            ),
            Step("DELETE", f"{MAPS}/one", has={"metadata/deletionTimestamp": PRESENT}),
            Step(
                "MERGE",
                f"{MAPS}/one",
                body={"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
                code=422,
                text="no new finalizers can be added if the object is being deleted",
            ),
            Step(
                "MERGE",
                f"{MAPS}/one",
                body={"metadata": {"finalizers": None}},
                has={"metadata/finalizers": ABSENT},
            ),
            Step("GET", f"{MAPS}/one", code=404),
            _refused(MAPS, config_map(metadata={"finalizers": ["hold"]}), 422, "Invalid"),
        ),
        case(
            "delete-answers",
            Step("POST", MAPS, body=config_map(), code=201, keep={"uid": "metadata/uid"}),
            Step(
                "DELETE",
                f"{MAPS}/one",
                body={"preconditions": {"uid": "other"}},
                code=409,
                has={"reason": "Conflict"},
            ),
            Step(
                "DELETE",
                f"{MAPS}/one",
                body={"preconditions": {"resourceVersion": "1"}},
                code=409,
                has={"reason": "Conflict"},
            ),
            Step(
                "DELETE",
                f"{MAPS}/one",
                body={"propagationPolicy": "Sideways"},
                code=422,
                has={"reason": "Invalid"},
            ),
            Step(
                "DELETE",
                f"{MAPS}/one",
                body={"preconditions": {"uid": "{uid}"}},
                has={
                    "kind": "Status",
                    "status": "Success",
                    "details/name": "one",
                    "details/kind": "configmaps",
                    "details/uid": "{uid}",
                },
            ),
        ),
        case(
            "delete-collection",
            *(Step("POST", MAPS, body=config_map(n, metadata={"labels": {"n": n}}), code=201) for n in "ab"),
            Step("DELETE", MAPS, query={"labelSelector": "n=a"}, has={"kind": "ConfigMapList"}),
            Step("GET", f"{MAPS}/a", code=404),
            Step("GET", f"{MAPS}/b"),
        ),
        case(
            "owners-take-their-own-with-them",
            Step("POST", MAPS, body=config_map("owner"), code=201, keep={"uid": "metadata/uid"}),
            Step(
                "POST",
                MAPS,
                code=201,
                body=config_map(
                    "owned",
                    metadata={
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}"}
                        ]
                    },
                ),
            ),
            Step("DELETE", f"{MAPS}/owner"),
            Step("GET", f"{MAPS}/owned", code=404, within=20),
        ),
        case(
            "orphans-stay",
            Step("POST", MAPS, body=config_map("owner"), code=201, keep={"uid": "metadata/uid"}),
            Step(
                "POST",
                MAPS,
                code=201,
                body=config_map(
                    "owned",
                    metadata={
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}"}
                        ]
                    },
                ),
            ),
            Step(
                "DELETE",
                f"{MAPS}/owner",
                body={"propagationPolicy": "Orphan"},
                has={"metadata/finalizers": ["orphan"]},
            ),
            Step("GET", f"{MAPS}/owner", code=404, within=20),
            Step("GET", f"{MAPS}/owned", has={"metadata/ownerReferences": ABSENT}),
        ),
        case(
            "foreground-waits-for-its-own",
            Step("POST", MAPS, body=config_map("owner"), code=201, keep={"uid": "metadata/uid"}),
            Step(
                "POST",
                MAPS,
                code=201,
                body=config_map(
                    "owned",
                    metadata={
                        "finalizers": ["example.com/hold"],
                        "ownerReferences": [
                            {
                                "apiVersion": "v1",
                                "kind": "ConfigMap",
                                "name": "owner",
                                "uid": "{uid}",
                                "blockOwnerDeletion": True,
                            }
                        ],
                    },
                ),
            ),
            Step(
                "DELETE",
                f"{MAPS}/owner",
                body={"propagationPolicy": "Foreground"},
                has={"metadata/finalizers": ["foregroundDeletion"]},
            ),
            Step("GET", f"{MAPS}/owned", has={"metadata/deletionTimestamp": PRESENT}, within=20),
            Step("GET", f"{MAPS}/owner"),
            Step("MERGE", f"{MAPS}/owned", body={"metadata": {"finalizers": None}}),
            Step("GET", f"{MAPS}/owner", code=404, within=20),
        ),
        case(
            "namespaces-empty-themselves",
            Step("POST", MAPS, body=held, code=201),
            Step("DELETE", "/api/v1/namespaces/{ns}", has={"status/phase": "Terminating"}),
            _refused(MAPS, config_map("late"), 403, "Forbidden", "because it is being terminated"),
            Step("GET", f"{MAPS}/one", has={"metadata/deletionTimestamp": PRESENT}, within=20),
            Step("MERGE", f"{MAPS}/one", body={"metadata": {"finalizers": None}}),
            Step("GET", "/api/v1/namespaces/{ns}", code=404, within=40),
        ),
    ]


def _options() -> list[Case]:
    odd = deployment(replica=3)
    return [
        case(
            "dry-run",
            Step(
                "POST",
                MAPS,
                body=config_map(),
                query={"dryRun": "All"},
                code=201,
                has={"metadata/uid": PRESENT},
            ),
            Step("GET", f"{MAPS}/one", code=404),
            _refused(f"{MAPS}", config_map("Bad"), 422, "Invalid"),
            Step(
                "POST", MAPS, body=config_map(), query={"dryRun": "Some"}, code=422, has={"reason": "Invalid"}
            ),
            Step("POST", MAPS, body=config_map(), code=201),
            Step(
                "MERGE",
                f"{MAPS}/one",
                body={"data": {"a": "1"}},
                query={"dryRun": "All"},
                has={"data/a": "1"},
            ),
            Step("DELETE", f"{MAPS}/one", query={"dryRun": "All"}, has={"status": "Success"}),
            Step("GET", f"{MAPS}/one", has={"data": ABSENT}),
        ),
        case(
            "field-validation",
            Step(
                "POST",
                DEPLOYMENTS,
                body=odd,
                query={"fieldValidation": "Strict"},
                code=400,
                has={"reason": "BadRequest"},
                text='unknown field "spec.replica"',
            ),
            Step(
                "POST",
                DEPLOYMENTS,
                body=odd,
                query={"fieldValidation": "Loud"},
                code=422,
                has={"reason": "Invalid"},
            ),
            Step(
                "POST",
                DEPLOYMENTS,
                body=odd,
                query={"fieldValidation": "Ignore"},
                code=201,
                has={"spec/replica": ABSENT},
            ),
            _refused(DEPLOYMENTS, deployment("two", replicas="three"), 400, "BadRequest"),
            _refused(
                DEPLOYMENTS,
                deployment("two", replicas=-1),
                422,
                "Invalid",
                "spec.replicas",
                **{"details/causes/0/field": "spec.replicas", "details/causes/0/reason": "FieldValueInvalid"},
            ),
            _refused(DEPLOYMENTS, "no object", 400, "BadRequest"),
        ),
    ]
