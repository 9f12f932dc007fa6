package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// prerequisiteOf waits until the condition of a prerequisite of a stack is so.
func prerequisiteOf(t *testing.T, c *testkit.Cluster, name, of, want string) *v1alpha2.Terraform {
	t.Helper()
	return c.Await(t, name, func(s *v1alpha2.Terraform) error {
		if got := conditionOf(s, prerequisite.ConditionPrefix+of); got != want {
			return fmt.Errorf("the prerequisite %s is %s, want %s", of, got, want)
		}
		return nil
	})
}

// A tenant waits for its VLAN, its scope of DHCP and its zone of the firewall, is told of
// each, and goes on by itself. What vanishes later destroys nothing.
func TestPrerequisites(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	substrate, ipam := testkit.NewGit(t), newService(t, false)
	substrate.Commit(map[string]string{"net/vlans.yaml": "vlans:\n- {id: 200, name: vintronics}\n"})
	host, port, err := net.SplitHostPort(ipam.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, substrate.Manifest("substrate"))
	c.Apply(t, strings.Replace(inline("grooveiq", "approvePlan: auto\nretryInterval: 1s\ndestroyResourcesOnDeletion: true", things(w, "1", "vm")), "metadata: {name: grooveiq}", `metadata:
  name: grooveiq
  annotations:
    terrier.dev/prerequisites: |
      - name: vlan
        file:
          sourceRef: {kind: GitRepository, name: substrate}
          path: net/vlans.yaml
          pointer: "{.vlans[?(@.id==100)].name}"
          equals: grooveiq
      - name: scope
        object: {apiVersion: v1, kind: ConfigMap, name: dhcp, field: .data.grooveiq, equals: static}
      - name: zone
        output: {name: firewall, key: zone, equals: tenant}
      - name: ipam
        http: {url: "http://`+ipam.Listener.Addr().String()+`/ready"}
      - name: gateway
        tcp: {host: "`+host+`", port: `+port+`}
`, 1))
	for of, want := range map[string]string{"vlan": "False/NotFound", "scope": "False/NotFound", "zone": "False/NotFound", "ipam": "False/NoAnswer", "gateway": "True/Met"} {
		prerequisiteOf(t, c, "grooveiq", of, want)
	}
	s := c.AwaitReason(t, "grooveiq", "PrerequisiteMissing")
	for _, want := range []string{"Waiting for 4 prerequisites: vlan: ", "scope: ConfigMap " + c.Namespace + "/dhcp does not exist", "zone: the stack " + c.Namespace + "/firewall does not exist", "ipam: http://", "answers with 503, and must answer with 200"} {
		if got := message(s); !strings.Contains(got, want) {
			t.Errorf("the message is %q, want %q in it", got, want)
		}
	}
	if s.Status.Plan.Pending != "" || s.Status.LastPlannedRevision != "" || len(w.Things()) != 0 {
		t.Errorf("without its prerequisites it has planned %q, and there are %+v", s.Status.LastPlannedRevision, w.Things())
	}

	// One after the other is made, by others than the stack.
	c.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dhcp}\ndata: {grooveiq: static}\n")
	c.Apply(t, inline("firewall", "approvePlan: auto", "output \"zone\" { value = \"tenant\" }"))
	prerequisiteOf(t, c, "grooveiq", "scope", "True/Met")
	prerequisiteOf(t, c, "grooveiq", "zone", "True/Met")
	substrate.Commit(map[string]string{"net/vlans.yaml": "vlans:\n- {id: 100, name: grooveiq}\n"})
	c.Kubectl(t, "annotate", "gitrepository/substrate", "reconcile.fluxcd.io/requestedAt=now")
	prerequisiteOf(t, c, "grooveiq", "vlan", "True/Met")
	if s := c.AwaitReason(t, "grooveiq", "PrerequisiteMissing"); !strings.HasPrefix(message(s), "Waiting for 1 prerequisite: ipam: ") {
		t.Errorf("the message is %q, want that of the last one", message(s))
	}
	ipam.well.Store(true)
	s = c.AwaitReady(t, "grooveiq")
	if len(w.Named("vm")) != 1 || s.Generation != 1 {
		t.Errorf("there are %+v after the stack was edited %d times, want the machine, without an edit", w.Things(), s.Generation-1)
	}

	// What vanishes is shown, and nothing is destroyed. The next plan waits.
	c.Kubectl(t, "delete", "configmap/dhcp")
	s = prerequisiteOf(t, c, "grooveiq", "scope", "False/NotFound")
	if !meta.IsStatusConditionTrue(s.Status.Conditions, "Ready") || len(w.Named("vm")) != 1 {
		t.Errorf("after a prerequisite has vanished: %s; there are %+v", message(s), w.Things())
	}
	c.Patch(t, "grooveiq", `{"spec":{"vars":[{"name":"unused","value":"1"}]}}`)
	if s = c.AwaitReason(t, "grooveiq", "PrerequisiteMissing"); len(w.Named("vm")) != 1 {
		t.Errorf("%s, and there are %+v", message(s), w.Things())
	}
	// A deletion needs no prerequisites.
	c.Delete(t, "grooveiq")
	c.AwaitGone(t, "grooveiq")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the deletion has left %+v", left)
	}
}

// A typing error is told when the object is applied, with the place, and stalls this stack alone.
func TestPrerequisitesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	const place = "the annotation terrier.dev/prerequisites: [1].tcp.prot: there is no such field"
	text := strings.Replace(inline("odd", "approvePlan: auto", "output \"a\" { value = 1 }"), "metadata: {name: odd}", `metadata:
  name: odd
  annotations:
    terrier.dev/prerequisites: |
      - {name: a, tcp: {host: gateway.example.com, port: 22}}
      - {name: b, tcp: {host: gateway.example.com, prot: 22}}
`, 1)
	toldBy(t, c, text, place)
	if said, ok := kubectl(t, c, "apply", "-f", manifestFile(t, text)); !ok || !strings.Contains(said, "Warning: "+place) {
		t.Errorf("kubectl says %q, want a warning with the place", said)
	}
	s := c.AwaitReason(t, "odd", "SpecInvalid")
	if !strings.Contains(message(s), place) || !meta.IsStatusConditionTrue(s.Status.Conditions, "Stalled") {
		t.Errorf("the message is %q, want the place, and the stack stalled", message(s))
	}
	c.Kubectl(t, "annotate", "terraform.infra.contrib.fluxcd.io/odd", "--overwrite", "terrier.dev/prerequisites=[]")
	c.AwaitReady(t, "odd")
	c.Await(t, "odd", func(s *v1alpha2.Terraform) error {
		for _, is := range s.Status.Conditions {
			if strings.HasPrefix(is.Type, prerequisite.ConditionPrefix) {
				return errors.New("it has the condition " + is.Type)
			}
		}
		return nil
	})
}

// A system in a private network is not asked, and the user is told what the operator would set.
func TestPrerequisitesInPrivateNetworks(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	c.Apply(t, strings.Replace(inline("far", "approvePlan: auto", "output \"a\" { value = 1 }"), "metadata: {name: far}", `metadata:
  name: far
  annotations:
    terrier.dev/prerequisites: |
      - {name: hypervisor, tcp: {host: 10.255.255.7, port: 8006}}
      - {name: ipam, http: {url: "http://127.0.0.1:1/health", bodyContains: ready}}
`, 1))
	prerequisiteOf(t, c, "far", "hypervisor", "False/Denied")
	prerequisiteOf(t, c, "far", "ipam", "False/Denied")
	s := c.AwaitReason(t, "far", "PrerequisiteMissing")
	for _, want := range []string{"--prerequisite-host 10.255.255.7:8006", "Leave bodyContains out, or have the operator allow it with --prerequisite-body-host 127.0.0.1:1"} {
		if !strings.Contains(message(s), want) {
			t.Errorf("the message is %q, want %q in it", message(s), want)
		}
	}
	if !meta.IsStatusConditionTrue(s.Status.Conditions, "Stalled") {
		t.Errorf("the conditions are %+v, want the stack stalled", s.Status.Conditions)
	}
}
