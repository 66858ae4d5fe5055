package main

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	configapi "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Settings is how the operator is configured: its flags, its environment, and what the API server serves.
type Settings struct {
	Gates          map[string]bool    `json:"gates"`
	Environment    map[string]string  `json:"environment"`
	Scheduler      string             `json:"scheduler"`
	IsOpenShift    bool               `json:"isOpenShift"`
	HeadSidecars   []corev1.Container `json:"headSidecars"`
	WorkerSidecars []corev1.Container `json:"workerSidecars"`
	ContainerEnvs  []corev1.EnvVar    `json:"containerEnvs"`
	PodAnnotations map[string]string  `json:"podAnnotations"`
	PodLabels      map[string]string  `json:"podLabels"`
}

func (settings Settings) configuration() configapi.Configuration {
	return configapi.Configuration{
		BatchScheduler:          settings.Scheduler,
		HeadSidecarContainers:   settings.HeadSidecars,
		WorkerSidecarContainers: settings.WorkerSidecars,
		DefaultContainerEnvs:    settings.ContainerEnvs,
	}
}

// apply sets gates and environment for the length of a case; the result takes the environment back.
func (settings Settings) apply() (func(), error) {
	for name, value := range settings.Environment {
		os.Setenv(name, value)
	}
	restore := func() {
		for name := range settings.Environment {
			os.Unsetenv(name)
		}
	}
	pairs := []string{}
	for _, gate := range slices.Sorted(maps.Keys(settings.Gates)) {
		pairs = append(pairs, gate+"="+strconv.FormatBool(settings.Gates[gate]))
	}
	return restore, utilfeature.DefaultMutableFeatureGate.Set(strings.Join(pairs, ","))
}
