package command

import (
	"strings"
	"testing"
)

// A stack that is created without its state creates every resource a second time, unless it is
// suspended until a user has uploaded the state. So all advice to upload one says so, in this order.
func TestAStateIsUploadedToASuspendedStack(t *testing.T) {
	said := 0
	for _, former := range []bool{false, true} {
		for _, kept := range []bool{false, true} {
			for _, kind := range []string{"", "terraform.alustan.io"} {
				r := Retained{Namespace: "apps", Name: "net", Kind: kind, UID: "u", Former: former, Kept: kept}
				for _, way := range r.ways() {
					push := strings.Index(way, "terrier state push "+r.Key().Argument()+" FILE -n apps")
					if push < 0 && strings.Contains(way, "state push") {
						t.Errorf("%q does not say to which stack", way)
					}
					if push < 0 {
						continue
					}
					said++
					before, after := strings.Index(way, "under its name, suspended (spec.suspend: true"), strings.Index(way, "terrier resume "+r.Key().Argument()+" -n apps")
					if before < 0 || before > push || after < push {
						t.Errorf("%q does not say that the stack is suspended until then", way)
					}
				}
			}
		}
	}
	if said != 8 {
		t.Errorf("%d ways say to upload a state, want 8", said)
	}
}
