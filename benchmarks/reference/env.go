package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	opstatus "github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakecr "sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	kscheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/karpenter/pkg/test"
	"sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

type provider struct {
	*fake.CloudProvider
	perPool map[string][]*cloudprovider.InstanceType
}

func (p *provider) GetInstanceTypes(_ context.Context, np *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.perPool[np.Name], nil
}
func (p *provider) GetSupportedNodeClasses() []opstatus.Object {
	return []opstatus.Object{&v1alpha1.TestNodeClass{}}
}

// recorder keeps the last message per (reason, object), for the explanations of -verbose
type recorder struct {
	mu   sync.Mutex
	on   bool
	last map[string]string
}

func (r *recorder) Publish(evts ...events.Event) {
	if !r.on {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range evts {
		if o, ok := e.InvolvedObject.(client.Object); ok {
			r.last[fmt.Sprintf("%T/%s %s", o, o.GetName(), e.Reason)] = e.Message
		}
	}
}

type Env struct {
	ctx     context.Context
	sc      *Scenario
	client  client.Client
	cp      *provider
	cluster *state.Cluster
	prov    *provisioning.Provisioner
	queue   *disruption.Queue
	rec     *recorder
	clk     clock.Clock
	its     map[string]*cloudprovider.InstanceType
	seq     int
}

func newEnv(sc *Scenario, useFakeClient, verbose bool) (*Env, error) {
	sc.registerWellKnown()
	o := test.Options()
	if sc.Options.CPURequestsMilli > 0 {
		o.CPURequests = sc.Options.CPURequestsMilli
	}
	if sc.Options.PreferencePolicy != "" {
		o.PreferencePolicy = options.PreferencePolicy(sc.Options.PreferencePolicy)
	}
	if sc.Options.MinValuesPolicy != "" {
		o.MinValuesPolicy = options.MinValuesPolicy(sc.Options.MinValuesPolicy)
	}
	o.FeatureGates.ReservedCapacity = lo.FromPtrOr(sc.Options.ReservedCapacity, true)
	o.FeatureGates.SpotToSpotConsolidation = sc.Options.SpotToSpotConsolidation
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), o)

	e := &Env{ctx: ctx, sc: sc, clk: clock.RealClock{}, rec: &recorder{on: verbose, last: map[string]string{}}, its: map[string]*cloudprovider.InstanceType{}}
	e.cp = &provider{CloudProvider: fake.NewCloudProvider(), perPool: map[string][]*cloudprovider.InstanceType{}}
	var all []*cloudprovider.InstanceType
	for _, it := range sc.InstanceTypes {
		b := it.build()
		if e.its[it.Name] != nil {
			return nil, fmt.Errorf("duplicate instance type %q", it.Name)
		}
		e.its[it.Name] = b
		all = append(all, b)
	}
	for _, np := range sc.NodePools {
		if names, ok := sc.NodePoolInstanceTypes[np.Name]; ok {
			for _, n := range names {
				if e.its[n] == nil {
					return nil, fmt.Errorf("nodePoolInstanceTypes[%s]: unknown instance type %q", np.Name, n)
				}
				e.cp.perPool[np.Name] = append(e.cp.perPool[np.Name], e.its[n])
			}
		} else {
			e.cp.perPool[np.Name] = all
		}
	}
	if useFakeClient {
		e.client = fakecr.NewClientBuilder().WithScheme(scheme.Scheme).
			WithStatusSubresource(&v1.NodePool{}, &v1.NodeClaim{}).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
			WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
			WithIndex(&v1.NodeClaim{}, "status.providerID", func(o client.Object) []string { return []string{o.(*v1.NodeClaim).Status.ProviderID} }).
			WithIndex(&storagev1.VolumeAttachment{}, "spec.nodeName", func(o client.Object) []string {
				return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
			}).Build()
		e.client = fakeClient{e.client}
	} else {
		e.client = NewMemClient(scheme.Scheme)
	}
	e.cluster = state.NewCluster(e.clk, e.client, e.cp)
	e.prov = provisioning.NewProvisioner(e.client, e.rec, e.cp, e.cluster, e.clk, deviceallocation.NewController(e.client), virtualpods.NewVirtualPodCache(e.client))
	e.queue = disruption.NewQueue(e.client, e.rec, e.cluster, e.clk, e.prov)

	create := func(o client.Object) error {
		c := o.DeepCopyObject().(client.Object)
		c.SetResourceVersion("")
		if err := e.client.Create(ctx, c); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
		if useFakeClient {
			switch t := o.(type) { // status is a subresource there
			case *v1.NodePool:
				n := c.(*v1.NodePool)
				n.Status = t.Status
				return e.client.Status().Update(ctx, n)
			case *v1.NodeClaim:
				n := c.(*v1.NodeClaim)
				n.Status = t.Status
				return e.client.Status().Update(ctx, n)
			}
		}
		return nil
	}
	var objs []client.Object
	for _, x := range sc.Namespaces {
		objs = append(objs, x)
	}
	for _, x := range sc.StorageClasses {
		objs = append(objs, x)
	}
	for _, x := range sc.PersistentVolumes {
		objs = append(objs, x)
	}
	for _, x := range sc.PersistentVolumeClaims {
		objs = append(objs, x)
	}
	for _, x := range sc.CSINodes {
		objs = append(objs, x)
	}
	for _, x := range sc.PodDisruptionBudgets {
		objs = append(objs, x)
	}
	for _, x := range sc.NodePools {
		objs = append(objs, x)
	}
	for _, x := range sc.NodeClaims {
		objs = append(objs, x)
	}
	for _, x := range sc.Nodes {
		objs = append(objs, x)
	}
	for _, x := range sc.DaemonSets {
		objs = append(objs, x)
	}
	for _, x := range sc.Pods {
		objs = append(objs, x)
	}
	for _, o := range objs {
		if err := create(o); err != nil {
			return nil, err
		}
	}
	for _, nc := range sc.NodeClaims {
		e.cluster.UpdateNodeClaim(nc.DeepCopy())
	}
	for _, n := range sc.Nodes {
		if err := e.cluster.UpdateNode(ctx, n.DeepCopy()); err != nil {
			return nil, err
		}
	}
	for _, d := range sc.DaemonSets {
		if err := e.cluster.UpdateDaemonSet(ctx, d); err != nil {
			return nil, err
		}
	}
	for _, p := range sc.Pods {
		if err := e.cluster.UpdatePod(ctx, p.DeepCopy()); err != nil {
			return nil, fmt.Errorf("pod %s on node %q: %w", p.Name, p.Spec.NodeName, err)
		}
	}
	if !e.cluster.Synced(ctx) {
		return nil, fmt.Errorf("cluster state isn't synced")
	}
	return e, nil
}

func (e *Env) schedulerOpts() []scheduling.Options {
	o := options.FromContext(e.ctx)
	opts := []scheduling.Options{
		scheduling.NumConcurrentReconciles(int(math.Ceil(float64(o.CPURequests) / 1000.0))),
		scheduling.MinValuesPolicy(o.MinValuesPolicy),
	}
	if !e.sc.Options.ReservedFallback {
		opts = append(opts, scheduling.DisableReservedCapacityFallback)
	}
	if o.PreferencePolicy == options.PreferencePolicyIgnore {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	return opts
}

// nodePrice is the price of the offering which a running node uses
func (e *Env) nodePrice(n *corev1.Node) (float64, bool) {
	it := e.its[n.Labels[corev1.LabelInstanceTypeStable]]
	if it == nil {
		return 0, false
	}
	if id := n.Labels[v1alpha1.LabelReservationID]; id != "" {
		for _, o := range it.Offerings {
			if o.ReservationID() == id && o.Zone() == n.Labels[corev1.LabelTopologyZone] {
				return o.Price, true
			}
		}
	}
	return it.OfferingPrice(n.Labels[corev1.LabelTopologyZone], n.Labels[v1.CapacityTypeLabelKey])
}

// clusterCost counts nodes, and claims which have no node yet
func (e *Env) clusterCost() (cost float64, nodes int) {
	l := &corev1.NodeList{}
	lo.Must0(e.client.List(e.ctx, l))
	for i := range l.Items {
		p, _ := e.nodePrice(&l.Items[i])
		cost += p
		nodes++
	}
	for _, nc := range e.inflight() {
		p, _ := e.nodePrice(&corev1.Node{ObjectMeta: nc.ObjectMeta})
		cost += p
		nodes++
	}
	return
}

// inflight lists the claims without a node
func (e *Env) inflight() []*v1.NodeClaim {
	nodes, claims := &corev1.NodeList{}, &v1.NodeClaimList{}
	lo.Must0(e.client.List(e.ctx, nodes))
	lo.Must0(e.client.List(e.ctx, claims))
	ids := map[string]bool{}
	for _, n := range nodes.Items {
		ids[n.Spec.ProviderID] = true
	}
	var out []*v1.NodeClaim
	for i := range claims.Items {
		if !ids[claims.Items[i].Status.ProviderID] {
			out = append(out, &claims.Items[i])
		}
	}
	return out
}

// materialize lets all in-flight claims become initialized nodes, as time would
func (e *Env) materialize() error {
	for _, nc := range e.inflight() {
		node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: nc.Status.ProviderID, Taints: nc.Spec.Taints}}
		node.Name, node.UID, node.Annotations = nc.Name, fixedUID("node/"+nc.Name), nc.Annotations
		node.Labels = lo.Assign(map[string]string{corev1.LabelHostname: nc.Name}, nc.Labels, map[string]string{v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"})
		node.CreationTimestamp.Time = time.Now().Add(-time.Hour).Truncate(time.Second)
		node.Status.Capacity, node.Status.Allocatable = nc.Status.Capacity, nc.Status.Allocatable
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, c := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
			nc.StatusConditions().SetTrue(c)
		}
		nc.Status.NodeName = nc.Name
		if err := e.client.Update(e.ctx, nc); err != nil {
			return err
		}
		if err := e.client.Create(e.ctx, node.DeepCopy()); err != nil {
			return err
		}
		e.cluster.UpdateNodeClaim(nc)
		if err := e.cluster.UpdateNode(e.ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// cheapest is the offering which gets launched: the cheapest available one which is compatible with the requirements,
// among all the instance types of the claim (the same choice as the kwok provider's, but the first one wins ties).
func cheapest(its []*cloudprovider.InstanceType, reqs kscheduling.Requirements) (*cloudprovider.InstanceType, *cloudprovider.Offering) {
	var bit *cloudprovider.InstanceType
	var bo *cloudprovider.Offering
	for _, it := range its {
		for _, o := range it.Offerings.Available().Compatible(reqs) {
			if bo == nil || o.Price < bo.Price {
				bit, bo = it, o
			}
		}
	}
	return bit, bo
}

// launch turns a NodeClaim of the scheduler into a running, initialized node and binds the given pods to it.
func (e *Env) launch(n *scheduling.NodeClaim, pods []*corev1.Pod) (*corev1.Node, error) {
	its := append([]*cloudprovider.InstanceType{}, n.InstanceTypeOptions...)
	reqs := kscheduling.NewRequirements(n.Requirements.Values()...)
	nc := n.ToNodeClaim()
	it, of := cheapest(its, reqs)
	if it == nil {
		return nil, fmt.Errorf("nothing to launch")
	}
	var name string
	for { // names of earlier nodes aren't used again
		e.seq++
		name = fmt.Sprintf("%s-n%05d", n.NodePoolName, e.seq)
		if err := e.client.Get(e.ctx, client.ObjectKey{Name: name}, &corev1.Node{}); apierrors.IsNotFound(err) {
			break
		}
	}
	labels := lo.Assign(nc.Labels)
	for _, r := range nc.Spec.Requirements {
		if len(r.Values) == 1 && r.Operator == corev1.NodeSelectorOpIn {
			labels[r.Key] = r.Values[0]
		}
	}
	for _, rs := range []kscheduling.Requirements{it.Requirements, of.Requirements} {
		for _, r := range rs {
			if r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
				labels[r.Key] = r.Values()[0]
			}
		}
	}
	labels[corev1.LabelInstanceTypeStable] = it.Name
	labels[corev1.LabelHostname] = name
	if labels[corev1.LabelOSStable] == "" {
		labels[corev1.LabelOSStable] = "linux" // fake instance types offer several
	}
	labels[v1.NodeRegisteredLabelKey], labels[v1.NodeInitializedLabelKey] = "true", "true"
	node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "reference:///" + name, Taints: nc.Spec.Taints}}
	node.Name, node.UID, node.Labels, node.Annotations = name, fixedUID("node/"+name), labels, nc.Annotations
	node.CreationTimestamp.Time = time.Now().Add(-time.Hour).Truncate(time.Second)
	node.Status.Capacity, node.Status.Allocatable = it.Capacity, it.Allocatable()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	claim := claimForNode(node)
	claim.Spec = nc.Spec
	claim.Annotations = nc.Annotations
	claim.Spec.NodeClassRef = nodeClassRef
	for _, o := range []client.Object{claim.DeepCopy(), node.DeepCopy()} {
		if err := e.client.Create(e.ctx, o); err != nil {
			return nil, err
		}
	}
	e.cluster.UpdateNodeClaim(claim)
	if err := e.cluster.UpdateNode(e.ctx, node.DeepCopy()); err != nil {
		return nil, err
	}
	return node, e.bind(name, pods...)
}

// bind moves pods (of which the scheduler may have changed its copy) to a node
func (e *Env) bind(node string, pods ...*corev1.Pod) error {
	for _, p := range pods {
		stored := &corev1.Pod{}
		if err := e.client.Get(e.ctx, client.ObjectKeyFromObject(p), stored); err != nil {
			return err
		}
		stored.Spec.NodeName = node
		stored.Status.Phase = corev1.PodRunning
		stored.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		if err := e.client.Update(e.ctx, stored); err != nil {
			return err
		}
		if err := e.cluster.UpdatePod(e.ctx, stored.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) removeNode(node *corev1.Node, claim *v1.NodeClaim) error {
	pods := &corev1.PodList{}
	if err := e.client.List(e.ctx, pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return err
	}
	for i := range pods.Items { // what's left: DaemonSet and static pods
		if err := e.client.Delete(e.ctx, &pods.Items[i]); err != nil {
			return err
		}
		e.cluster.DeletePod(client.ObjectKeyFromObject(&pods.Items[i]))
	}
	if claim != nil {
		if err := client.IgnoreNotFound(e.client.Delete(e.ctx, claim)); err != nil {
			return err
		}
		e.cluster.DeleteNodeClaim(claim.Name)
	}
	if err := client.IgnoreNotFound(e.client.Delete(e.ctx, node)); err != nil {
		return err
	}
	e.cluster.DeleteNode(node.Name)
	return nil
}
