package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"

	routev1 "github.com/openshift/api/route/v1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// Namespace holds all objects of a case.
const Namespace = "ns"

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, rbacv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, rayv1.AddToScheme, routev1.Install, volcanov1beta1.AddToScheme, coschedulingv1alpha1.AddToScheme, addOthers,
	} {
		utilruntime.Must(add(known))
	}
	return known
}

// lists returns an empty list of each kind that an operator reads or writes.
func lists() []client.ObjectList {
	return append([]client.ObjectList{
		&rayv1.RayClusterList{}, &rayv1.RayJobList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{},
		&corev1.PersistentVolumeClaimList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &batchv1.JobList{}, &networkingv1.IngressList{},
		&networkingv1.NetworkPolicyList{}, &routev1.RouteList{}, &volcanov1beta1.PodGroupList{}, &coschedulingv1alpha1.PodGroupList{},
	}, otherLists()...)
}

// World is an API server in memory. As the real one, it gives new objects an identity, and Services an address.
type World struct {
	client client.Client
	writes []string
	number int
}

func newWorld(bodies []json.RawMessage) (*World, error) {
	codecs := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	objects := []client.Object{}
	for _, body := range bodies {
		decoded, _, err := codecs.Decode(body, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("unreadable object: %w", err)
		}
		objects = append(objects, decoded.(client.Object))
	}
	world := &World{}
	world.client = fake.NewClientBuilder().
		WithScheme(scheme).
		WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithObjects(objects...).
		WithStatusSubresource(&rayv1.RayCluster{}, &rayv1.RayJob{}, &rayv1.RayCronJob{}, &corev1.Pod{}, &corev1.Service{}, &batchv1.Job{}, &networkingv1.Ingress{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create:      world.create,
			Update:      world.update,
			Delete:      world.delete,
			DeleteAllOf: world.deleteAllOf,
			List:        list,
			Get:         get,
		}).
		Build()
	return world, nil
}

func (w *World) create(ctx context.Context, under client.WithWatch, object client.Object, options ...client.CreateOption) error {
	w.number++
	object.SetUID(types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", w.number)))
	object.SetCreationTimestamp(metav1.Now())
	object.SetGeneration(1)
	defaulted(object)
	err := under.Create(ctx, object, options...)
	if err == nil {
		w.note("create", object)
	}
	return err
}

func (w *World) update(ctx context.Context, under client.WithWatch, object client.Object, options ...client.UpdateOption) error {
	defaulted(object)
	known := object.DeepCopyObject().(client.Object)
	if err := under.Get(ctx, client.ObjectKeyFromObject(object), known); err != nil {
		return err
	}
	object.SetGeneration(known.GetGeneration())
	if !equality.Semantic.DeepEqual(specOf(object), specOf(known)) {
		object.SetGeneration(known.GetGeneration() + 1)
	}
	return under.Update(ctx, object, options...)
}

// specOf returns what has generations; nothing for kinds without.
func specOf(object client.Object) any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	utilruntime.Must(err)
	return fields["spec"]
}

// defaulted sets what the API server sets, as far as an operator decides by it.
func defaulted(object client.Object) {
	switch found := object.(type) {
	case *corev1.Service:
		if found.Spec.ClusterIP == "" && found.Spec.Type != corev1.ServiceTypeExternalName {
			found.Spec.ClusterIP = address(found.Name)
		}
		for i := range found.Spec.Ports {
			port := &found.Spec.Ports[i]
			if port.TargetPort == (intstr.IntOrString{}) {
				port.TargetPort = intstr.FromInt32(port.Port)
			}
			port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
		}
	case *corev1.Pod:
		found.Spec.RestartPolicy = cmp.Or(found.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	case *networkingv1.NetworkPolicy:
		for _, rule := range found.Spec.Ingress {
			protocols(rule.Ports)
		}
		for _, rule := range found.Spec.Egress {
			protocols(rule.Ports)
		}
	}
}

func protocols(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

func (w *World) delete(ctx context.Context, under client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	known := object.DeepCopyObject().(client.Object)
	if err := under.Get(ctx, client.ObjectKeyFromObject(object), known); err != nil {
		return err
	}
	err := under.Delete(ctx, object, options...)
	if err == nil && known.GetDeletionTimestamp().IsZero() {
		w.note("delete", object)
	}
	return err
}

// get tells the kind of what it returns, as a cache does.
func get(ctx context.Context, under client.WithWatch, key client.ObjectKey, found client.Object, options ...client.GetOption) error {
	if err := under.Get(ctx, key, found, options...); err != nil {
		return err
	}
	kind, err := apiutil.GVKForObject(found, scheme)
	if err == nil {
		found.GetObjectKind().SetGroupVersionKind(kind)
	}
	return err
}

// list orders pods, which a cache returns in no order, as raybus removes surplus ones: those that are going first, then those that are
// not ready, then the newest. KubeRay removes the first of them. Heads stay in the order of their names: none is surplus.
func list(ctx context.Context, under client.WithWatch, found client.ObjectList, options ...client.ListOption) error {
	if err := under.List(ctx, found, options...); err != nil {
		return err
	}
	if pods, is := found.(*corev1.PodList); is && !onlyHeads(pods) {
		slices.SortStableFunc(pods.Items, func(one, other corev1.Pod) int {
			return cmp.Or(
				less(!one.DeletionTimestamp.IsZero(), !other.DeletionTimestamp.IsZero()),
				less(!utils.IsRunningAndReady(&one), !utils.IsRunningAndReady(&other)),
				other.CreationTimestamp.Compare(one.CreationTimestamp.Time),
				cmp.Compare(one.Name, other.Name),
			)
		})
	}
	return nil
}

func onlyHeads(pods *corev1.PodList) bool {
	return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Labels[utils.RayNodeTypeLabelKey] != string(rayv1.HeadNode)
	})
}

// less orders what is true before what is not.
func less(one, other bool) int {
	if one == other {
		return 0
	}
	if one {
		return -1
	}
	return 1
}

// deleteAllOf notes each object that goes.
func (w *World) deleteAllOf(ctx context.Context, under client.WithWatch, object client.Object, options ...client.DeleteAllOfOption) error {
	chosen := client.DeleteAllOfOptions{}
	chosen.ApplyOptions(options)
	pods := corev1.PodList{}
	if err := under.List(ctx, &pods, &chosen.ListOptions); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp.IsZero() {
			w.note("delete", &pod)
		}
	}
	return under.DeleteAllOf(ctx, object, options...)
}

func (w *World) note(verb string, object client.Object) {
	kind, err := apiutil.GVKForObject(object, scheme)
	utilruntime.Must(err)
	w.writes = append(w.writes, fmt.Sprintf("%s %s %s", verb, kind.Kind, object.GetName()))
}

// address is the same for the same name, whichever operator made the Service.
func address(name string) string {
	sum := crc32.ChecksumIEEE([]byte(name))
	return fmt.Sprintf("10.96.%d.%d", sum>>8&0xff, sum&0xff)
}

// dump returns all objects, and their text without what each write changes.
func (w *World) dump(ctx context.Context) ([]any, string, error) {
	found, text := []any{}, bytes.Buffer{}
	for _, list := range lists() {
		if err := w.client.List(ctx, list, client.InNamespace(Namespace)); err != nil {
			return nil, "", err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, "", err
		}
		for _, item := range items {
			object := item.(client.Object)
			kind, err := apiutil.GVKForObject(object, scheme)
			if err != nil {
				return nil, "", err
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			object.SetManagedFields(nil)
			found = append(found, object)
			version := object.GetResourceVersion()
			object.SetResourceVersion("")
			if err := json.NewEncoder(&text).Encode(object); err != nil {
				return nil, "", err
			}
			object.SetResourceVersion(version)
		}
	}
	return found, text.String(), nil
}
