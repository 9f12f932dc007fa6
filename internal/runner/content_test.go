package runner

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

// F46: a supervisor does not begin a run of which it only understands a part.
func TestJobOfTheFutureIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"of a later release":             fmt.Sprintf(`{"version":%d,"job":{"ID":"x","Stack":"s"}}`, JobVersion+1),
		"of before states had a cluster": `{"version":4,"job":{"ID":"x","Stack":"s","Backend":{"Name":"aws"}}}`,
		"of before jobs by digest":       `{"Version":1,"ID":"x","Stack":"s","Tree":{"Archive":"/a"}}`,
		"of before versions":             `{"ID":"x","Stack":"s"}`,
	} {
		if _, err := ReadOrder(strings.NewReader(text + "\n")); fault.Of(err) != fault.Later || fault.Reason(err, "") != SupervisorTooOld {
			t.Errorf("a job %s: %v, want Later", name, err)
		} else if !strings.Contains(err.Error(), "has to be of the release of the controller") {
			t.Errorf("a job %s: %v, want the way out", name, err)
		}
	}
}

// Content reaches the supervisor as it was, beside the job and not in it.
func TestContentTravelsBesideTheJob(t *testing.T) {
	sent := Order{Version: JobVersion, Job: Job{ID: "x", Stack: "s", State: ContentOf([]byte("a state\n")), LockFile: ContentOf([]byte{})}, Host: Host{Archive: "/a"}}
	var wire bytes.Buffer
	if err := sent.Write(&wire); err != nil {
		t.Fatal(err)
	}
	text := wire.String()
	if n := strings.Count(text, "a state"); n != 1 || !strings.HasSuffix(text, "}\na state\n") {
		t.Errorf("the order is %q, want the content once, after the job", text)
	}
	got, err := ReadOrder(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Job.State.Bytes()) != "a state\n" || got.Job.LockFile.Digest == "" || got.Job.Plan.Digest != "" || got.Host.Archive != "/a" {
		t.Errorf("ReadOrder() = %+v", got)
	}
	for name, wrong := range map[string]string{"cut": text[:len(text)-1], "changed": strings.Replace(text, "a state\n", "b state\n", 1)} {
		if _, err := ReadOrder(strings.NewReader(wrong)); err == nil {
			t.Errorf("an order whose content was %s is read without an error", name)
		}
	}
}
