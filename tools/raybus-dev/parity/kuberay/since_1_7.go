//go:build !kuberay_1_6

package main

import (
	"context"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/pkg/features"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Release is the first version of KubeRay that this file is for.
const Release = "1.7"

func addOthers(known *runtime.Scheme) error { return certmanagerv1.AddToScheme(known) }

func otherLists() []client.ObjectList {
	return []client.ObjectList{&certmanagerv1.IssuerList{}, &certmanagerv1.CertificateList{}}
}

// controllersOf makes the controllers that main.go of KubeRay makes for RayClusters.
func controllersOf(ctx context.Context, manager Manager, settings Settings) ([]Controller, error) {
	schedulers, err := batchscheduler.NewSchedulerManager(ctx, settings.configuration(), nil, manager.GetClient())
	if err != nil {
		return nil, err
	}
	found := []Controller{}
	if features.Enabled(features.RayClusterMTLS) {
		found = append(found, ray.NewRayClusterMTLSController(manager))
	}
	if features.Enabled(features.RayClusterNetworkPolicy) {
		controller, err := ray.NewNetworkPolicyController(manager)
		if err != nil {
			return nil, err
		}
		found = append(found, controller)
	}
	return append(found, ray.NewReconciler(manager, ray.RayClusterReconcilerOptions{
		HeadSidecarContainers:   settings.HeadSidecars,
		WorkerSidecarContainers: settings.WorkerSidecars,
		DefaultContainerEnvs:    settings.ContainerEnvs,
		DefaultPodAnnotations:   settings.PodAnnotations,
		DefaultPodLabels:        settings.PodLabels,
		IsOpenShift:             settings.IsOpenShift,
		UseIngressOnOpenShift:   utils.ShouldUseIngressOnOpenShift(),
		CertManagerAvailable:    true,
		BatchSchedulerManager:   schedulers,
	})), nil
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
