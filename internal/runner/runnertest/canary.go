package runnertest

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Secrets of every kind that a run may hold, each of which a module also tries
// to print.
const (
	inputCanary  = "canary-input-5f2c\"quoted\\and\nsecond-line-of-it"
	envCanary    = "canary-env-8d41"
	outputCanary = "canary-output-77aa"
)

const leaky = `
variable "secret" {
  type      = string
  sensitive = true
}
resource "terraform_data" "a" {
  input = var.secret
}
resource "terraform_data" "b" {
  input = "${nonsensitive(var.secret)}-and-more"
}
resource "terraform_data" "c" {
  triggers_replace = [var.secret]
  provisioner "local-exec" {
    command = "echo $CANARY; echo $ENCODED; printf '%s' \"$SECRET\" >&2"
    environment = {
      SECRET  = nonsensitive(var.secret)
      ENCODED = base64encode(nonsensitive(var.secret))
    }
  }
}
output "plain" {
  value = nonsensitive(var.secret)
}
output "hidden" {
  sensitive = true
  value     = "canary-output-${terraform_data.d.output}"
}
resource "terraform_data" "d" {
  input = "77aa"
}
`

func canary(t *testing.T, f Fixture) {
	r := f.New(t)
	s := f.stack(t, r, leaky)
	s.Job.Env = map[string]string{"TF_VAR_secret": inputCanary, "CANARY": envCanary}
	s.Job.Mask = []string{inputCanary, envCanary}
	s.Job.Options.ReadableText = true

	sweep := func(id string) {
		t.Helper()
		for _, file := range []string{runner.FileLog, runner.FileEvents, runner.FilePlanDoc, runner.FilePlanTxt, runner.FileLockHCL} {
			data := s.Read(id, file)
			for _, secret := range []string{"canary-input", "canary-env", outputCanary, "second-line-of-it", "Y2FuYXJ5LWlucHV0LTVm"} {
				if Has(secret, data) {
					t.Errorf("%s of %s holds %q:\n%s", file, id, secret, data)
				}
			}
		}
	}
	id := s.Start(stack.PlanRun)
	s.Await()
	sweep(id)
	plan := s.Finish(id)
	id = s.Start(stack.ApplyRun, Saved(plan))
	s.Await()
	sweep(id)
	if d := s.Finish(id); d.Outcome != stack.Succeeded || !Has(outputCanary, d.Outputs) {
		t.Errorf("ended %s with the outputs %s; want them in clear where they belong: %s", d.Outcome, d.Outputs, d.Message)
	}
	// The state's own marks are known to the next run.
	id = s.Start(stack.PlanRun, func(j *runner.Job) {
		j.Mask = nil
		j.Files[0].Content = []byte(leaky + "check \"x\" {\n  assert {\n    condition     = terraform_data.d.output == \"other\"\n    error_message = \"now canary-output-77aa\"\n  }\n}\n")
	})
	s.Await()
	for _, file := range []string{runner.FileLog, runner.FileEvents} {
		if data := s.Read(id, file); Has(outputCanary, data) || !Has("now ", data) {
			t.Errorf("%s shows a sensitive output, or not the message around it:\n%s", file, data)
		}
	}
	s.Finish(id)
}
