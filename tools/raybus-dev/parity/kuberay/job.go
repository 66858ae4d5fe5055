package main

import (
	"context"
	"fmt"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/common"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/dashboardclient"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// noDashboards gives no client of a dashboard: a job is not followed.
type noDashboards struct{}

func (noDashboards) GetDashboardClient(context.Context, manager.Manager) func(*rayv1.RayCluster, string) (dashboardclient.RayDashboardClientInterface, error) {
	return func(*rayv1.RayCluster, string) (dashboardclient.RayDashboardClientInterface, error) {
		return nil, fmt.Errorf("no dashboard")
	}
}

func (noDashboards) GetHttpProxyClient(manager.Manager) func(string, string, string, int) utils.RayHttpProxyClientInterface {
	return nil
}

// ofJob returns what KubeRay makes of a RayJob that is about to start: the first problem of its manifest or of its start, the
// objects that it creates, and its head Service. Other objects are those that exist before.
func ofJob(ctx context.Context, request Request) Response {
	job := request.Job
	built := map[string]any{"problem": ""}
	response := Response{Built: built, Objects: []any{}}
	for _, validate := range []func() error{
		func() error { return utils.ValidateRayJobMetadata(job.ObjectMeta) },
		func() error { return utils.ValidateRayJobSpec(job) },
	} {
		if err := validate(); err != nil {
			built["problem"] = err.Error()
			return response
		}
	}
	world, err := newWorld(request.Objects)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	if err := world.client.Create(ctx, job.DeepCopy()); err != nil {
		return Response{Panic: err.Error()}
	}
	stored := &rayv1.RayJob{}
	if err := world.client.Get(ctx, client.ObjectKeyFromObject(job), stored); err != nil {
		return Response{Panic: err.Error()}
	}
	stored.Status = job.Status
	if err := world.client.Status().Update(ctx, stored); err != nil {
		return Response{Panic: err.Error()}
	}
	controller, err := jobController(ctx, Manager{world: world, recorder: &Recorder{}}, request.Settings)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	_, err = controller.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
	if built["problem"] = text(err); err != nil {
		return response
	}
	objects, _, err := world.dump(ctx)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	for _, each := range objects {
		switch object := each.(type) {
		case *rayv1.RayJob:
			continue
		case *rayv1.RayCluster:
			built["cluster"] = object.Spec
		}
		response.Objects = append(response.Objects, each)
	}
	if len(job.Spec.ClusterSelector) == 0 {
		cluster := rayv1.RayCluster{
			ObjectMeta: metav1.ObjectMeta{Name: job.Status.RayClusterName, Namespace: job.Namespace},
			Spec:       *job.Spec.RayClusterSpec,
		}
		head, err := common.BuildHeadServiceForRayJob(ctx, *job, cluster)
		built["head"], built["headProblem"] = head, text(err)
	}
	return response
}
