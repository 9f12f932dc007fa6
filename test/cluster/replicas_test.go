package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// recordsValues put the records on a volume that all controllers mount.
const recordsValues = `
records: /records
volumes: [{name: records, persistentVolumeClaim: {claimName: records}}]
volumeMounts: [{name: records, mountPath: /records}]
`

// The chart with one controller, with three, and with one again, which run under Pod Security
// "restricted" and network policies that let only controllers and one namespace in. While
// runs apply, each controller answers everything, the leader and another controller are
// deleted by force, and a third is killed: no pod of a run is touched, nothing is done twice
// and nothing is lost, and a plan that was pending at first is applied in the end.
func TestReplicas(t *testing.T) {
	s := ship(t, root, "0.7.0")
	r := prepare(t, recordsValues) // the test cloud is a hostPath, which a restricted namespace of stacks forbids
	r.set = []string{"--set", "networkPolicy.from[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=" + r.Namespace}
	r.claimRecords(t)
	r.deploy(t, s)
	r.readRecords(t)
	f := &fleet{release: r, http: r.trusting(t), token: r.account(t, "ada", "terrier-operator")}

	later := r.World(t)
	r.stacks.Apply(t, r.stackOf(t, "later", "", later.HCL()+thing("late", "1")))
	pending := r.stacks.AwaitPending(t, "later").Status.Plan.Pending
	isPending := func(t *testing.T) {
		t.Helper()
		if got := r.stacks.Stack(t, "later").Status.Plan.Pending; got != pending {
			t.Errorf("the plan %q is pending, want %q as before", got, pending)
		}
	}

	t.Run("from one to three", func(t *testing.T) {
		e := f.begin(t, "work")
		r.upgrade(t, s, "--set", "replicaCount=3")
		e.untouched(t)
		f.awaitDivided(t, 3)
		e.end(t)
		isPending(t)
	})
	t.Run("each answers", f.eachAnswers)
	t.Run("policies hold", f.policiesHold)
	for _, day := range []struct {
		name   string
		victim func(*testing.T, *shard.Map) shard.Member
		kill   func(*testing.T, corev1.Pod)
	}{
		{"leader deleted by force", leaderOf, r.deleteByForce},
		{"another deleted by force", followerOf, r.deleteByForce},
		{"leader killed", leaderOf, r.killContainer},
	} {
		t.Run(day.name, func(t *testing.T) {
			all := f.awaitDivided(t, 3)
			var names []string
			for i, m := range all.Members {
				names = append(names, f.stackOwnedBy(t, fmt.Sprintf("work-%d", i), m))
			}
			e := f.begin(t, names...)
			victim := day.victim(t, all)
			end := f.useMeanwhile(t, all, victim)
			day.kill(t, f.podOf(t, victim))
			e.pass(t) // the first applies end while a controller is missing
			now := f.awaitReplaced(t, victim)
			end()
			if _, there := now.Member(victim.ID); there {
				t.Errorf("%s is a member of %+v", victim.ID, now.Members)
			}
			e.end(t)
			isPending(t)
		})
	}
	t.Run("from three to one", func(t *testing.T) {
		all := f.awaitDivided(t, 3)
		var names []string
		for i, m := range all.Members {
			names = append(names, f.stackOwnedBy(t, fmt.Sprintf("work-%d", i), m))
		}
		e := f.begin(t, names...)
		r.upgrade(t, s, "--set", "replicaCount=1")
		e.untouched(t)
		e.pass(t)
		e.end(t)
		isPending(t)
	})

	r.stacks.Patch(t, "later", `{"spec":{"approvePlan":"`+pending+`"}}`)
	r.stacks.AwaitReady(t, "later")
	made(t, later, "late")
	r.stacks.Delete(t, "later")
	r.stacks.AwaitGone(t, "later")
	made(t, later)
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}

// claimRecords makes the volume of the records.
func (r *release) claimRecords(t *testing.T) {
	t.Helper()
	_, err := r.Client.CoreV1().PersistentVolumeClaims(chartNamespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "records"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// readRecords lets the test read the records, with their keys.
func (r *release) readRecords(t *testing.T) {
	t.Helper()
	keys, err := r.Client.CoreV1().Secrets(chartNamespace).Get(t.Context(), "terrier-records-keys", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys.Data {
		if err := testkit.ShareRecords(r.Platform, volumeOf(t, r.Cluster, "records"), key); err != nil {
			t.Fatal(err)
		}
	}
}

// eachAnswers compares what the controllers answer.
func (f *fleet) eachAnswers(t *testing.T) {
	all := f.awaitDivided(t, 3)
	api := "/api/v1/namespaces/" + f.Namespace + "/stacks/later"
	for _, path := range []string{
		api, api + "/plan", api + "/runs", api + "/runs/newest", api + "/runs/newest/log", api + "/timeline", api + "/inputs", api + "/states",
		"/api/v1/namespaces/" + f.Namespace + "/stacks", "/api/v1/namespaces/" + f.Namespace + "/tenants", "/api/v1/approvals", "/api/v1/version",
	} {
		testkit.Eventually(t, testkit.Patience, path+" is the same through each controller", func(ctx context.Context) error {
			var first string
			for i, m := range all.Members {
				code, text, err := f.ask(ctx, m.URL, path)
				if err != nil || code != http.StatusOK {
					return fmt.Errorf("through %s: %d %s, %w", m.URL, code, text, err)
				}
				if i == 0 {
					first = text
				} else if text != first {
					return fmt.Errorf("%s says\n%s\nand the first one\n%s", m.URL, text, first)
				}
			}
			return nil
		})
	}
	for _, m := range all.Members {
		for _, page := range []string{"/", "/stacks", "/queue", "/audit", "/about", "/stacks/" + f.Namespace + "/later", "/stacks/" + f.Namespace + "/later/runs"} {
			if code, text, err := f.ask(t.Context(), m.URL, page); err != nil || code != http.StatusOK || !strings.Contains(text, "<!doctype html>") {
				t.Errorf("the page %s through %s: %d, %v", page, m.URL, code, err)
			}
		}
	}
	u := f.user(t, "bob", "terrier-operator") // through the Service
	u.says(t, "late", "plan", "later")
	u.says(t, "plan-", "runs", "later")
}

// policiesHold asks the controllers from a pod of the namespace that is let in, and from one of
// another.
func (f *fleet) policiesHold(t *testing.T) {
	all := f.awaitDivided(t, 3)
	friend, stranger := f.Cluster, Open(t)
	for _, c := range []*Cluster{friend, stranger} {
		c.Pod(t, "asks", probe(t), []string{"serve", ":8080"}, restrictedUser)
	}
	for _, m := range all.Members {
		at := strings.Replace(m.URL, "https", "http", 1)
		if said, err := friend.Exec(t, "asks", "/cluster-probe", "fetch", at); err != nil || !strings.Contains(said, "HTTPS") {
			t.Errorf("from the namespace that is let in, %s says %q, %v", at, said, err)
		}
		if said, err := stranger.Exec(t, "asks", "/cluster-probe", "fetch", at); err == nil {
			t.Errorf("from another namespace, %s says %q", at, said)
		}
	}
	if err := friend.Client.CoreV1().Pods(friend.Namespace).Delete(t.Context(), "asks", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.awaitNoPods(t)
}

// restrictedUser makes a pod restricted whose image names no user.
func restrictedUser(p *corev1.Pod) {
	restricted(p)
	p.Spec.SecurityContext.RunAsUser = new(int64(testkit.PodUser))
}
