// Command parity runs KubeRay's own reconcilers on an API server in memory.
//
// Each line of standard input is a Request, each line of standard output its Response, in the same order. The first line of
// output describes the build: the version, and the feature gates that it knows.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Largest is the longest line that is read.
const Largest = 64 << 20

// Request is one case: an operator's configuration, and what the API server holds.
type Request struct {
	Settings Settings          `json:"settings"`
	Objects  []json.RawMessage `json:"objects"`
	Service  *rayv1.RayService `json:"service,omitempty"`
	Job      *rayv1.RayJob     `json:"job,omitempty"`
	CronJob  *rayv1.RayCronJob `json:"cronJob,omitempty"`
}

// Response is what the API server holds once nothing changes any more, and what happened until then.
type Response struct {
	Objects []any    `json:"objects"`
	Events  []Event  `json:"events"`
	Writes  []string `json:"writes"`
	Error   string   `json:"error,omitempty"`
	Passes  int      `json:"passes"`
	Hashes  []string `json:"hashes,omitempty"`
	Built   any      `json:"built,omitempty"`
	Panic   string   `json:"panic,omitempty"`
}

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	out := json.NewEncoder(os.Stdout)
	os.Stdout, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0) // for what KubeRay prints
	if err := out.Encode(build()); err != nil {
		os.Exit(1)
	}
	lines := bufio.NewReaderSize(os.Stdin, Largest)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 || err != nil {
			return
		}
		if err := out.Encode(answer(line)); err != nil {
			os.Exit(1)
		}
	}
}

func build() map[string]any {
	gates := []string{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		gates = append(gates, string(gate))
	}
	return map[string]any{"version": utils.KUBERAY_VERSION, "release": Release, "gates": gates}
}

// answer never fails: what cannot be read, and what makes KubeRay panic, is part of the response.
func answer(line []byte) (response Response) {
	defer func() {
		if problem := recover(); problem != nil {
			response.Panic = fmt.Sprintf("%v\n%s", problem, debug.Stack())
		}
	}()
	request := Request{}
	if err := json.Unmarshal(line, &request); err != nil {
		return Response{Panic: fmt.Sprintf("unreadable request: %v", err)}
	}
	restore, err := request.Settings.apply()
	defer restore()
	if err != nil {
		return Response{Panic: fmt.Sprintf("settings: %v", err)}
	}
	if request.Service != nil {
		return ofService(context.Background(), request.Service)
	}
	if request.CronJob != nil {
		return ofCronJob(context.Background(), request)
	}
	if request.Job != nil {
		return ofJob(context.Background(), request)
	}
	return ofCluster(context.Background(), request)
}
