package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// process is a program of the cluster that runs until the cluster ends.
type process struct {
	name string
	path string
	args []string
}

// built is one of Kubernetes' programs.
func built(name string, args ...string) process { return process{name, builtProgram(name), args} }

// servers are what the API server needs, and itself.
func servers(apiPort int) []process {
	const pki = "/var/lib/cluster/pki/"
	return []process{
		{"containerd", "containerd", []string{"--config", "/var/lib/cluster/containerd.toml"}},
		built("etcd",
			"--data-dir=/var/lib/etcd", "--unsafe-no-fsync", // nothing of it outlives the cluster
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
		),
		built("kube-apiserver",
			"--secure-port="+strconv.Itoa(apiPort), "--advertise-address="+nodeAddress,
			"--etcd-servers=http://127.0.0.1:2379", "--service-cluster-ip-range="+services,
			"--client-ca-file="+pki+"ca.crt", "--tls-cert-file="+pki+"apiserver.crt", "--tls-private-key-file="+pki+"apiserver.key",
			"--kubelet-client-certificate="+pki+"apiserver-kubelet.crt", "--kubelet-client-key="+pki+"apiserver-kubelet.key",
			"--kubelet-certificate-authority="+pki+"ca.crt", "--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer="+accountIssuer,
			"--service-account-key-file="+pki+"accounts.key", "--service-account-signing-key-file="+pki+"accounts.key",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		),
	}
}

// clients are the processes that need the API server.
func clients(s state) []process {
	const dir, pki = "/var/lib/cluster/", "/var/lib/cluster/pki/"
	return []process{
		built("kubelet",
			"--config="+dir+"kubelet.yaml", "--kubeconfig="+dir+"kubelet.kubeconfig",
			"--node-ip="+nodeAddress, "--hostname-override="+nodeName,
		),
		built("kube-controller-manager",
			"--kubeconfig="+dir+"kube-controller-manager.kubeconfig", "--leader-elect=false", "--use-service-account-credentials",
			"--service-account-private-key-file="+pki+"accounts.key", "--root-ca-file="+pki+"ca.crt",
			"--cluster-signing-cert-file="+pki+"ca.crt", "--cluster-signing-key-file="+pki+"ca.key",
		),
		built("kube-scheduler", "--kubeconfig="+dir+"kube-scheduler.kubeconfig", "--leader-elect=false"),
		built("kube-proxy", "--config="+dir+"kube-proxy.yaml", "--hostname-override="+nodeName),
		{"policies", "/proc/self/exe", []string{"--state", string(s), "policies"}},
	}
}

// keep runs a process, and again whenever it ends, until the context ends.
func (p process) keep(ctx context.Context) error {
	output, err := os.OpenFile(filepath.Join("/var/log", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	defer output.Close()
	for {
		slog.Info("starting", "process", p.name)
		cmd := exec.CommandContext(ctx, p.path, p.args...)
		cmd.Stdout, cmd.Stderr = output, output
		err := cmd.Run()
		if ctx.Err() != nil {
			return nil
		}
		slog.Warn("ended", "process", p.name, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
