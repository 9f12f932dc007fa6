package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/shard"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replicasGroup is the Lease of the controllers, and their namespace is replicasIn.
const (
	replicasGroup  = "terrier-controller"
	replicasIn     = "terrier-system"
	replicasStacks = 10000
)

// sharing is an estate whose stacks several controllers share. The first one is that of
// the estate.
type sharing struct {
	*podEstate
	port        int
	controllers []*exec.Cmd // without one that was killed
}

// shareFlags are those of the controller of a number. All certificates have the first host,
// at which the pods of the seed find the first controller.
func shareFlags(dir string, port, i int) []string {
	host := fmt.Sprintf("127.0.0.%d", 20+i)
	return []string{
		"--lease", replicasGroup, "--share-stacks", "--replica-address", host, "--http-address", fmt.Sprintf("%s:%d", host, port), "--http-host", "127.0.0.20", "--http-host", host,
		"--records", filepath.Join(dir, "records"), "--installation-keys", "secret", "--sources=false",
	}
}

// replicas measures how settled stacks move between controllers that share them: when one
// joins, when one leaves in good order, and when one is killed.
func (b *bench) replicas(ctx context.Context, out io.Writer, n int) (err error) {
	if n == 0 {
		n = replicasStacks
	}
	f := newFacts(out, fmt.Sprintf("%d settled stacks, controllers that share them, Leases of 15 s", n))
	port, err := freePort()
	if err != nil {
		return err
	}
	s := &sharing{port: port}
	s.podEstate, err = b.podEstate(ctx, "replicas", shareFlags(filepath.Join(b.scratch, "replicas"), port, 0)...)
	defer func() {
		for _, c := range s.controllers {
			err = errors.Join(err, stop(c))
		}
		err = errors.Join(err, s.close())
	}()
	if err != nil {
		return err
	}
	seed, err := s.seed(ctx)
	if err != nil {
		return err
	}
	first, err := s.division(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(stop(s.controller), s.copies(ctx, seed, n), s.start(ctx)); err != nil {
		return err
	}
	for now := first; len(now.Members) != 1 || now.Leader == first.Leader; { // it is another member now
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if now, err = s.division(ctx); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) (alive int, err error)
	}{
		{"a second one joins, until all have an owner and equal shares", func(ctx context.Context) (int, error) { return 2, s.join(ctx, 1) }},
		{"a third one joins", func(ctx context.Context) (int, error) { return 3, s.join(ctx, 2) }},
		{"one leaves in good order", func(context.Context) (int, error) { return 2, stop(s.controllers[0]) }},
		{"it joins again", func(ctx context.Context) (int, error) { return 3, s.join(ctx, 1) }},
		{"one is killed that does not lead", func(context.Context) (int, error) { return 2, kill(s.controllers[1]) }},
		{"the leader is killed", func(context.Context) (int, error) { return 1, kill(s.controller) }},
	} {
		if err := s.measure(ctx, f, step.what, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return f.err
}

// measure does something to the controllers, and waits until the stacks are divided among
// those that are alive, and a stack that moved acts upon a change.
func (s *sharing) measure(ctx context.Context, f *facts, what string, do func(context.Context) (int, error)) error {
	before, err := s.division(ctx)
	if err != nil {
		return err
	}
	cpu, err := s.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	alive, err := do(ctx)
	if err != nil {
		return err
	}
	if err := s.divided(ctx, alive); err != nil {
		return err
	}
	owned := time.Since(began)
	acts, err := s.acts(ctx, before)
	if err != nil {
		return err
	}
	acted := time.Since(began)
	after, err := s.division(ctx)
	if err != nil {
		return err
	}
	spent, err := s.cpu()
	if err != nil {
		return err
	}
	moved := 0
	for i := range after.Shards {
		if after.Shards[i].Owner != before.Shards[i].Owner {
			moved++
		}
	}
	f.fact(what, seconds(owned), "")
	f.fact("… and a change of "+acts+" is observed after", seconds(acted), "")
	f.fact("… shards moved, CPU of the controllers that stayed", fmt.Sprintf("%d of %d, %s", moved, shard.Count, seconds(max(0, spent-cpu))), "")
	return nil
}

// join starts the controller of a number.
func (s *sharing) join(ctx context.Context, i int) error {
	dir := filepath.Join(s.dir, fmt.Sprint("replica-", i))
	flags := append([]string{"controller", "--kubeconfig", s.kubeconfig, "--data-dir", dir, "-o", "json", "--runs-as", "pods", "--run-image", "terrier-runner"}, shareFlags(s.dir, s.port, i)...)
	c := exec.Command(s.b.bin("terrier"), flags...)
	if _, err := begin(ctx, c, dir+".log"); err != nil {
		return err
	}
	if i <= len(s.controllers) {
		s.controllers[i-1] = c
	} else {
		s.controllers = append(s.controllers, c)
	}
	return nil
}

// division is who owns which shard.
func (s *sharing) division(ctx context.Context) (shard.Map, error) {
	var m shard.Map
	in, err := s.api.CoreV1().ConfigMaps(replicasIn).Get(ctx, members.ConfigMap(replicasGroup), metav1.GetOptions{})
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal([]byte(in.Data["shards.json"]), &m)
}

// divided waits until so many controllers share the stacks, in equal parts.
func (s *sharing) divided(ctx context.Context, among int) error {
	for deadline := time.Now().Add(readyAfter); ; {
		m, err := s.division(ctx)
		if err == nil && len(m.Members) == among && settled(&m) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the stacks are not divided among %d controllers (%v)", among, err)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func settled(m *shard.Map) bool {
	shares := map[string]int{}
	for _, s := range m.Shards {
		if s.Owner == "" || s.Next != "" {
			return false
		}
		shares[s.Owner]++
	}
	for _, n := range shares {
		if n < shard.Count/len(m.Members) {
			return false
		}
	}
	return len(shares) == len(m.Members)
}

// acts changes a stack whose shard was moved, and waits until its owner has seen it.
func (s *sharing) acts(ctx context.Context, before shard.Map) (string, error) {
	now, err := s.division(ctx)
	if err != nil {
		return "", err
	}
	var all v1alpha2.TerraformList
	if err := s.client.List(ctx, &all, client.InNamespace("tenant-0")); err != nil {
		return "", err
	}
	for i := range all.Items {
		stack := &all.Items[i]
		at := shard.Of(string(stack.UID))
		if before.Shards[at].Owner == now.Shards[at].Owner {
			continue
		}
		stack.Spec.Interval.Duration += time.Minute
		if err := s.client.Update(ctx, stack); err != nil {
			return "", err
		}
		generation := stack.Generation
		return "a stack that moved", until(ctx, s.client, stack, func(s *v1alpha2.Terraform) bool { return s.Status.ObservedGeneration >= generation })
	}
	return "", errors.New("no stack of the first tenant moved")
}

// cpu is what the controllers that are alive have spent.
func (s *sharing) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, c := range append([]*exec.Cmd{s.controller}, s.controllers...) {
		if c.ProcessState != nil {
			continue
		}
		spent, err := cpuOf(c.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += spent
	}
	return sum, nil
}

// kill ends a controller without a word.
func kill(c *exec.Cmd) error {
	if err := c.Process.Kill(); err != nil {
		return err
	}
	if err := c.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
		return err
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
