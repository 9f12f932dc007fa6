package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// fleet is the controllers of a release, and a user who asks each of them.
type fleet struct {
	*release
	http  *http.Client
	token string
}

// trusting is a client that trusts the authority that all controllers share.
func (r *release) trusting(t *testing.T) *http.Client {
	t.Helper()
	server, err := r.Client.CoreV1().ConfigMaps(chartNamespace).Get(t.Context(), "terrier-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(server.Data["ca.crt"])) {
		t.Fatalf("the ConfigMap has no authority: %v", server.Data)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

// ask asks one controller, or the Service, at a URL.
func (f *fleet) ask(ctx context.Context, url, path string) (int, string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return 0, "", err
	}
	q.Header.Set("Authorization", "Bearer "+f.token)
	answer, err := f.http.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// shards is how the controllers divide the stacks.
func (f *fleet) shards(ctx context.Context) (*shard.Map, error) {
	in, err := f.Client.CoreV1().ConfigMaps(chartNamespace).Get(ctx, "terrier-controller-shards", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var m shard.Map
	return &m, json.Unmarshal([]byte(in.Data["shards.json"]), &m)
}

// awaitDivided waits until n controllers, each of which is a pod that is ready, have equal
// shares of the stacks.
func (f *fleet) awaitDivided(t *testing.T, n int) *shard.Map {
	t.Helper()
	var m *shard.Map
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%d controllers have equal shares", n), func(ctx context.Context) (err error) {
		if m, err = f.shards(ctx); err != nil {
			return err
		}
		pods, err := f.controllers(ctx)
		if err != nil {
			return err
		}
		if len(pods) != n || len(m.Members) != n {
			return fmt.Errorf("there are %d pods, and the members %+v", len(pods), m.Members)
		}
		for _, member := range m.Members {
			if p, there := pods[member.URL]; !there || !isReady(p) {
				return fmt.Errorf("no pod that is ready is at %s", member.URL)
			}
			if got := len(m.OwnedBy(member.ID)); got < shard.Count/n || got > shard.Count/n+1 {
				return fmt.Errorf("%s has %d of %d shards", member.ID, got, shard.Count)
			}
		}
		return nil
	})
	return m
}

// awaitReplaced waits until another controller has taken the place of one.
func (f *fleet) awaitReplaced(t *testing.T, gone shard.Member) *shard.Map {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, gone.ID+" is no member", func(ctx context.Context) error {
		m, err := f.shards(ctx)
		if err != nil {
			return err
		}
		if _, there := m.Member(gone.ID); there {
			return fmt.Errorf("the members are %+v", m.Members)
		}
		return nil
	})
	return f.awaitDivided(t, 3)
}

// controllers are the pods of the release by their URLs.
func (f *fleet) controllers(ctx context.Context) (map[string]corev1.Pod, error) {
	list, err := f.Client.CoreV1().Pods(chartNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=terrier"})
	if err != nil {
		return nil, err
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		all["https://"+p.Status.PodIP+":8443"] = p
	}
	return all, nil
}

// podOf is the pod of a controller.
func (f *fleet) podOf(t *testing.T, m shard.Member) corev1.Pod {
	t.Helper()
	all, err := f.controllers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, there := all[m.URL]
	if !there {
		t.Fatalf("no pod is at %s", m.URL)
	}
	return p
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func leaderOf(t *testing.T, m *shard.Map) shard.Member {
	t.Helper()
	l, there := m.Member(m.Leader)
	if !there {
		t.Fatalf("the leader %s is none of %+v", m.Leader, m.Members)
	}
	return l
}

func followerOf(t *testing.T, m *shard.Map) shard.Member {
	t.Helper()
	for _, member := range m.Members {
		if member.ID != m.Leader {
			return member
		}
	}
	t.Fatal("there is none but the leader")
	return shard.Member{}
}

// deleteByForce removes a pod without waiting for its end.
func (r *release) deleteByForce(t *testing.T, p corev1.Pod) {
	t.Helper()
	r.must(t, "delete", "pod", p.Name, "--force", "--grace-period=0")
}

// killContainer kills the controller in a pod, which the kubelet starts again there.
func (r *release) killContainer(t *testing.T, p corev1.Pod) {
	t.Helper()
	found := processesOf(t, func(args []string, _ string) bool { return slices.Contains(args, "--replica-address="+p.Status.PodIP) })
	if len(found) != 1 {
		t.Fatalf("the controller of the pod %s runs as %v, want one process", p.Name, found)
	}
	if err := unix.Kill(found[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// stackOwnedBy makes a stack that one of the controllers owns. It is suspended.
func (f *fleet) stackOwnedBy(t *testing.T, name string, owner shard.Member) string {
	t.Helper()
	m, err := f.shards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		as := fmt.Sprintf("%s-%d", name, i)
		f.stacks.Apply(t, f.stackOf(t, as, "  suspend: true", "# nothing yet"))
		if got, _ := m.Owner(string(f.stacks.Stack(t, as).UID)); got.ID == owner.ID {
			return as
		}
		f.stacks.Delete(t, as)
		f.stacks.AwaitGone(t, as)
	}
}

// errand is the work of some stacks, each of which applies and waits at a gate.
type errand struct {
	*fleet
	witness *testkit.Witness
	names   []string
	worlds  []*testkit.World
	gates   []gate
	pods    map[string]corev1.Pod
}

// begin lets stacks apply until they are at their gates.
func (f *fleet) begin(t *testing.T, names ...string) *errand {
	t.Helper()
	e := &errand{fleet: f, witness: f.stacks.Witness(t, f.Platform), names: names}
	for _, name := range names {
		w := f.World(t)
		g := newGate(t, w)
		e.worlds, e.gates = append(e.worlds, w), append(e.gates, g)
		f.stacks.Apply(t, f.stackOf(t, name, approved, gated(w, g)))
	}
	for _, w := range e.worlds {
		w.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "a" && c.Phase == "done" })
	}
	if e.pods = f.release.pods(t, "terrier.dev/run-kind=apply"); len(e.pods) != len(names) {
		t.Fatalf("the pods %v apply, want %d", e.pods, len(names))
	}
	return e
}

// untouched compares the pods that apply with those of before.
func (e *errand) untouched(t *testing.T) {
	t.Helper()
	if now := e.release.pods(t, "terrier.dev/run-kind=apply"); !sameRunning(e.pods, now) {
		t.Errorf("the pods %v apply, want %v as before", now, e.pods)
	}
}

// pass lets all applies but the last one pass their gates.
func (e *errand) pass(t *testing.T) {
	t.Helper()
	e.untouched(t)
	for _, g := range e.gates[:len(e.gates)-1] {
		g.open(t)
	}
}

// end lets the last apply pass, and destroys everything again: each resource was created once,
// by the pod that was there at first, and none is left.
func (e *errand) end(t *testing.T) {
	t.Helper()
	last := e.names[len(e.names)-1]
	for name, p := range e.release.pods(t, "terrier.dev/run-kind=apply") {
		if p.Annotations["terrier.dev/stack"] == e.Namespace+"/"+last && e.pods[name].UID != p.UID {
			t.Errorf("the pod %s applies %s, and it is none of those of before", name, last)
		}
	}
	e.gates[len(e.gates)-1].open(t)
	for i, name := range e.names {
		e.stacks.AwaitReady(t, name)
		made(t, e.worlds[i], "a", "b")
		if leaked := e.worlds[i].Leaked(e.stacks.State(t, name)); len(leaked) > 0 {
			t.Errorf("of the stack %s %+v is in no state", name, leaked)
		}
	}
	e.witness.Collect()
	for i, name := range e.names {
		e.stacks.Delete(t, name)
		e.stacks.AwaitGone(t, name)
		made(t, e.worlds[i])
	}
	e.awaitNoPods(t)
	e.witness.Collect() // what was destroyed
	e.witness.CatchUp()
	e.witness.Judge(true)
}

// useMeanwhile asks the controllers that stay for the list of stacks, until the function that it
// returns is called. They have to answer all the time.
func (f *fleet) useMeanwhile(t *testing.T, all *shard.Map, but shard.Member) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for asked := 0; ; asked++ {
			<-tick.C
			for _, m := range all.Members {
				if m.ID == but.ID {
					continue
				}
				code, text, err := f.ask(ctx, m.URL, "/api/v1/namespaces/"+f.Namespace+"/stacks")
				if ctx.Err() != nil {
					ended <- nil
					return
				}
				if err != nil || code != http.StatusOK || !strings.Contains(text, `"later"`) {
					ended <- fmt.Errorf("the answer %d of %s: %d %s, %w", asked, m.URL, code, text, err)
					return
				}
			}
		}
	}()
	return func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
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
