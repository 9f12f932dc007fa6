package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parsed(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// lynqKind is a definition of one of Lynq's kinds that takes any spec.
const lynqKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAMEs.operator.lynq.sh}
spec:
  group: operator.lynq.sh
  scope: Namespaced
  names: {kind: KIND, listKind: KINDList, plural: NAMEs, singular: NAME}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// lynqObjects are a hub, a form and the nodes of two rows.
const lynqObjects = `
apiVersion: operator.lynq.sh/v1
kind: LynqHub
metadata: {name: customers}
spec:
  source:
    type: mysql
    syncInterval: 1m
    mysql: {host: 127.0.0.1, port: %d, username: %s, database: %s, table: customers, passwordRef: {name: database, key: password}}
  valueMappings: {uid: id, activate: active}
  extraValueMappings: {plan: plan}
---
apiVersion: operator.lynq.sh/v1
kind: LynqForm
metadata: {name: web}
spec:
  hubId: customers
  rollout: {maxSkew: 3}
  deployments:
  - id: app
    nameTemplate: "{{ .uid }}-app"
    waitForReady: false
    spec:
      apiVersion: apps/v1
      kind: Deployment
      spec:
        replicas: 2
        selector: {matchLabels: {app: "{{ .uid }}"}}
        template:
          metadata: {labels: {app: "{{ .uid }}"}}
          spec:
            containers:
            - {name: app, image: "shop:1", env: [{name: PLAN, value: "{{ .plan }}"}]}
  configMaps:
  - id: notes
    nameTemplate: "{{ .uid }}-notes"
    deletionPolicy: Retain
    spec: {apiVersion: v1, kind: ConfigMap, data: {of: "{{ .hubId }}"}}
---
apiVersion: operator.lynq.sh/v1
kind: LynqNode
metadata: {name: acme-web, finalizers: [lynqnode.operator.lynq.sh/finalizer]}
spec: {uid: acme, templateRef: web}
---
apiVersion: operator.lynq.sh/v1
kind: LynqNode
metadata: {name: bolt-web, finalizers: [lynqnode.operator.lynq.sh/finalizer]}
spec: {uid: bolt, templateRef: web}
`

// lynqApp and lynqNotes are what a node was given, with Lynq's marks.
const (
	lynqApp = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: TENANT-app
  annotations: {lynq.sh/deletion-policy: Delete, lynq.sh/applied-hash: 5d1f09aa}
  ownerReferences: [{apiVersion: operator.lynq.sh/v1, kind: LynqNode, name: TENANT-web, uid: NODE, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 2
  selector: {matchLabels: {app: TENANT}}
  template:
    metadata: {labels: {app: TENANT}}
    spec:
      containers:
      - {name: app, image: "shop:1", env: [{name: PLAN, value: PLANNED}]}
`
	lynqNotes = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: TENANT-notes
  labels: {lynq.sh/node: TENANT-web, lynq.sh/node-namespace: NAMESPACE}
  annotations: {lynq.sh/deletion-policy: Retain}
data: {of: customers}
`
)
