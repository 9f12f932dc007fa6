package main

// The objects of a shop. Nothing runs Deployments here, so no tenant waits for one.
const (
	registryOfShop = `
apiVersion: v1
kind: Namespace
metadata: {name: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: database}
stringData: {password: %q}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source:
    type: mysql
    syncInterval: %s
    maxRows: 100000
    mysql: {host: 127.0.0.1, port: %d, username: %s, passwordRef: {name: database, key: password}, database: %s, table: customers}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {plan: plan}
`
	templateOfShop = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: customers
  configMaps:
  - id: settings
    nameTemplate: "{{ .uid }}-app"
    spec: {apiVersion: v1, kind: ConfigMap, data: {host: "{{ .host }}", plan: "{{ .plan }}"}}
  secrets:
  - id: secret
    nameTemplate: "{{ .uid }}-app"
    spec: {apiVersion: v1, kind: Secret, stringData: {url: "{{ .hostOrUrl }}"}}
  serviceAccounts:
  - id: account
    nameTemplate: "{{ .uid }}-app"
    spec: {apiVersion: v1, kind: ServiceAccount}
  services:
  - id: service
    nameTemplate: "{{ .uid }}-app"
    spec:
      apiVersion: v1
      kind: Service
      spec: {selector: {app: "{{ .uid }}"}, ports: [{port: 80}]}
  deployments:
  - id: app
    nameTemplate: "{{ .uid }}-app"
    waitForReady: false
    spec:
      apiVersion: apps/v1
      kind: Deployment
      spec:
        selector: {matchLabels: {app: "{{ .uid }}"}}
        template:
          metadata: {labels: {app: "{{ .uid }}"}}
          spec:
            serviceAccountName: "{{ .uid }}-app"
            containers: [{name: app, image: example.com/app:1}]
`
	stackOfShop = `
  manifests:
  - id: stack
    nameTemplate: "{{ .uid }}-stack"
    spec:
      apiVersion: infra.contrib.fluxcd.io/v1alpha2
      kind: Terraform
      spec:
        interval: 24h
        vars: [{name: tenant, value: "{{ .uid }}"}]
        writeOutputsToSecret: {name: "{{ .uid }}-outputs"}
        values:
          hcl: |
            variable "tenant" { type = string }
            resource "terraform_data" "a" { input = var.tenant }
            output "tenant" { value = terraform_data.a.output }
`
)
