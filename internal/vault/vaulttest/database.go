package vaulttest

import (
	"net/http"
	"testing"
)

// Database is a database in which an OpenBao makes users.
type Database struct {
	Plugin          string // of OpenBao
	URL             string // with {{username}} and {{password}} of its administrator
	Admin, Password string
	Create, Revoke  string // statements; without Revoke those of the plugin
}

// Database lets database/creds/app make users, for ten minutes each.
func (s Server) Database(t *testing.T, d Database) {
	t.Helper()
	s.Ask(t, http.MethodPost, "sys/mounts/database", map[string]string{"type": "database"})
	s.Ask(t, http.MethodPost, "database/config/db", map[string]any{
		"plugin_name": d.Plugin, "allowed_roles": []string{"app"}, "connection_url": d.URL, "username": d.Admin, "password": d.Password,
	})
	s.Ask(t, http.MethodPost, "database/roles/app", map[string]string{
		"db_name": "db", "default_ttl": "10m", "max_ttl": "24h", "creation_statements": d.Create, "revocation_statements": d.Revoke,
	})
}

// UsersLast says for how long users of a database last that are made or renewed from now on: each
// time, and in all from their making on.
func (s Server) UsersLast(t *testing.T, each, most string) {
	t.Helper()
	s.Ask(t, http.MethodPost, "database/roles/app", map[string]string{"db_name": "db", "default_ttl": each, "max_ttl": most})
}
