package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVolumes(t *testing.T) {
	const table = `601 500 0:100 / / ro,relatime - overlay overlay rw
602 601 0:101 / /proc rw,nosuid - proc proc rw
603 601 0:102 / /dev/shm rw,nosuid - tmpfs shm rw
604 601 8:1 /hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw
605 601 0:103 / /run/terrier/work rw,relatime - ext4 /dev/sda1 rw
606 601 0:104 / /run/terrier/token ro,relatime - tmpfs tmpfs rw
607 601 0:105 / /var/run/secrets/eks.amazonaws.com/serviceaccount ro,relatime - tmpfs tmpfs rw
608 601 8:1 /cache /home/my\040cache rw,relatime - ext4 /dev/sda1 rw
609 601 8:1 /a /data/agent rw,relatime - ext4 /dev/sda1 rw
`
	readable, writable, err := volumes(table, "/data/agent", "/data/token")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/var/run/secrets/eks.amazonaws.com/serviceaccount"}, readable); diff != "" {
		t.Errorf("readable (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/home/my cache"}, writable); diff != "" {
		t.Errorf("writable (-want +got):\n%s", diff)
	}
	if _, _, err := volumes("601 500\n"); err == nil {
		t.Error("a table that is none was read")
	}
}

func TestGivenVariables(t *testing.T) {
	got := given([]string{"PATH=/bin", "HOME=/tmp", "AWS_ROLE_ARN=arn", "KUBERNETES_SERVICE_HOST=10.0.0.1", "TERRIER_RUN_URL=x",
		"TF_CLI_ARGS=-x", "HTTPS_PROXY=p", "HTTP_PROXY=q", "LD_PRELOAD=x"}, []string{"HTTPS_PROXY"})
	if diff := cmp.Diff(map[string]string{"AWS_ROLE_ARN": "arn", "HTTPS_PROXY": "p"}, got); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
}

func TestControllerAddress(t *testing.T) {
	for url, want := range map[string]bool{
		"https://terrier.flux-system.svc:8443": true, "https://10.0.0.1": true, "http://127.0.0.1:8080": true, "http://localhost:1": true,
		"http://terrier.flux-system.svc:8080": false, "": false, "terrier:80": false, "https://x/y": false,
	} {
		if _, err := newClient(Options{URL: url}); (err == nil) != want {
			t.Errorf("newClient(%q) = %v, want it to succeed: %v", url, err, want)
		}
	}
}
