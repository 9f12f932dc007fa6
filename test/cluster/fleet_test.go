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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/testkit"
)

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
