package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/object"
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

// Scenario is the input; docs/reference/plan.md describes it.
type Scenario struct {
	Name                  string              `json:"name,omitempty"`
	Description           string              `json:"description,omitempty"`
	Options               ScenarioOptions     `json:"options"`
	InstanceTypes         []InstanceType      `json:"instanceTypes"`
	NodePoolInstanceTypes map[string][]string `json:"nodePoolInstanceTypes,omitempty"`

	NodePools  []*v1.NodePool      `json:"nodePools"`
	NodeClaims []*v1.NodeClaim     `json:"nodeClaims,omitempty"`
	Nodes      []*corev1.Node      `json:"nodes,omitempty"`
	DaemonSets []*appsv1.DaemonSet `json:"daemonSets,omitempty"`
	Pods       []*corev1.Pod       `json:"pods,omitempty"`
	PodGroups  []PodGroup          `json:"podGroups,omitempty"`

	Namespaces             []*corev1.Namespace             `json:"namespaces,omitempty"`
	PersistentVolumeClaims []*corev1.PersistentVolumeClaim `json:"persistentVolumeClaims,omitempty"`
	PersistentVolumes      []*corev1.PersistentVolume      `json:"persistentVolumes,omitempty"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses,omitempty"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes,omitempty"`
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets,omitempty"`
}

type ScenarioOptions struct {
	PreferencePolicy        string `json:"preferencePolicy,omitempty"`        // Respect (default) | Ignore
	MinValuesPolicy         string `json:"minValuesPolicy,omitempty"`         // Strict (default) | BestEffort
	CPURequestsMilli        int64  `json:"cpuRequestsMilli,omitempty"`        // default 5000: 5 goroutines, as upstream's benchmark; real default is 1000
	ReservedCapacity        *bool  `json:"reservedCapacity,omitempty"`        // default true
	SpotToSpotConsolidation bool   `json:"spotToSpotConsolidation,omitempty"` // default false
	ReservedFallback        bool   `json:"reservedFallback,omitempty"`        // default false: DisableReservedCapacityFallback, as the provisioner does
}

type InstanceType struct {
	Name         string              `json:"name"`
	Capacity     corev1.ResourceList `json:"capacity"`
	Overhead     *Overhead           `json:"overhead,omitempty"`
	Requirements []Req               `json:"requirements,omitempty"`
	Offerings    []Offering          `json:"offerings"`
}

type Overhead struct {
	KubeReserved      corev1.ResourceList `json:"kubeReserved,omitempty"`
	SystemReserved    corev1.ResourceList `json:"systemReserved,omitempty"`
	EvictionThreshold corev1.ResourceList `json:"evictionThreshold,omitempty"`
}

type Req struct {
	Key      string                      `json:"key"`
	Operator corev1.NodeSelectorOperator `json:"operator"`
	Values   []string                    `json:"values,omitempty"`
	MinVals  *int                        `json:"minValues,omitempty"`
}

type Offering struct {
	Zone                string  `json:"zone"`
	CapacityType        string  `json:"capacityType"`
	Price               float64 `json:"price"`
	Available           *bool   `json:"available,omitempty"` // default true
	ReservationID       string  `json:"reservationID,omitempty"`
	ReservationCapacity int     `json:"reservationCapacity,omitempty"`
	Requirements        []Req   `json:"requirements,omitempty"` // extra requirements
}

type PodGroup struct {
	NamePrefix string      `json:"namePrefix"`
	Count      int         `json:"count"`
	Template   *corev1.Pod `json:"template"`
}

func loadScenario(path string) (*Scenario, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".gz") {
		zr, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		if raw, err = io.ReadAll(zr); err != nil {
			return nil, err
		}
	}
	sc := &Scenario{}
	if t := bytes.TrimSpace(raw); len(t) == 0 || t[0] != '{' {
		if raw, err = yaml.YAMLToJSON(raw); err != nil {
			return nil, err
		}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(sc); err != nil {
		return nil, fmt.Errorf("decoding scenario: %w", err)
	}
	return sc, sc.complete()
}

func fixedUID(s string) types.UID {
	// FNV based, deterministic: only used for objects for which the scenario gives no UID
	var a, b uint64 = 14695981039346656037, 1099511628211
	for i := 0; i < len(s); i++ {
		a = (a ^ uint64(s[i])) * 1099511628211
		b = (b ^ uint64(s[i])) * 14029467366897019727
	}
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0xfff, b&0xffffffffffff))
}

var nodeClassRef = &v1.NodeClassReference{Group: object.GVK(&v1alpha1.TestNodeClass{}).Group, Kind: object.GVK(&v1alpha1.TestNodeClass{}).Kind, Name: "default"}

// complete fills in whatever an API server, its defaulting and the controllers would have filled in.
func (sc *Scenario) complete() error {
	for _, it := range sc.InstanceTypes {
		for _, o := range it.Offerings {
			anyReserved = anyReserved || o.ReservationID != ""
		}
	}
	for _, g := range sc.PodGroups {
		for i := range g.Count {
			p := g.Template.DeepCopy()
			p.Name = fmt.Sprintf("%s-%05d", g.NamePrefix, i)
			p.UID = ""
			sc.Pods = append(sc.Pods, p)
		}
	}
	sc.PodGroups = nil
	hour := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for _, np := range sc.NodePools {
		np.UID = lo.CoalesceOrEmpty(np.UID, fixedUID("np/"+np.Name))
		np.Spec.Template.Spec.NodeClassRef = nodeClassRef
		if np.Spec.Disruption.ConsolidationPolicy == "" {
			np.Spec.Disruption.ConsolidationPolicy = v1.ConsolidationPolicyWhenEmptyOrUnderutilized
			if np.Spec.Disruption.ConsolidateAfter.Duration == nil {
				np.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("0s")
			}
		}
		if np.Spec.Disruption.Budgets == nil {
			np.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "10%"}}
		}
		np.Status.Conditions = []status.Condition{}
		np.StatusConditions().SetTrue(v1.ConditionTypeValidationSucceeded)
		np.StatusConditions().SetTrue(v1.ConditionTypeNodeClassReady)
		np.StatusConditions().SetUnknown(v1.ConditionTypeNodeRegistrationHealthy)
	}
	its := lo.SliceToMap(sc.InstanceTypes, func(it InstanceType) (string, InstanceType) { return it.Name, it })
	claims := lo.SliceToMap(sc.NodeClaims, func(nc *v1.NodeClaim) (string, *v1.NodeClaim) { return nc.Status.ProviderID, nc })
	for _, n := range sc.Nodes {
		if n.CreationTimestamp.IsZero() {
			n.CreationTimestamp = hour
		}
		n.UID = lo.CoalesceOrEmpty(n.UID, fixedUID("node/"+n.Name))
		if n.Spec.ProviderID == "" {
			n.Spec.ProviderID = "reference:///" + n.Name
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		if n.Labels[corev1.LabelHostname] == "" {
			n.Labels[corev1.LabelHostname] = n.Name
		}
		if it, ok := its[n.Labels[corev1.LabelInstanceTypeStable]]; ok {
			if len(n.Status.Capacity) == 0 {
				n.Status.Capacity = it.Capacity
			}
			if len(n.Status.Allocatable) == 0 {
				n.Status.Allocatable = it.build().Allocatable()
			}
		}
		if len(n.Status.Allocatable) == 0 {
			return fmt.Errorf("node %s: no status.allocatable and unknown instance type %q", n.Name, n.Labels[corev1.LabelInstanceTypeStable])
		}
		if len(n.Status.Capacity) == 0 {
			n.Status.Capacity = n.Status.Allocatable
		}
		if _, ok := lo.Find(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); !ok {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
		}
		if np := n.Labels[v1.NodePoolLabelKey]; np != "" {
			if claims[n.Spec.ProviderID] == nil {
				nc := claimForNode(n)
				sc.NodeClaims = append(sc.NodeClaims, nc)
				n.Labels[v1.NodeRegisteredLabelKey] = "true"
				n.Labels[v1.NodeInitializedLabelKey] = "true"
			}
		}
	}
	for _, nc := range sc.NodeClaims {
		nc.Spec.NodeClassRef = nodeClassRef
	}
	for _, p := range sc.Pods {
		if p.Namespace == "" {
			p.Namespace = "default"
		}
		p.UID = lo.CoalesceOrEmpty(p.UID, fixedUID("pod/"+p.Namespace+"/"+p.Name))
		if p.Spec.NodeName == "" {
			if p.Status.Phase == "" {
				p.Status.Phase = corev1.PodPending
			}
			if len(p.Status.Conditions) == 0 {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			}
		} else if p.Status.Phase == "" {
			p.Status.Phase = corev1.PodRunning
		}
	}
	for _, d := range sc.DaemonSets {
		if d.Namespace == "" {
			d.Namespace = "default"
		}
		d.UID = lo.CoalesceOrEmpty(d.UID, fixedUID("ds/"+d.Namespace+"/"+d.Name))
	}
	for _, p := range sc.PersistentVolumeClaims {
		if p.Namespace == "" {
			p.Namespace = "default"
		}
		if p.Spec.VolumeName != "" { // as the PV controller would have done
			p.Annotations = lo.Assign(map[string]string{"pv.kubernetes.io/bind-completed": "yes"}, p.Annotations)
			p.Status.Phase = lo.CoalesceOrEmpty(p.Status.Phase, corev1.ClaimBound)
		}
	}
	nss := map[string]bool{}
	for _, n := range sc.Namespaces {
		nss[n.Name] = true
	}
	for _, p := range sc.Pods {
		if !nss[p.Namespace] {
			nss[p.Namespace] = true
			sc.Namespaces = append(sc.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace, Labels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}}})
		}
	}
	return nil
}

func claimForNode(n *corev1.Node) *v1.NodeClaim {
	nc := &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: fixedUID("nc/" + n.Name), Labels: lo.Assign(n.Labels), Annotations: lo.Assign(n.Annotations),
			CreationTimestamp: n.CreationTimestamp,
		},
		Spec:   v1.NodeClaimSpec{NodeClassRef: nodeClassRef, Taints: n.Spec.Taints},
		Status: v1.NodeClaimStatus{ProviderID: n.Spec.ProviderID, NodeName: n.Name, Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable},
	}
	for _, c := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
		nc.StatusConditions().SetTrue(c)
	}
	return nc
}

func (r Req) build() *scheduling.Requirement {
	return scheduling.NewRequirementWithFlexibility(r.Key, r.Operator, r.MinVals, r.Values...)
}

// anyReserved: some offering of the scenario is reserved, so all the others must say that they aren't
var anyReserved bool

func (it InstanceType) build() *cloudprovider.InstanceType {
	reqs := scheduling.NewRequirements()
	for _, r := range it.Requirements {
		reqs.Add(r.build())
	}
	var offerings cloudprovider.Offerings
	var zones, cts, reservations []string
	for _, o := range it.Offerings {
		oreqs := scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, o.Zone),
			scheduling.NewRequirement(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, o.CapacityType),
		)
		if o.ReservationID != "" {
			oreqs.Add(scheduling.NewRequirement(v1alpha1.LabelReservationID, corev1.NodeSelectorOpIn, o.ReservationID))
			reservations = append(reservations, o.ReservationID)
		} else if anyReserved {
			oreqs.Add(scheduling.NewRequirement(v1alpha1.LabelReservationID, corev1.NodeSelectorOpDoesNotExist))
		}
		for _, r := range o.Requirements {
			oreqs.Add(r.build())
		}
		available := o.Available == nil || *o.Available
		if available {
			zones, cts = append(zones, o.Zone), append(cts, o.CapacityType)
		}
		offerings = append(offerings, &cloudprovider.Offering{Requirements: oreqs, Price: o.Price, Available: available, ReservationCapacity: o.ReservationCapacity})
	}
	def := func(key string, values ...string) {
		if !reqs.Has(key) {
			reqs.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, lo.Uniq(values)...))
		}
	}
	def(corev1.LabelInstanceTypeStable, it.Name)
	def(corev1.LabelTopologyZone, zones...)
	def(v1.CapacityTypeLabelKey, cts...)
	def(corev1.LabelArchStable, "amd64")
	def(corev1.LabelOSStable, "linux")
	if len(reservations) > 0 {
		def(v1alpha1.LabelReservationID, reservations...)
	} else if anyReserved {
		reqs.Add(scheduling.NewRequirement(v1alpha1.LabelReservationID, corev1.NodeSelectorOpDoesNotExist))
	}
	out := &cloudprovider.InstanceType{
		Name: it.Name, Requirements: reqs, Offerings: offerings,
		Capacity: lo.Assign(it.Capacity), Overhead: &cloudprovider.InstanceTypeOverhead{},
	}
	if _, ok := out.Capacity[corev1.ResourcePods]; !ok {
		out.Capacity[corev1.ResourcePods] = resource.MustParse("110")
	}
	if it.Overhead != nil {
		out.Overhead = &cloudprovider.InstanceTypeOverhead{KubeReserved: it.Overhead.KubeReserved, SystemReserved: it.Overhead.SystemReserved, EvictionThreshold: it.Overhead.EvictionThreshold}
	}
	return out
}

// registerWellKnown makes every label which instance types define a well-known label, as cloud providers do.
func (sc *Scenario) registerWellKnown() []string {
	keys := map[string]bool{}
	for _, it := range sc.InstanceTypes {
		for _, r := range it.Requirements {
			keys[r.Key] = true
		}
		for _, o := range it.Offerings {
			for _, r := range o.Requirements {
				keys[r.Key] = true
			}
		}
	}
	var added []string
	for k := range keys {
		if !v1.WellKnownLabels.Has(k) {
			v1.WellKnownLabels.Insert(k)
			added = append(added, k)
		}
	}
	sort.Strings(added)
	return added
}
