package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const accountIssuer = "https://kubernetes.default.svc.cluster.local"

//go:embed files
var files embed.FS

// writeFiles writes all that the processes read at their start, and the
// kubeconfig of the user.
func writeFiles(s state, apiPort int) error {
	for _, dir := range []string{"run/tmp", "log/containers", "log/pods", "lib/cluster/pki", "lib/cluster/cni", "lib/cluster/registries/_default", "lib/volumes", "lib/registry"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return fmt.Errorf("making the cluster's directories: %w", err)
		}
	}
	for from, to := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "kube-proxy.yaml": "kube-proxy.yaml",
		"resolv.conf": "resolv.conf", "pods.conflist": "cni/pods.conflist", "hosts.toml": "registries/_default/hosts.toml",
	} {
		text, err := fs.ReadFile(files, "files/"+from)
		if err != nil {
			return fmt.Errorf("reading a file of this program: %w", err)
		}
		if err := os.WriteFile(s.path("lib/cluster", to), text, 0o644); err != nil {
			return fmt.Errorf("writing the cluster's files: %w", err)
		}
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	return writeKeys(s, ca, fmt.Sprintf("https://127.0.0.1:%d", apiPort))
}

// writeKeys writes certificates, keys and kubeconfigs.
func writeKeys(s state, ca *authority, server string) error {
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	pki := s.path("lib/cluster/pki")
	if err := writePair(filepath.Join(pki, "ca"), ca.certificate.Raw, ca.key); err != nil {
		return err
	}
	if err := writePair(filepath.Join(pki, "accounts"), nil, accounts); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	for file, who := range map[string]identity{
		"apiserver":         {name: "kube-apiserver", hosts: append(names, "127.0.0.1", nodeAddress, apiService)},
		"apiserver-kubelet": {name: "kube-apiserver-kubelet-client", group: "system:masters"},
		"kubelet-server":    {name: "system:node:" + nodeName, group: "system:nodes", hosts: []string{nodeName, nodeAddress}},
	} {
		raw, key, err := ca.issue(who)
		if err != nil {
			return err
		}
		if err := writePair(filepath.Join(pki, file), raw, key); err != nil {
			return err
		}
	}
	for file, who := range map[string]identity{
		s.kubeconfig(): {name: "kubernetes-admin", group: "system:masters"},
		s.path("lib/cluster/kube-controller-manager.kubeconfig"): {name: "system:kube-controller-manager"},
		s.path("lib/cluster/kube-scheduler.kubeconfig"):          {name: "system:kube-scheduler"},
		s.path("lib/cluster/kube-proxy.kubeconfig"):              {name: "system:kube-proxy"},
		s.path("lib/cluster/kubelet.kubeconfig"):                 {name: "system:node:" + nodeName, group: "system:nodes"},
	} {
		if err := ca.writeKubeconfig(file, server, who); err != nil {
			return err
		}
	}
	return nil
}

// authority signs all certificates of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// identity is who a certificate speaks for; with hosts it may serve too.
type identity struct {
	name, group string
	hosts       []string
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	return &authority{certificate, key}, nil
}

func (a *authority) issue(who identity) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: who.name},
		NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if who.group != "" {
		template.Subject.Organization = []string{who.group}
	}
	for _, host := range who.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(who.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", who.name, err)
	}
	return raw, key, nil
}

func (a *authority) writeKubeconfig(file, server string, who identity) error {
	raw, key, err := a.issue(who)
	if err != nil {
		return err
	}
	secret, err := encodeKey(key)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: encodeCertificate(a.certificate.Raw)}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: encodeCertificate(raw), ClientKeyData: secret}
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "cluster"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", who.name, err)
	}
	return nil
}

// writePair writes a key, and its certificate if it has one.
func writePair(file string, certificate []byte, key *ecdsa.PrivateKey) error {
	secret, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".key", secret, 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	if certificate == nil {
		return nil
	}
	if err := os.WriteFile(file+".crt", encodeCertificate(certificate), 0o644); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	return nil
}

func encodeCertificate(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), nil
}
