//go:build !kuberay_1_6

package main

import (
	"context"
	"strings"
	"time"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/robfig/cron/v3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Runs is how many runs of a schedule are compared.
const Runs = 12

// ofCronJob returns what KubeRay makes of a RayCronJob whose last run was long ago: the first problem of its manifest, its next
// runs, and the RayJob that it creates.
func ofCronJob(ctx context.Context, request Request) Response {
	cronJob := request.CronJob
	built := map[string]any{"problem": ""}
	response := Response{Built: built, Objects: []any{}}
	if err := utils.ValidateRayCronJobSpec(cronJob); err != nil {
		built["problem"] = err.Error()
		return response
	}
	spec := cronJob.Spec.Schedule
	if cronJob.Spec.TimeZone != nil {
		spec = "TZ=" + *cronJob.Spec.TimeZone + " " + spec
	}
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	runs, run := []string{}, cronJob.Status.LastScheduleTime.Time
	for len(runs) < Runs {
		run = schedule.Next(run)
		runs = append(runs, run.UTC().Format(time.RFC3339))
	}
	built["runs"] = strings.Join(runs, " ")
	world, err := newWorld(nil)
	if err != nil {
		return Response{Panic: err.Error()}
	}
	status := cronJob.Status
	if err := world.client.Create(ctx, cronJob); err != nil {
		return Response{Panic: err.Error()}
	}
	cronJob.Status = status
	if err := world.client.Status().Update(ctx, cronJob); err != nil {
		return Response{Panic: err.Error()}
	}
	controller := ray.NewRayCronJobReconciler(Manager{world: world, recorder: &Recorder{}})
	if _, err := controller.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cronJob)}); err != nil {
		built["problem"] = err.Error()
		return response
	}
	jobs := rayv1.RayJobList{}
	if err := world.client.List(ctx, &jobs, client.InNamespace(Namespace)); err != nil {
		return Response{Panic: err.Error()}
	}
	for _, job := range jobs.Items {
		job.SetGroupVersionKind(rayv1.GroupVersion.WithKind("RayJob"))
		response.Objects = append(response.Objects, job)
	}
	return response
}
