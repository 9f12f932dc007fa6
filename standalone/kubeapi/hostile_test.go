package kubeapi

import (
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/kube"
)

// hostile is a stack that ann made and approved, and of which eve may write everything.
type hostile struct {
	*cluster
	epoch string
}

func (h *hostile) stack(version, name string) *unstructured.Unstructured {
	o := parse(h.T, `{spec: {interval: 1h, suspend: true, path: x, approvePlan: p1, sourceRef: {kind: GitRepository, name: none}}}`)
	o.SetAPIVersion("infra.contrib.fluxcd.io/" + version)
	o.SetKind("Terraform")
	o.SetNamespace("default")
	o.SetName(name)
	return o
}

// forge writes stamps of zoe, who did nothing, and of the epoch of now into an object.
func (h *hostile) forge(o *unstructured.Unstructured) *unstructured.Unstructured {
	all := maps.Clone(o.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		kube.ChangedBy: "zoe", kube.DecidedBy: "zoe", kube.RequestedBy: "1\tzoe", kube.Stamped: h.epoch,
		kube.ApprovedBy: "p1\tzoe\tops\np1\tyan\tops", kube.OverriddenBy: "p1\tzoe\tops",
	})
	o.SetAnnotations(all)
	return o
}

func (h *hostile) get(name string) *unstructured.Unstructured {
	h.Helper()
	o := h.stack("v1alpha2", name)
	if err := h.admin.Get(h.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		h.Fatal(err)
	}
	return o
}

// A user who may write everything about a stack can neither name another user in its stamps nor
// remove the stamps of other users, whichever way the user writes.
func TestHostileWrites(t *testing.T) {
	withPolicy := newCluster(t)
	s := withPolicy.stamping(true)
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	byItself := newServer(t, false)
	for name, h := range map[string]*hostile{
		"the policy": {withPolicy, withPolicy.epoch(s)},
		"the server": {byItself, byItself.epoch(byItself.stamping(true))},
	} {
		t.Run(name, func(t *testing.T) {
			c := *h.cluster
			c.T = t
			(&hostile{&c, h.epoch}).attack()
		})
	}
}

func (h *hostile) attack() {
	ann, eve := h.as("ann"), h.as("eve")
	if err := ann.Create(h.Context(), h.stack("v1alpha2", "net")); err != nil {
		h.Fatal(err)
	}
	const groups = "\tsystem:masters\tsystem:authenticated"
	merge := func(o *unstructured.Unstructured) client.Patch {
		data, err := o.MarshalJSON()
		if err != nil {
			h.Fatal(err)
		}
		return client.RawPatch(types.MergePatchType, data)
	}
	for _, way := range []struct {
		name string
		do   func() error
	}{
		{"replace", func() error { return eve.Update(h.Context(), h.forge(h.get("net"))) }},
		{"replace without stamps", func() error {
			o := h.get("net")
			o.SetAnnotations(nil)
			return eve.Update(h.Context(), o)
		}},
		{"replace in the other version", func() error {
			o := h.get("net")
			o.SetAPIVersion("infra.contrib.fluxcd.io/v1alpha1")
			return eve.Update(h.Context(), h.forge(o))
		}},
		{"patch in the other version", func() error {
			return eve.Patch(h.Context(), h.stack("v1alpha1", "net"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"`+kube.ApprovedBy+`":"p1\tzoe\tops"}}}`)))
		}},
		{"patch of all annotations", func() error {
			return eve.Patch(h.Context(), h.stack("v1alpha2", "net"), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/annotations","value":{"`+kube.ApprovedBy+`":"p1\tzoe\tops","`+kube.Stamped+`":"`+h.epoch+`"}}]`)))
		}},
		{"patch of none", func() error {
			return eve.Patch(h.Context(), h.stack("v1alpha2", "net"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`)))
		}},
		{"apply as the controller", func() error {
			o := h.forge(h.stack("v1alpha2", "net"))
			return eve.Apply(h.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(kube.FieldManager), client.ForceOwnership)
		}},
		{"apply without what was applied", func() error {
			o := h.stack("v1alpha2", "net")
			return eve.Apply(h.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(kube.FieldManager), client.ForceOwnership)
		}},
		{"the status", func() error {
			o := h.forge(h.get("net"))
			o.Object["status"] = map[string]any{"observedGeneration": int64(1)}
			return eve.Status().Update(h.Context(), o)
		}},
		{"a patch of the status", func() error {
			return eve.Status().Patch(h.Context(), h.stack("v1alpha2", "net"), merge(h.forge(&unstructured.Unstructured{Object: map[string]any{"kind": "Terraform", "status": map[string]any{"observedGeneration": int64(2)}}})))
		}},
		{"the scale, which there is none of", func() error {
			err := eve.SubResource("scale").Patch(h.Context(), h.stack("v1alpha2", "net"), merge(h.forge(&unstructured.Unstructured{Object: map[string]any{"kind": "Terraform"}})))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}},
	} {
		if err := way.do(); err != nil {
			h.Errorf("%s: %v", way.name, err)
			continue
		}
		got := h.get("net").GetAnnotations()
		if got[kube.ApprovedBy] != "p1\tann"+groups || got[kube.OverriddenBy] != "" || got[kube.ChangedBy] != "ann" || got[kube.DecidedBy] != "ann" || got[kube.RequestedBy] != "1\tann" || got[kube.Stamped] != h.epoch {
			h.Errorf("%s: the stamps are %q", way.name, got)
		}
	}

	// A change that the other version hides is a change.
	if err := eve.Patch(h.Context(), h.stack("v1alpha1", "net"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"path":"y"}}`))); err != nil {
		h.Fatal(err)
	}
	if got := h.get("net").GetAnnotations(); got[kube.RequestedBy] != "1\tann\n2\teve" {
		h.Errorf("a change in the other version is requested by %q", got[kube.RequestedBy])
	}

	// What comes back from a backup, or under a name that is free again, is of the user who
	// writes it, and has another UID.
	old := h.get("net")
	if err := eve.DeleteAllOf(h.Context(), h.stack("v1alpha2", ""), client.InNamespace("default"), client.MatchingFields{"metadata.name": "net"}); err != nil {
		h.Fatal(err)
	}
	back := h.forge(old.DeepCopy())
	back.SetResourceVersion("")
	for what, o := range map[string]*unstructured.Unstructured{"restored": back, "under a name that is made": h.forge(h.stack("v1alpha2", ""))} {
		if o.GetName() == "" {
			o.SetGenerateName("net-")
		}
		if err := eve.Create(h.Context(), o); err != nil {
			h.Fatal(err)
		}
		if got := o.GetAnnotations(); got[kube.ApprovedBy] != "p1\teve"+groups || got[kube.OverriddenBy] != "" || got[kube.RequestedBy] != "1\teve" || strings.Contains(got[kube.ChangedBy]+got[kube.DecidedBy], "zoe") {
			h.Errorf("a stack that is %s has the stamps %q", what, got)
		}
		if o.GetUID() == old.GetUID() {
			h.Errorf("a stack that is %s has the UID of the former one", what)
		}
	}
	applied := h.forge(h.stack("v1alpha1", "applied"))
	if err := eve.Apply(h.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("eve"), client.ForceOwnership); err != nil {
		h.Fatal(err)
	}
	if got := h.get("applied").GetAnnotations(); got[kube.ApprovedBy] != "p1\teve"+groups || got[kube.RequestedBy] != "1\teve" {
		h.Errorf("a stack that an apply made has the stamps %q", got)
	}
	for _, name := range []string{"net", "applied"} {
		if err := h.admin.Delete(h.Context(), h.get(name), &client.DeleteOptions{Preconditions: &metav1.Preconditions{}}); err != nil {
			h.Fatal(err)
		}
	}
}
