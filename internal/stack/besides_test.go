package stack

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestBesides(t *testing.T) {
	pod := func(template string) Configuration {
		return Configuration{Pod: Pod{Account: "runs", Template: json.RawMessage(template)}}
	}
	for name, tt := range map[string]struct {
		of   Configuration
		want []string
	}{
		"a source and values": {Configuration{Source: &Ref{Name: "s"}, Vars: []Var{{Name: "a"}}, VarFiles: []string{"a.tfvars"}}, nil},
		"files":               {Configuration{Files: []File{{Path: "templates/a.json"}}}, []string{"fileMappings"}},
		"a command line":      {Configuration{CLIConfig: &Ref{Name: "cli"}}, []string{"cliConfigSecretRef"}},
		"a text":              {Configuration{Script: &Script{Destroy: ScriptText{Text: "rm"}}}, []string{"scripts"}},
		"a text elsewhere":    {Configuration{Script: &Script{Apply: ScriptText{Config: &KeyRef{Name: "c"}}}}, []string{"scripts"}},
		"a file of scripts":   {Configuration{Script: &Script{Apply: ScriptText{Path: "apply.sh"}, Destroy: ScriptText{Path: "destroy.sh"}}}, nil},
		"a pod of its own":    {pod(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"terrier-runner","resources":{}}],"volumes":[{"name":"v"}]}}`), nil},
		"an image":            {pod(`{"spec":{"containers":[{"image":"evil"},{"image":"other"}]}}`), []string{"runnerPodTemplate.spec.image"}},
		"what runs before":    {pod(`{"spec":{"initContainers":[{"image":"evil"}]}}`), []string{"runnerPodTemplate.spec.initContainers"}},
		"what is mounted":     {pod(`{"spec":{"containers":[{"volumeMounts":[{"mountPath":"/usr/bin"}]}]}}`), []string{"runnerPodTemplate.spec.volumeMounts"}},
		"no pod":              {pod(`[`), []string{"runnerPodTemplate"}},
	} {
		if got := tt.of.Besides(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: Besides() = %q, want %q", name, got, tt.want)
		}
	}
}
