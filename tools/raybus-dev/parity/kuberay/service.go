package main

import (
	"context"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/common"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ofService returns what depends on a RayService alone: the first problem of its manifest, and the Services and hashes of its cluster.
func ofService(ctx context.Context, service *rayv1.RayService) Response {
	built := map[string]any{"problem": ""}
	response := Response{Built: built}
	for _, validate := range []func() error{
		func() error { return utils.ValidateRayServiceMetadata(service.ObjectMeta) },
		func() error { return utils.ValidateRayServiceSpec(service) },
	} {
		if err := validate(); err != nil {
			built["problem"] = err.Error()
			return response
		}
	}
	cluster := rayv1.RayCluster{
		ObjectMeta: metav1.ObjectMeta{Name: service.Name + "-abcde", Namespace: service.Namespace},
		Spec:       service.Spec.RayClusterSpec,
	}
	hash, err := utils.GenerateHashWithoutReplicasAndWorkersToDelete(cluster.Spec)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	response.Hashes = []string{hash}
	head, err := common.BuildHeadServiceForRayService(ctx, *service, cluster)
	built["head"], built["headProblem"] = head, text(err)
	serve, err := common.BuildServeServiceForRayService(ctx, *service, cluster)
	built["serve"], built["serveProblem"] = serve, text(err)
	return response
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
