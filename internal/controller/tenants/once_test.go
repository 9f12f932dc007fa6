package tenants

import "testing"

// What was made once and retained is the tenant's again when the tenant comes back,
// and holds what it held: it may be a password that is stored nowhere else.
func TestWhatWasMadeOnceComesBackAsItWas(t *testing.T) {
	l := newLab(t)
	entry := "configMaps:" + configMap("config", "creationPolicy: Once", "deletionPolicy: Retain", "conflictPolicy: Force")
	l.tenant(entry)
	l.look()
	l.edit("ConfigMap", "acme-config", func(o map[string]any) { o["data"] = map[string]any{"host": "made once"} })
	l.deleteTenant()
	l.look()
	if l.child("ConfigMap", "acme-config").GetLabels()["kubernetes-tenants.org/orphaned"] != "true" {
		t.Fatal("what is retained is not marked")
	}
	l.restart()
	l.tenant(entry)
	l.look()
	l.wantStates("back again, where all is ready", "")
	u := l.child("ConfigMap", "acme-config")
	if data := u.Object["data"].(map[string]any); data["host"] != "made once" {
		t.Errorf("it holds %v now", data)
	}
	labels := u.GetLabels()
	if labels["kubernetes-tenants.org/orphaned"] != "" || labels["kubernetes-tenants.org/tenant"] == "" {
		t.Errorf("it is not the tenant's again: labels %v", labels)
	}
}
