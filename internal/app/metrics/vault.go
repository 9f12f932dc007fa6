package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

// vaultGauges are the states of the servers of OpenBao and Vault that the platform uses.
func vaultGauges(statuses func() []monitor.Status) prometheus.Collector {
	s := newSheet()
	s.gauge("terrier_vault_up", "1 if an OpenBao or Vault answers requests, 0 if it is sealed, not initialized or unreachable, by its address.", "host")
	s.gauge("terrier_vault_status", "1 for the state that an OpenBao or Vault has, 0 for all others: active, standby, sealed, uninitialized or unreachable, by its address.", "host", "status")
	s.fill = func(set func(string, float64, ...string)) {
		for _, v := range statuses() {
			if v.State == monitor.Unknown {
				continue // it was not asked yet
			}
			up := 0.0
			if v.State.Usable() {
				up = 1
			}
			set("terrier_vault_up", up, v.Address)
			for _, state := range monitor.States() {
				is := 0.0
				if state == v.State {
					is = 1
				}
				set("terrier_vault_status", is, v.Address, string(state))
			}
		}
	}
	return s
}
