//go:build kuberay_1_6

package main

import (
	"context"

	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Release is the last version of KubeRay that this file is for.
const Release = "1.6"

func addOthers(*runtime.Scheme) error { return nil }

func otherLists() []client.ObjectList { return nil }

// controllersOf makes the controller that main.go of KubeRay makes for RayClusters.
func controllersOf(ctx context.Context, manager Manager, settings Settings) ([]Controller, error) {
	schedulers, err := batchscheduler.NewSchedulerManager(ctx, settings.configuration(), nil, manager.GetClient())
	if err != nil {
		return nil, err
	}
	return []Controller{ray.NewReconciler(ctx, manager, ray.RayClusterReconcilerOptions{
		HeadSidecarContainers:   settings.HeadSidecars,
		WorkerSidecarContainers: settings.WorkerSidecars,
		DefaultContainerEnvs:    settings.ContainerEnvs,
		IsOpenShift:             settings.IsOpenShift,
		BatchSchedulerManager:   schedulers,
	})}, nil
}

// jobController makes the controller that main.go of KubeRay makes for RayJobs.
func jobController(ctx context.Context, manager Manager, settings Settings) (Controller, error) {
	options := ray.RayJobReconcilerOptions{}
	if settings.Scheduler != "" {
		schedulers, err := batchscheduler.NewSchedulerManager(ctx, settings.configuration(), nil, manager.GetClient())
		if err != nil {
			return nil, err
		}
		options.BatchSchedulerManager = schedulers
	}
	return ray.NewRayJobReconciler(ctx, manager, options, noDashboards{}), nil
}

// ofCronJob compares nothing: these versions name the RayJobs at random, and know no time zones.
func ofCronJob(context.Context, Request) Response { return Response{Objects: []any{}} }
