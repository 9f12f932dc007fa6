package servicetest

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/service"
)

// The service itself does what everything must do.
func TestStruct(t *testing.T) {
	Run(t, func(t *testing.T, w *World, who Who) Subject {
		people := must(service.NewPeople(w.Config, w.Records, w.Now))(t)
		person := must(people.As(w.User(who)))(t)
		stacks, ok := person.Stacks.(service.StackAPI)
		tenants, too := person.Tenants.(service.TenantAPI)
		if !ok || !too {
			t.Fatal("a person has other hands than the service")
		}
		return Subject{Stacks: stacks, Tenants: tenants}
	})
}
