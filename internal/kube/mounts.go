package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Mounts are the Secrets and ConfigMaps that a pod gets from its kubelet, by the
// template of the pod. A namespace is that of the pod.
func Mounts(template json.RawMessage, namespace string) ([]stack.Ref, error) {
	if len(template) == 0 {
		return nil, nil
	}
	var pod corev1.PodTemplateSpec
	if err := json.Unmarshal(template, &pod); err != nil {
		return nil, fmt.Errorf("reading the template of a pod: %w", err)
	}
	m := mounts{namespace: namespace}
	for _, v := range pod.Spec.Volumes {
		m.volume(v.VolumeSource)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		m.environment(c)
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		m.secret(s.Name)
	}
	return m.refs, nil
}

type mounts struct {
	namespace string
	refs      []stack.Ref
}

func (m *mounts) add(kind, name string) {
	if ref := (stack.Ref{Kind: kind, Namespace: m.namespace, Name: name}); name != "" && !slices.Contains(m.refs, ref) {
		m.refs = append(m.refs, ref)
	}
}

func (m *mounts) secret(name string) { m.add("Secret", name) }

func (m *mounts) local(ref *corev1.LocalObjectReference) {
	if ref != nil {
		m.secret(ref.Name)
	}
}

func (m *mounts) volume(v corev1.VolumeSource) {
	if v.Secret != nil {
		m.secret(v.Secret.SecretName)
	}
	if v.ConfigMap != nil {
		m.add("ConfigMap", v.ConfigMap.Name)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				m.secret(s.Secret.Name)
			}
			if s.ConfigMap != nil {
				m.add("ConfigMap", s.ConfigMap.Name)
			}
		}
	}
	if v.AzureFile != nil {
		m.secret(v.AzureFile.SecretName)
	}
	if v.CSI != nil {
		m.local(v.CSI.NodePublishSecretRef)
	}
	if v.CephFS != nil {
		m.local(v.CephFS.SecretRef)
	}
	if v.Cinder != nil {
		m.local(v.Cinder.SecretRef)
	}
	if v.FlexVolume != nil {
		m.local(v.FlexVolume.SecretRef)
	}
	if v.ISCSI != nil {
		m.local(v.ISCSI.SecretRef)
	}
	if v.RBD != nil {
		m.local(v.RBD.SecretRef)
	}
	if v.ScaleIO != nil {
		m.local(v.ScaleIO.SecretRef)
	}
	if v.StorageOS != nil {
		m.local(v.StorageOS.SecretRef)
	}
}

func (m *mounts) environment(c corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			m.secret(from.SecretRef.Name)
		}
		if from.ConfigMapRef != nil {
			m.add("ConfigMap", from.ConfigMapRef.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			m.secret(r.Name)
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			m.add("ConfigMap", r.Name)
		}
	}
}
