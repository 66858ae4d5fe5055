// Reads YAML texts and writes what KubeRay would send to Ray for each; ../dump.py runs it.
//
// KubeRay decodes serveConfigV2 with apimachinery's Unmarshal into a map and encodes the map with encoding/json.
// stdin: a JSON list of texts. stdout: a JSON list of {"json": …} or {"error": …} in the same order.
package main

import (
	"encoding/json"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
)

type answer struct {
	JSON  string `json:"json,omitempty"`
	Error string `json:"error,omitempty"`
}

func read(text string) answer {
	config := make(map[string]any)
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return answer{Error: err.Error()}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{JSON: string(encoded)}
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		panic(err)
	}
	answers := make([]answer, len(texts))
	for index, text := range texts {
		answers[index] = read(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
