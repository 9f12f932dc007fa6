package prerequisites

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/prerequisite"
)

// How soon a stack looks again for prerequisites that are missing: at first, and at last. A
// watch or an answer wakes it earlier, where there is one.
const (
	firstLook = 5 * time.Second
	lastLook  = 2 * time.Minute
)

// Looking is how a stack looks for what is missing.
type Looking struct {
	Pause time.Duration // until the next check; zero if nothing is missing
	lack  string        // what it was told last
}

// Again is when to look again while this is missing.
func (l Looking) Again(lack string) Looking {
	if l.lack != lack || l.Pause == 0 {
		return Looking{firstLook, lack}
	}
	return Looking{min(2*l.Pause, lastLook), lack}
}

// Awaited are the objects whose watches wake a stack of a dialect and a namespace that waits
// for prerequisites: Kind/namespace/name, with the group in the kind of a stack. Others are
// checked again after a pause.
func Awaited(all []prerequisite.Prerequisite, stacks dialect.Registry, own dialect.Dialect, namespace string) []string {
	var keys []string
	add := func(kind, in, name string) {
		keys = append(keys, kind+"/"+types.NamespacedName{Namespace: cmp.Or(in, namespace), Name: name}.String())
	}
	for _, p := range all {
		switch o := p.Object; {
		case o != nil && o.APIVersion == "v1" && (o.Kind == input.Secret || o.Kind == input.ConfigMap):
			add(o.Kind, o.Namespace, o.Name)
		case o != nil:
			for _, d := range stacks.All() {
				if of := d.Kind(); of.Kind == o.Kind && of.GroupVersion().String() == o.APIVersion {
					add(dialect.KindOf(d), o.Namespace, o.Name)
				}
			}
		case p.Output != nil:
			add(dialect.KindOf(stacks.Meant(p.Output.Kind, own)), p.Output.Namespace, p.Output.Name)
		case p.File != nil && p.File.Source != nil:
			add(p.File.Source.Kind, p.File.Source.Namespace, p.File.Source.Name)
		}
	}
	return keys
}
