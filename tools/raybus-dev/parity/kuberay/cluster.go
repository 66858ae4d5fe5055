package main

import (
	"context"
	"slices"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Most is after how many passes a case counts as one that does not come to rest.
const Most = 15

// Controller is any of KubeRay's.
type Controller interface {
	Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error)
}

// Manager is what KubeRay's controllers are made from.
type Manager struct {
	manager.Manager
	world    *World
	recorder *Recorder
}

// GetClient returns the API server in memory.
func (m Manager) GetClient() client.Client { return m.world.client }

// GetScheme returns all kinds.
func (m Manager) GetScheme() *runtime.Scheme { return scheme }

// GetEventRecorder returns what newer controllers report to.
func (m Manager) GetEventRecorder(string) events.EventRecorder { return Modern{m.recorder} }

// GetEventRecorderFor returns what older controllers report to.
func (m Manager) GetEventRecorderFor(string) record.EventRecorder { return Legacy{m.recorder} }

// GetFieldIndexer returns an indexer that indexes nothing.
func (m Manager) GetFieldIndexer() client.FieldIndexer { return noIndexer{} }

type noIndexer struct{}

func (noIndexer) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// ofCluster reconciles all RayClusters of a case until nothing changes any more.
func ofCluster(ctx context.Context, request Request) Response {
	world, err := newWorld(request.Objects)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	recorder := &Recorder{}
	controllers, err := controllersOf(ctx, Manager{world: world, recorder: recorder}, request.Settings)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	response := Response{Writes: []string{}, Events: []Event{}}
	objects, before, err := world.dump(ctx)
	for err == nil && response.Passes < Most {
		response.Passes++
		response.Error = reconcile(ctx, controllers, world.client)
		after := ""
		objects, after, err = world.dump(ctx)
		if before == after {
			break
		}
		before = after
	}
	if err != nil {
		return Response{Panic: err.Error()}
	}
	response.Objects, response.Writes = objects, append(response.Writes, world.writes...)
	for _, each := range recorder.events {
		if !slices.Contains(response.Events, each) {
			response.Events = append(response.Events, each)
		}
	}
	for _, each := range objects {
		if cluster, is := each.(*rayv1.RayCluster); is {
			hash, err := utils.GenerateHashWithoutReplicasAndWorkersToDelete(cluster.Spec)
			if err != nil {
				return Response{Panic: err.Error()}
			}
			response.Hashes = append(response.Hashes, hash)
		}
	}
	return response
}

// reconcile passes once over each cluster; the result is the error of the last controller that failed.
func reconcile(ctx context.Context, controllers []Controller, reader client.Client) string {
	clusters := rayv1.RayClusterList{}
	if err := reader.List(ctx, &clusters, client.InNamespace(Namespace)); err != nil {
		return err.Error()
	}
	found := ""
	for _, cluster := range clusters.Items {
		for _, controller := range controllers {
			if _, err := controller.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&cluster)}); err != nil {
				found = err.Error()
			}
		}
	}
	return found
}
