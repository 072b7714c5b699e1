"""Pods: what is filled in, what may change, how they end, how they are evicted and bound."""

from karpenter.testing.conformance.steps import ABSENT, PRESENT, Case, Json, Step, case

PODS = "/api/v1/namespaces/{ns}/pods"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
NODES = "/api/v1/nodes"
NODE = "{ns}-node"
_FAKE = {"kwok.x-k8s.io/node": "fake"}
_ROOM = {"cpu": "8", "memory": "16Gi", "pods": "110"}


def pod(name: str = "web", *, labels: dict[str, str] | None = None, **spec: object) -> Json:
    """Return a pod that no node has room for, so that it stays where a case puts it."""
    container = {"name": "app", "image": "nginx:1.27"}
    body = {"containers": [container], "schedulerName": "nobody", **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": "web"}},
        "spec": body,
    }


def node(annotations: dict[str, str] | None = None) -> Json:
    """Return a node; one with the simulated kubelet's annotation runs its pods."""
    return {
        "metadata": {
            "name": NODE,
            "annotations": annotations or {},
            "labels": {"kubernetes.io/hostname": NODE},
        },
        "spec": {"taints": [{"key": "example.com/own", "effect": "NoSchedule"}]},
        "status": {"allocatable": _ROOM, "capacity": _ROOM},
    }


def budget(**spec: object) -> Json:
    """Return a PodDisruptionBudget of the pods labelled app=web."""
    return {"metadata": {"name": "pdb"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


def cases() -> list[Case]:
    """Return the cases."""
    return [*_filled_in(), *_changes(), *_ends(), *_evictions(), *_nodes()]


def _filled_in() -> list[Case]:
    sized = {"name": "app", "image": "nginx", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    probed = {
        "name": "app",
        "image": "nginx:1",
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}},
    }
    return [
        case(
            "pod-defaults",
            Step(
                "POST",
                PODS,
                body=pod(),
                code=201,
                has={
                    "spec/restartPolicy": "Always",
                    "spec/dnsPolicy": "ClusterFirst",
                    "spec/terminationGracePeriodSeconds": 30,
                    "spec/serviceAccountName": "default",
                    "spec/enableServiceLinks": True,
                    "spec/preemptionPolicy": "PreemptLowerPriority",
                    "spec/priority": 0,
                    "spec/securityContext": {},
                    "spec/schedulerName": "nobody",
                    "spec/containers/0/imagePullPolicy": "IfNotPresent",
                    "spec/containers/0/resources": {},
                    "spec/containers/0/terminationMessagePath": "/dev/termination-log",
                    "spec/containers/0/terminationMessagePolicy": "File",
                    "spec/tolerations/0/key": "node.kubernetes.io/not-ready",
                    "spec/tolerations/0/tolerationSeconds": 300,
                    "spec/tolerations/1/key": "node.kubernetes.io/unreachable",
                    "status/phase": "Pending",
                    "status/qosClass": "BestEffort",
                    "metadata/generation": 1,
                    "spec/nodeName": ABSENT,
                },
            ),
        ),
        case(
            "container-defaults",
            Step(
                "POST",
                PODS,
                body=pod(containers=[sized]),
                code=201,
                has={
                    "spec/containers/0/imagePullPolicy": "Always",
                    "status/qosClass": "Guaranteed",
                    "spec/containers/0/resources/requests": {"cpu": "1", "memory": "1Gi"},
                },
            ),
            Step(
                "POST",
                PODS,
                body=pod("two", containers=[probed]),
                code=201,
                has={
                    "spec/containers/0/ports/0/protocol": "TCP",
                    "spec/containers/0/livenessProbe/periodSeconds": 10,
                    "spec/containers/0/livenessProbe/failureThreshold": 3,
                    "spec/containers/0/livenessProbe/timeoutSeconds": 1,
                    "spec/containers/0/livenessProbe/httpGet/path": "/",
                    "spec/containers/0/livenessProbe/httpGet/scheme": "HTTP",
                },
            ),
        ),
        case(
            "negative-time-to-stop",
            Step(
                "POST",
                PODS,
                body=pod(terminationGracePeriodSeconds=-5),
                code=201,
                has={"spec/terminationGracePeriodSeconds": 1},
            ),
        ),
        case(
            "pod-priorities",
            Step(
                "POST",
                PODS,
                body=pod(priorityClassName="none-such"),
                code=403,
                has={"reason": "Forbidden"},
                text="no PriorityClass with name none-such was found",
            ),
            Step(
                "POST",
                PODS,
                body=pod(priorityClassName="system-node-critical"),
                code=201,
                has={"spec/priority": 2000001000},
            ),
            Step("POST", PODS, body=pod("two", priority=7), code=403, has={"reason": "Forbidden"}),
        ),
        case(
            "pod-refusals",
            *(
                Step(
                    "POST",
                    PODS,
                    body=pod(**spec),
                    code=422,
                    has={"reason": "Invalid", "details/causes/0/field": field},
                )
                for field, spec in _UNSOUND.items()
            ),
        ),
    ]


def _container(**fields: object) -> Json:
    return {"name": "app", "image": "nginx", **fields}


_TERM = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_UNSOUND: dict[str, Json] = {
    "spec.containers": {"containers": []},
    "spec.containers[0].name": {"containers": [_container(name="")]},
    "spec.containers[1].name": {"containers": [_container(), _container()]},
    "spec.containers[0].resources.requests": {
        "containers": [_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]
    },
    "spec.containers[0].resources.requests[cpu]": {
        "containers": [_container(resources={"requests": {"cpu": "-1"}})]
    },
    "spec.restartPolicy": {"restartPolicy": "Sometimes"},
    "spec.topologySpreadConstraints[0].maxSkew": {"topologySpreadConstraints": [{**_TERM, "maxSkew": 0}]},
    "spec.topologySpreadConstraints[0].whenUnsatisfiable": {
        "topologySpreadConstraints": [{**_TERM, "whenUnsatisfiable": "Never"}]
    },
    "spec.tolerations[0].operator": {"tolerations": [{"key": "a", "operator": "Maybe"}]},
    "spec.containers[0].volumeMounts[0].name": {
        "containers": [_container(volumeMounts=[{"name": "none", "mountPath": "/x"}])]
    },
    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "topologyKey": ""}]
            }
        }
    },
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    ".nodeSelectorTerms[0].matchExpressions[0].values": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                }
            }
        }
    },
}


def _changes() -> list[Case]:
    web = f"{PODS}/web"
    gate = [{"name": "example.com/wait"}]
    return [
        case(
            "pods-are-mostly-fixed",
            Step("POST", PODS, body=pod(), code=201),
            Step(
                "MERGE",
                web,
                body={"spec": {"priorityClassName": "x"}},
                code=422,
                has={"reason": "Invalid"},
                text="pod updates may not change fields other than",
            ),
            Step(
                "STRATEGIC",
                web,
                body={"spec": {"containers": [{"name": "app", "image": "b:2"}]}},
                has={"spec/containers/0/image": "b:2", "metadata/generation": 2},
            ),
            Step(
                "MERGE",
                web,
                body={"spec": {"activeDeadlineSeconds": 5}},
                has={"spec/activeDeadlineSeconds": 5},
            ),
            Step("MERGE", web, body={"spec": {"activeDeadlineSeconds": 9}}, code=422),
            Step("MERGE", web, body={"spec": {"nodeSelector": {"a": "b"}}}, code=422),
            Step("MERGE", web, body={"spec": {"nodeName": "x"}}, code=422),
        ),
        case(
            "gates-open-and-never-close",
            Step(
                "POST",
                PODS,
                body=pod(schedulingGates=gate),
                code=201,
                has={"status/conditions/0/reason": "SchedulingGated"},
            ),
            Step("MERGE", web, body={"spec": {"nodeSelector": {"a": "b"}}}, has={"spec/nodeSelector/a": "b"}),
            Step("MERGE", web, body={"spec": {"schedulingGates": []}}, has={"spec/schedulingGates": ABSENT}),
            Step("MERGE", web, body={"spec": {"schedulingGates": gate}}, code=422),
        ),
    ]


def _ends() -> list[Case]:
    web = f"{PODS}/web"
    # Held by a finalizer and bound to a node that exists and whose kubelet is silent.
    held = {**pod(nodeName=NODE, terminationGracePeriodSeconds=60)}
    return [
        case(
            "unbound-pods-go-at-once",
            Step("POST", PODS, body=pod(), code=201),
            Step("DELETE", web, has={"kind": "Pod"}),
            Step("GET", web, code=404),
        ),
        case(
            "bound-pods-have-time",
            Step("POST", NODES, body=node(), code=201),
            Step("POST", PODS, body=held, code=201, has={"spec/nodeName": NODE}),
            Step(
                "DELETE",
                web,
                has={"metadata/deletionGracePeriodSeconds": 60, "metadata/deletionTimestamp": PRESENT},
                keep={"then": "metadata/deletionTimestamp"},
            ),
            Step(
                "DELETE",
                web,
                body={"gracePeriodSeconds": 90},
                has={"metadata/deletionTimestamp": "{then}", "metadata/deletionGracePeriodSeconds": 60},
            ),
            Step(
                "DELETE",
                web,
                body={"gracePeriodSeconds": 40},
                has={"metadata/deletionGracePeriodSeconds": 40},
            ),
            Step("DELETE", web, query={"gracePeriodSeconds": "0"}),
            Step("GET", web, code=404),
            Step("DELETE", f"{NODES}/{NODE}"),
        ),
        case(
            "negative-grace-is-one-second",
            Step("POST", NODES, body=node(), code=201),
            Step("POST", PODS, body=held, code=201),
            Step(
                "DELETE", web, body={"gracePeriodSeconds": -5}, has={"metadata/deletionGracePeriodSeconds": 1}
            ),
            Step("DELETE", f"{NODES}/{NODE}"),
        ),
    ]


def _evictions() -> list[Case]:
    evict = f"{PODS}/web/eviction"
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    bound = (
        Step("POST", NODES, body=node(), code=201),
        Step("POST", PODS, body=pod(nodeName=NODE), code=201, keep={"uid": "metadata/uid"}),
        Step("MERGE", f"{PODS}/web/status", body=ready),
    )
    gone = Step("DELETE", f"{NODES}/{NODE}")
    return [
        case(
            "eviction",
            *bound,
            Step("POST", f"{PODS}/none/eviction", body={**body, "metadata": {"name": "none"}}, code=404),
            Step("POST", evict, body={**body, "metadata": {"name": "x"}}, code=400),
            Step(
                "POST",
                evict,
                code=409,
                has={"reason": "Conflict"},
                body={**body, "deleteOptions": {"preconditions": {"uid": "other"}}},
            ),
            Step("POST", evict, body={**body, "deleteOptions": {"dryRun": ["All"]}}, code=201),
            Step("GET", f"{PODS}/web", has={"metadata/deletionTimestamp": ABSENT}),
            Step(
                "POST",
                evict,
                body={**body, "deleteOptions": {"preconditions": {"uid": "{uid}"}}},
                code=201,
                has={"kind": "Status", "status": "Success"},
            ),
            Step(
                "GET",
                f"{PODS}/web",
                has={"metadata/deletionTimestamp": PRESENT, "metadata/deletionGracePeriodSeconds": 30},
            ),
            gone,
        ),
        case(
            "eviction-against-a-budget",
            *bound,
            Step("POST", BUDGETS, body=budget(minAvailable=1), code=201),
            Step(
                "GET",
                f"{BUDGETS}/pdb",
                within=20,
                has={
                    "status/currentHealthy": 1,
                    "status/desiredHealthy": 1,
                    "status/disruptionsAllowed": 0,
                    "status/expectedPods": 1,
                    "status/observedGeneration": 1,
                    "status/conditions/0/type": "DisruptionAllowed",
                    "status/conditions/0/status": "False",
                    "status/conditions/0/reason": "InsufficientPods",
                },
            ),
            Step(
                "POST",
                evict,
                body=body,
                code=429,
                has={"reason": "TooManyRequests", "details/causes/0/reason": "DisruptionBudget"},
                text="Cannot evict pod as it would violate the pod's disruption budget.",
            ),
            Step("DELETE", f"{BUDGETS}/pdb"),
            Step("POST", BUDGETS, body=budget(maxUnavailable="100%"), code=201),
            gone,
        ),
        case(
            "two-budgets",
            *bound,
            Step("POST", BUDGETS, body=budget(minAvailable=0), code=201),
            Step("POST", BUDGETS, body={**budget(minAvailable=0), "metadata": {"name": "b"}}, code=201),
            Step("GET", f"{BUDGETS}/b", within=20, has={"status/disruptionsAllowed": 1}),
            Step("POST", evict, body=body, code=500, text="more than one PodDisruptionBudget"),
            gone,
        ),
        case(
            "budget-rules",
            Step(
                "POST",
                BUDGETS,
                body=budget(minAvailable=1, maxUnavailable=1),
                code=422,
                has={"reason": "Invalid"},
                text="minAvailable and maxUnavailable cannot be both set",
            ),
            Step("POST", BUDGETS, body=budget(minAvailable="150%"), code=422),
            Step("POST", BUDGETS, body=budget(maxUnavailable=-1), code=422),
            Step("POST", BUDGETS, body=budget(minAvailable="few"), code=422),
            Step("POST", BUDGETS, body=budget(minAvailable=1), code=201, has={"metadata/generation": 1}),
            Step(
                "MERGE", f"{BUDGETS}/pdb", body={"spec": {"minAvailable": 2}}, has={"metadata/generation": 2}
            ),
        ),
    ]


def _nodes() -> list[Case]:
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": NODE}}
    return [
        case(
            "nodes-keep-the-status-they-are-created-with",
            Step(
                "POST",
                NODES,
                body=node(),
                code=201,
                has={"status/allocatable/cpu": "8", "spec/taints/0/key": "example.com/own"},
            ),
            Step(
                "MERGE",
                f"{NODES}/{NODE}",
                body={"status": {"allocatable": {"cpu": "9"}}},
                has={"status/allocatable/cpu": "8"},
            ),
            Step(
                "MERGE",
                f"{NODES}/{NODE}",
                body={"spec": {"providerID": "a://b"}},
                has={"spec/providerID": "a://b"},
            ),
            Step(
                "MERGE",
                f"{NODES}/{NODE}",
                body={"spec": {"providerID": "a://c"}},
                code=422,
                has={"reason": "Invalid"},
            ),
            Step(
                "MERGE",
                f"{NODES}/{NODE}",
                code=422,
                body={"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}},
            ),
            Step(
                "MERGE",
                f"{NODES}/{NODE}",
                code=422,
                body={"spec": {"taints": [{"key": "a", "effect": "NoExecute"}] * 2}},
            ),
            Step("DELETE", f"{NODES}/{NODE}"),
        ),
        case(
            "binding",
            Step("POST", PODS, body=pod(), code=201),
            Step("POST", f"{PODS}/web/binding", body=binding, code=201, has={"status": "Success"}),
            Step(
                "POST",
                f"{PODS}/web/binding",
                body=binding,
                code=409,
                has={"reason": "Conflict"},
                text="already assigned to node",
            ),
            Step(
                "MERGE",
                f"{PODS}/web/status",
                body={"status": {"nominatedNodeName": "another"}},
                code=422,
                text="status.nominatedNodeName",
            ),
        ),
        case(
            "gated-pods-are-not-bound",
            Step("POST", PODS, body=pod(schedulingGates=[{"name": "example.com/g"}]), code=201),
            Step("POST", f"{PODS}/web/binding", body=binding, code=409, has={"reason": "Conflict"}),
        ),
        case(
            "pods-run-on-a-simulated-node",
            Step("POST", NODES, body=node(_FAKE), code=201),
            Step("GET", f"{NODES}/{NODE}", within=20, has={"status/phase": "Running"}),
            Step(
                "POST",
                PODS,
                body=pod(
                    schedulerName="default-scheduler",
                    nodeSelector={"kubernetes.io/hostname": NODE},
                    tolerations=[{"operator": "Exists"}],
                ),
                code=201,
            ),
            Step(
                "GET",
                f"{PODS}/web",
                within=30,
                has={
                    "status/phase": "Running",
                    "spec/nodeName": NODE,
                    "status/startTime": PRESENT,
                    "status/podIP": PRESENT,
                    "status/containerStatuses/0/ready": True,
                    "status/containerStatuses/0/state/running/startedAt": PRESENT,
                },
            ),
            Step("DELETE", f"{PODS}/web", body={"gracePeriodSeconds": 1}),
            Step("GET", f"{PODS}/web", code=404, within=30),
            Step("DELETE", f"{NODES}/{NODE}"),
        ),
    ]
