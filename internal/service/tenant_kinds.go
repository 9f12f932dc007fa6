package service

import tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"

// What an Alarm is about.
const (
	KindRegistry = tenantsv1.RegistryKind
	KindTemplate = tenantsv1.TemplateKind
)

// Phases of a Rollout.
const (
	RolloutIdle       = tenantsv1.RolloutIdle
	RolloutInProgress = tenantsv1.RolloutInProgress
	RolloutFailed     = tenantsv1.RolloutFailed
	RolloutComplete   = tenantsv1.RolloutComplete
)
