package externalsecret

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestWhenWhatWasHandedOutIsRenewedAndReplaced(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	made := func(long time.Duration, renewable bool) Handout {
		h := Handout{Began: at}
		h.Lasts(at, long, renewable)
		return h
	}
	renewed := func(h Handout, after, long time.Duration) Handout {
		h.Again(at.Add(after))
		h.Lasts(at.Add(after), long, true)
		return h
	}
	both := made(20*time.Minute, true)
	both.Lasts(at, time.Hour, false)
	for name, tt := range map[string]struct {
		of   Handout
		now  time.Duration // since it was made
		step Step
		at   time.Duration
	}{
		"held at first":                                {made(time.Hour, true), 39 * time.Minute, Hold, 40 * time.Minute},
		"renewed at two thirds":                        {made(time.Hour, true), 40 * time.Minute, Renew, 40 * time.Minute},
		"held after it was renewed":                    {renewed(made(time.Hour, true), 40*time.Minute, time.Hour), 79 * time.Minute, Hold, 80 * time.Minute},
		"a renewal that lacks a second is one":         {renewed(made(time.Hour, true), 40*time.Minute, time.Hour-time.Second), 81 * time.Minute, Renew, 40*time.Minute + (time.Hour-time.Second)*2/3},
		"replaced at two thirds of what is left":       {renewed(made(time.Hour, true), 40*time.Minute, 33*time.Minute), 62 * time.Minute, Replace, 62 * time.Minute},
		"replaced as long as the grace is left":        {renewed(made(time.Hour, true), 40*time.Minute, 24*time.Minute), 50 * time.Minute, Hold, 54 * time.Minute},
		"replaced at once if less is left":             {renewed(made(time.Hour, true), 40*time.Minute, 5*time.Minute), 40 * time.Minute, Replace, 35 * time.Minute},
		"what cannot be renewed is replaced":           {made(time.Hour, false), 40 * time.Minute, Replace, 40 * time.Minute},
		"a life that is shorter than three graces":     {made(time.Minute, false), 40 * time.Second, Replace, 40 * time.Second},
		"the shorter part counts":                      {both, 14 * time.Minute, Renew, 13*time.Minute + 20*time.Second},
		"a part that cannot be renewed counts in time": {renewed(both, 45*time.Minute, 20*time.Minute), 55 * time.Minute, Replace, 53*time.Minute + 20*time.Second},
		"what has no end is held":                      {Handout{Began: at}, 1000 * time.Hour, Hold, 0},
		"a clock that was set back before it began":    {made(time.Hour, true), -6 * time.Second, Renew, -6 * time.Second},
		"a clock that is a little behind":              {made(time.Hour, false), -5 * time.Second, Hold, 40 * time.Minute},
		"a clock set back before it was renewed":       {renewed(made(time.Hour, true), 40*time.Minute, time.Hour), 39 * time.Minute, Renew, 39 * time.Minute},
		"a clock set back that cannot be trusted":      {made(time.Hour, false), -time.Hour, Replace, -time.Hour},
		"a part that cannot be renewed then":           {both, -time.Hour, Replace, -time.Hour},
		"renewed by a clock that was set back":         {renewed(made(time.Hour, true), -5*time.Hour, time.Hour), -5*time.Hour + time.Minute, Hold, -4*time.Hour - 20*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			step, due := tt.of.Next(at.Add(tt.now), 10*time.Minute)
			want := at.Add(tt.at)
			if tt.at == 0 {
				want = time.Time{}
			}
			if step != tt.step || !due.Equal(want) {
				t.Errorf("Next() = %s, %v, want %s, %v", step, due.Sub(at), tt.step, tt.at)
			}
		})
	}
	late := made(time.Hour, true)
	if late.IsLate(at.Add(49*time.Minute), 10*time.Minute) || !late.IsLate(at.Add(50*time.Minute), 10*time.Minute) {
		t.Error("what cannot be renewed is not replaced as long as the grace is left")
	}
	for after, want := range map[time.Duration]time.Duration{
		40 * time.Minute:        45 * time.Minute, // a quarter of what is left
		time.Hour - time.Second: time.Hour + 4*time.Second,
		time.Hour:               0, // it has ended
		2 * time.Hour:           0,
		-24 * time.Hour:         -24*time.Hour + 15*time.Minute, // the clock was set back
	} {
		by := late.RetryBy(at.Add(after))
		if want == 0 && !by.IsZero() || want != 0 && by.Sub(at) != want {
			t.Errorf("RetryBy() after %v = %v, want %v after the beginning", after, by, want)
		}
	}
}

func TestWhatIsMadeIsRefusedWhereNothingWouldHaveIt(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Spec)
		says   string
	}{
		"as it should be":    {func(*Spec) {}, ""},
		"no Secret":          {func(s *Spec) { s.Target.CreationPolicy = None }, "spec.target.creationPolicy"},
		"read once":          {func(s *Spec) { s.RefreshPolicy = CreatedOnce }, "spec.refreshPolicy is CreatedOnce"},
		"read for a change":  {func(s *Spec) { s.RefreshPolicy = OnChange }, "use Periodic"},
		"a Secret of others": {func(s *Spec) { s.Target.CreationPolicy = Merge }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := good(tt.change)
			if err := s.Check("app"); err != nil {
				t.Fatal(err)
			}
			err := s.CheckMade()
			if (err == nil) != (tt.says == "") || err != nil && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("CheckMade() = %v, want %q", err, tt.says)
			}
		})
	}
	for text, want := range map[string]time.Duration{"": 10 * time.Minute, "30m": 30 * time.Minute, "0s": 0, "-1m": 0, "48h": 0, "soon": 0} {
		annotations := map[string]string{GraceAnnotation: text}
		if text == "" {
			annotations = nil
		}
		got, err := Grace(annotations)
		if wrong := text == "-1m" || text == "48h" || text == "soon"; wrong != (err != nil) || err == nil && got != want {
			t.Errorf("Grace(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

// Workloads that have credentials which are revoked are restarted, also where the Secret is made
// again: their pods began with the ones before.
func TestWhoIsRestartedForOtherCredentials(t *testing.T) {
	s := good()
	if err := s.Check("app"); err != nil {
		t.Fatal(err)
	}
	o := Observation{Spec: s, Content: Content{Data: map[string][]byte{"k": []byte("v")}, Left: true}, Healthy: true, Digest: func(map[string][]byte) string { return "d" }, Lease: "l1"}
	for _, replaces := range []bool{false, true} {
		o.Replaces = replaces
		d, err := Decide(o)
		want := RestartKnown
		if replaces {
			want = RestartAll
		}
		if err != nil || d.Action != Write || d.Mark.Restart != want || d.Mark.Lease != "l1" {
			t.Errorf("Decide() = %+v, %v, want a mark with the lease and the restart %s", d, err, want)
		}
	}
}
