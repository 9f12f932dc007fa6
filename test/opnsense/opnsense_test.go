package opnsense

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	subnetA = "00000000-0000-4000-8000-000000000001"
	subnetB = "00000000-0000-4000-8000-000000000002"
)

// router is a server, and what the DHCP server behind it gives.
type router struct {
	*Server
	url   string
	gives map[string]string
}

func start(t *testing.T, file string) *router {
	t.Helper()
	r := &router{gives: map[string]string{}}
	var err error
	r.Server, err = New(Options{
		Key: "key", Secret: "secret", File: file,
		Subnets: map[string]string{subnetA: "10.1.0.0/24", subnetB: "10.2.0.0/24"},
		Serve: func(mac, address string) error {
			if r.gives[mac] = address; address == "" {
				delete(r.gives, mac)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// ask makes a call, and returns the answer as it is written.
func (r *router) ask(t *testing.T, secret, method, path, body string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, r.url+"/api/kea/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.SetBasicAuth("key", secret)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reserve makes a reservation, and returns its UUID or what is wrong with it.
func (r *router) reserve(t *testing.T, subnet, address, mac string) string {
	t.Helper()
	answer := r.ask(t, "secret", "POST", "dhcpv4/addReservation", `{"reservation": {"subnet": "`+subnet+`", "ip_address": "`+address+`", "hw_address": "`+mac+`", "hostname": "h"}}`)
	var made struct{ UUID string }
	if err := json.Unmarshal([]byte(answer), &made); err != nil {
		t.Fatal(err)
	}
	if made.UUID != "" {
		return made.UUID
	}
	return answer
}

// A reservation counts once the service is reconfigured, changed and deleted ones as well.
func TestAReservationCountsOnceTheServiceIsReconfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reservations")
	r := start(t, file)
	uuid := r.reserve(t, subnetA, "10.1.0.10", "02:00:00:00:00:0a")
	gives := func(what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, maps.Clone(r.gives)); diff != "" {
			t.Errorf("%s the DHCP server gives (-want +got):\n%s", what, diff)
		}
	}
	gives("before", map[string]string{})
	r.ask(t, "secret", "POST", "service/reconfigure", "{}")
	gives("after", map[string]string{"02:00:00:00:00:0A": "10.1.0.10"})
	if got := r.ask(t, "secret", "GET", "dhcpv4/getReservation/"+uuid, ""); !strings.Contains(got, `"`+subnetA+`":{"selected":1,"value":"10.1.0.0/24"}`) || !strings.Contains(got, `"ip_address":"10.1.0.10"`) {
		t.Errorf("the reservation is answered as %s", got)
	}
	again := start(t, file)
	if diff := cmp.Diff(map[string]string{"02:00:00:00:00:0A": "10.1.0.10"}, again.gives); diff != "" {
		t.Errorf("another start gives (-want +got):\n%s", diff)
	}
	r.ask(t, "secret", "POST", "dhcpv4/setReservation/"+uuid, `{"reservation": {"subnet": "`+subnetA+`", "ip_address": "10.1.0.11", "hw_address": "02:00:00:00:00:0a", "hostname": "h"}}`)
	r.ask(t, "secret", "POST", "service/reconfigure", "{}")
	gives("after a change", map[string]string{"02:00:00:00:00:0A": "10.1.0.11"})
	r.ask(t, "secret", "POST", "dhcpv4/delReservation/"+uuid, "{}")
	r.ask(t, "secret", "POST", "service/reconfigure", "{}")
	gives("after a deletion", map[string]string{})
	if got := r.ask(t, "secret", "GET", "dhcpv4/getReservation/"+uuid, ""); got != "[]" {
		t.Errorf("a reservation that is gone is answered as %s, want []", got)
	}
}

func TestWhatIsNoReservation(t *testing.T) {
	r := start(t, "")
	r.reserve(t, subnetA, "10.1.0.10", "02:00:00:00:00:0a")
	for name, c := range map[string]struct{ subnet, address, mac, want string }{
		"another subnet":     {subnetB, "10.1.0.11", "02:00:00:00:00:0b", "Address not in specified subnet"},
		"no subnet":          {"x", "10.1.0.11", "02:00:00:00:00:0b", "Related subnet not found."},
		"no address":         {subnetA, "x", "02:00:00:00:00:0b", "reservation.ip_address"},
		"no MAC address":     {subnetA, "10.1.0.11", "x", "reservation.hw_address"},
		"an address twice":   {subnetA, "10.1.0.10", "02:00:00:00:00:0b", `"reservation.ip_address":"Duplicate entry exists."`},
		"a MAC address once": {subnetB, "10.2.0.10", "02:00:00:00:00:0a", ""},
		"and twice":          {subnetA, "10.1.0.12", "02:00:00:00:00:0A", `"reservation.hw_address":"Duplicate entry exists."`},
	} {
		if got := r.reserve(t, c.subnet, c.address, c.mac); !strings.Contains(got, c.want) || strings.Contains(got, "failed") != (c.want != "") {
			t.Errorf("%s is answered as %s, want %q", name, got, c.want)
		}
	}
	if got := r.ask(t, "wrong", "POST", "service/reconfigure", "{}"); !strings.Contains(got, "Authentication Failed") {
		t.Errorf("a wrong secret is answered as %s", got)
	}
}
