package externalsecret

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

func bytesOf(pairs ...string) map[string][]byte {
	out := map[string][]byte{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = []byte(pairs[i+1])
	}
	return out
}

func digest(data map[string][]byte) string { return Digest(secret.New("key"), "shop", "app", data) }

// written is a Secret that the object has written.
func written(data map[string][]byte, change ...func(*Live)) Live {
	l := Live{Exists: true, Ours: true, Type: "Opaque", Data: data, Labels: map[string]string{managed: "true"}, Mark: &Mark{Whole: true, Content: digest(data)}}
	for key := range data {
		l.Mark.Keys = append(l.Mark.Keys, key)
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func TestDecide(t *testing.T) {
	policies := func(c CreationPolicy, d DeletionPolicy) func(*Spec) {
		return func(s *Spec) { s.Target.CreationPolicy, s.Target.DeletionPolicy = c, d }
	}
	read := Content{Data: bytesOf("password", "new"), Left: true}
	gone := Content{Data: map[string][]byte{}, Gone: []string{"the secret kyuubi/database"}}
	partly := Content{Data: bytesOf("user", "u"), Gone: []string{`the key "x" of the secret kyuubi/database`}, Left: true}
	strange := Live{Exists: true, Type: "Opaque", Data: bytesOf("password", "of a user")}
	type outcome struct {
		Action  Action
		Data    map[string][]byte
		Own     bool
		Restart Restart
		Reason  string // of the decision, or of the error
		Kind    fault.Kind
	}
	for name, tt := range map[string]struct {
		spec    func(*Spec)
		secret  Live
		content Content
		sick    bool
		want    outcome
	}{
		"a first Secret":                                       {policies(Owner, Retain), Live{}, read, false, outcome{Write, bytesOf("password", "new"), true, RestartKnown, ReasonSynced, fault.None}},
		"an orphan has no owner":                               {policies(Orphan, Retain), Live{}, read, false, outcome{Write, bytesOf("password", "new"), false, RestartKnown, ReasonSynced, fault.None}},
		"another version":                                      {policies(Owner, Retain), written(bytesOf("password", "old", "user", "u")), read, false, outcome{Write, bytesOf("password", "new"), true, RestartAll, ReasonSynced, fault.None}},
		"the same version":                                     {policies(Owner, Retain), written(bytesOf("password", "new")), read, false, outcome{Keep, nil, false, "", ReasonSynced, fault.None}},
		"what is left to restart stays so":                     {policies(Owner, Retain), written(bytesOf("password", "new"), func(l *Live) { l.Mark.Restart = RestartAll; l.Labels = nil }), read, false, outcome{Write, bytesOf("password", "new"), true, RestartAll, ReasonSynced, fault.None}},
		"another key of digests restarts nothing":              {policies(Owner, Retain), written(bytesOf("password", "new"), func(l *Live) { l.Mark.Content = "other" }), read, false, outcome{Write, bytesOf("password", "new"), true, RestartNone, ReasonSynced, fault.None}},
		"the Secret that another operator made for the object": {policies(Owner, Retain), written(bytesOf("password", "old"), func(l *Live) { l.Mark = nil }), read, false, outcome{Write, bytesOf("password", "new"), true, RestartAll, ReasonSynced, fault.None}},
		"the Secret of a user":                                 {policies(Owner, Retain), strange, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"the Secret of a user, for an orphan":                  {policies(Orphan, Retain), strange, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"the Secret of another object":                         {policies(Owner, Retain), written(bytesOf("password", "old"), func(l *Live) { l.Ours, l.Controller = false, "ExternalSecret other" }), read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"an orphan of an object of that name":                  {policies(Owner, Retain), written(bytesOf("password", "old"), func(l *Live) { l.Ours = false }), read, false, outcome{Write, bytesOf("password", "new"), true, RestartAll, ReasonSynced, fault.None}},
		"a key that was merged makes no owner":                 {policies(Owner, Retain), written(bytesOf("password", "old"), func(l *Live) { l.Ours, l.Mark.Whole = false, false }), read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"another type":                                         {func(s *Spec) { s.Target.Template = &Template{Type: "kubernetes.io/tls"} }, written(bytesOf("password", "old")), read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},

		"keys are added":                              {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u")}, read, false, outcome{Write, bytesOf("user", "u", "password", "new"), false, RestartKnown, ReasonSynced, fault.None}},
		"a key of the user is not replaced":           {policies(Merge, Retain), strange, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"a key of the object is":                      {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u", "password", "old"), Mark: &Mark{Keys: []string{"password"}}}, read, false, outcome{Write, bytesOf("user", "u", "password", "new"), false, RestartAll, ReasonSynced, fault.None}},
		"a key that it has written before is removed": {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u", "former", "x"), Mark: &Mark{Keys: []string{"former"}}}, read, false, outcome{Write, bytesOf("user", "u", "password", "new"), false, RestartAll, ReasonSynced, fault.None}},
		"what another object writes as a whole":       {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u"), Controller: "ExternalSecret other"}, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"what an orphan of another object writes":     {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u"), Writer: "other"}, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"what another controller writes":              {policies(Merge, Retain), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u"), Controller: "Certificate other"}, read, false, outcome{Write, bytesOf("user", "u", "password", "new"), false, RestartKnown, ReasonSynced, fault.None}},
		"nothing to merge into":                       {policies(Merge, Retain), Live{}, read, false, outcome{Reason: ReasonNoTarget, Kind: fault.Missing}},
		"the token of a ServiceAccount":               {policies(Merge, Retain), Live{Exists: true, Type: "kubernetes.io/service-account-token"}, read, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},

		"no Secret is wanted":                       {policies(None, Retain), Live{}, read, false, outcome{Action: Keep, Reason: ReasonSynced, Kind: fault.None}},
		"no Secret is wanted, and nothing is there": {policies(None, Retain), Live{}, gone, false, outcome{Reason: ReasonGone, Kind: fault.Missing}},

		"nothing is there, Retain":                               {policies(Owner, Retain), written(bytesOf("password", "old")), gone, false, outcome{Reason: ReasonGone, Kind: fault.Missing}},
		"something lacks, Retain":                                {policies(Owner, Retain), written(bytesOf("password", "old")), partly, false, outcome{Reason: ReasonGone, Kind: fault.Missing}},
		"nothing is there, Delete":                               {policies(Owner, Delete), written(bytesOf("password", "old")), gone, false, outcome{Action: Remove, Reason: ReasonDeleted, Kind: fault.None}},
		"nothing is there, Delete, and no Secret":                {policies(Owner, Delete), Live{}, gone, false, outcome{Action: Keep, Reason: ReasonDeleted, Kind: fault.None}},
		"nothing is there, Delete, of a server that is not well": {policies(Owner, Delete), written(bytesOf("password", "old")), gone, true, outcome{Reason: ReasonGone, Kind: fault.Later}},
		"nothing is there, Delete, of a Secret of a user":        {policies(Owner, Delete), strange, gone, false, outcome{Reason: ReasonNotOwned, Kind: fault.Invalid}},
		"something lacks, Delete":                                {policies(Owner, Delete), written(bytesOf("user", "u", "x", "y")), partly, false, outcome{Write, bytesOf("user", "u"), true, RestartAll, ReasonSynced, fault.None}},
		"nothing is there, Merge":                                {policies(Owner, RemoveKeys), written(bytesOf("password", "old")), gone, false, outcome{Write, bytesOf(), true, RestartAll, ReasonSynced, fault.None}},
		"nothing is there, Merge into another's":                 {policies(Merge, RemoveKeys), Live{Exists: true, Type: "Opaque", Data: bytesOf("user", "u", "password", "old"), Mark: &Mark{Keys: []string{"password"}}}, gone, false, outcome{Write, bytesOf("user", "u"), false, RestartAll, ReasonSynced, fault.None}},
		"something lacks, Merge, of a server that is not well":   {policies(Owner, RemoveKeys), written(bytesOf("user", "u", "x", "y")), partly, true, outcome{Reason: ReasonGone, Kind: fault.Later}},
	} {
		t.Run(name, func(t *testing.T) {
			s := good(tt.spec)
			if err := s.Check("app"); err != nil {
				t.Fatal(err)
			}
			d, err := Decide(Observation{Spec: s, Secret: tt.secret, Content: tt.content, Healthy: !tt.sick, Digest: digest})
			got := outcome{d.Action, d.Data, d.Own, d.Mark.Restart, d.Reason, fault.Of(err)}
			if err != nil {
				got.Reason = fault.Reason(err, "")
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("Decide() (-got +want), %v:\n%s", err, diff)
			}
			if d.Action == Write && s.Target.CreationPolicy != Merge { // the next pass finds nothing to do
				after := Live{Exists: true, Ours: d.Own, Type: d.Type, Data: d.Data, Labels: d.Labels, Annotations: d.Annotations, Mark: &d.Mark}
				if !s.InSync(after, digest) {
					t.Error("what was written is not in sync")
				}
				if again, err := Decide(Observation{Spec: s, Secret: after, Content: Content{Data: d.Data, Left: true}, Healthy: true, Digest: digest}); err != nil || again.Action != Keep {
					t.Errorf("Decide() again = %+v, %v, want that nothing is written", again, err)
				}
			}
		})
	}
}

func TestMarks(t *testing.T) {
	m := Mark{Keys: []string{"a"}, Whole: true, Content: "x", Restart: RestartAll}
	if got := ReadMark(m.String()); got == nil || !cmp.Equal(*got, m) {
		t.Errorf("ReadMark() = %+v, want %+v", got, m)
	}
	for _, text := range []string{"", "true", "{"} {
		if got := ReadMark(text); got != nil {
			t.Errorf("ReadMark(%q) = %+v, want nothing", text, got)
		}
	}
	long := strings.Repeat("a", 100)
	for _, name := range []string{MarkName("x"), MarkName(long), RestartName(long + "b")} {
		if _, label, _ := strings.Cut(name, "/"); label == "" || len(label) > 63 {
			t.Errorf("%q is no name of an annotation", name)
		}
	}
	if MarkName(long) == MarkName(long+"b") {
		t.Error("two objects have one annotation")
	}
}

// Two Secrets with one content have two digests, and so have other keys and values.
func TestDigestsTellNothing(t *testing.T) {
	key := secret.New("key")
	all := map[string]string{
		"one":              Digest(key, "shop", "app", bytesOf("a", "b")),
		"another Secret":   Digest(key, "shop", "other", bytesOf("a", "b")),
		"another key":      Digest(secret.New("other"), "shop", "app", bytesOf("a", "b")),
		"another value":    Digest(key, "shop", "app", bytesOf("a", "c")),
		"shifted":          Digest(key, "shop", "app", bytesOf("ab", "")),
		"another name":     Digest(key, "sho", "papp", bytesOf("a", "b")),
		"nothing in it":    Digest(key, "shop", "app", nil),
		"one more of them": Digest(key, "shop", "app", bytesOf("a", "b", "c", "")),
	}
	seen := map[string]string{}
	for name, d := range all {
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
}

func TestWhatIsSaidOfAFailure(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	err := fault.New(fault.Later, "VaultSealed", errors.New("it is sealed: unseal it."))
	if got := Kept(err, written(nil), "app", at); got != "it is sealed: unseal it. The Secret app keeps what was read at 2026-01-01T12:00:00Z" {
		t.Errorf("Kept() = %q", got)
	}
	if got := Kept(err, Live{}, "app", time.Time{}); got != "it is sealed: unseal it. There is no Secret app yet" {
		t.Errorf("Kept() = %q", got)
	}
	if !IsStale(err, written(nil)) || IsStale(err, Live{}) || IsStale(nil, written(nil)) {
		t.Error("IsStale() is wrong")
	}
}
