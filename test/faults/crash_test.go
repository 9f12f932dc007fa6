package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

var (
	every = flag.Bool("every", false, "crash before and after every act of every scenario")
	only  = flag.String("only", "", "with -every: this scenario alone")
	at    = flag.String("at", "", "crash once, at SCENARIO:before:ACT or SCENARIO:after:ACT")
	seed  = flag.Uint64("seed", 0, "of the sample; one that differs each time if zero")
	some  = flag.Int("some", 4, "how many crashes the sample has beside the fixed ones")
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients of tests
	flag.Parse()
	os.Exit(m.Run())
}

// always are the crashes that every sample has: the moments of the catalogue,
// F01 to F06, and those that once were wrong.
var always = []string{
	"auto:before:blob.put/stacks/_/plans/_/plan.bin#1", // F01: planned, and not kept
	"auto:after:blob.put/stacks/_/plans/_/plan.bin#1",  // F02: kept, and not written down
	"auto:before:api.post/secrets#1",                   // F04: applied, and the state not stored
	"auto:after:api.post/secrets#1",                    // F05: stored, and not reported
	"auto:before:process.start/apply#1",                // the supervisor, before the engine writes
	"auto:after:run.event#1",                           // the supervisor, when something exists that no state holds
}

// crash is where a round ends a program.
type crash struct {
	scenario string
	when     string // before or after
	act      string // name#nth
}

func (c crash) String() string { return c.scenario + ":" + c.when + ":" + c.act }

func parseCrash(s string) (crash, error) {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) != 3 {
		return crash{}, fmt.Errorf("%q is not SCENARIO:before:ACT or SCENARIO:after:ACT", s)
	}
	return crash{parts[0], parts[1], parts[2]}, nil
}

func TestCrashes(t *testing.T) {
	if *at != "" {
		c, err := parseCrash(*at)
		if err != nil {
			t.Fatal(err)
		}
		newRound(t, scenarioOf(t, c.scenario), c).run(t)
		return
	}
	acts := map[string][]string{}
	t.Run("undisturbed", func(t *testing.T) {
		for _, s := range chosen() {
			t.Run(s.name, func(t *testing.T) {
				r := newRound(t, s, crash{})
				r.run(t)
				acts[s.name] = numbered(r.acts(t))
				t.Logf("%d acts", len(acts[s.name]))
			})
		}
	})
	if t.Failed() {
		t.Fatal("nothing is learnt from a crash of what fails undisturbed")
	}
	crashes := all(acts)
	if !*every {
		crashes = sample(t, crashes)
	}
	t.Run("at", func(t *testing.T) {
		for i, c := range crashes {
			t.Run(strings.ReplaceAll(c.String(), "/", "."), func(t *testing.T) {
				t.Parallel()
				if *every {
					fmt.Printf("faults: %d of %d: %s\n", i+1, len(crashes), c)
				}
				newRound(t, scenarioOf(t, c.scenario), c).run(t)
			})
		}
	})
}

func chosen() []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return *only != "" && s.name != *only })
}

// numbered names acts so that each is one: the third write of a name is name#3.
func numbered(acts []failpoint.Recorded) []string {
	var names []string
	seen := map[string]int{}
	for _, a := range acts {
		if strings.HasPrefix(a.Name, "api.") && strings.HasSuffix(a.Name, "/events") {
			continue // written when there is time, and nothing depends on them
		}
		if a.Name == "lead.ask" {
			continue // always right before another one
		}
		seen[a.Name]++
		names = append(names, fmt.Sprintf("%s#%d", a.Name, seen[a.Name]))
	}
	return names
}

// all are the crashes before and after each act.
func all(acts map[string][]string) []crash {
	var crashes []crash
	for _, s := range chosen() {
		for _, act := range acts[s.name] {
			crashes = append(crashes, crash{s.name, "before", act}, crash{s.name, "after", act})
		}
	}
	return crashes
}

// sample takes the fixed ones and some others.
func sample(t *testing.T, crashes []crash) []crash {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("the sample has -seed %d", *seed)
	var taken []crash
	for _, name := range always {
		c, err := parseCrash(name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(crashes, c) {
			t.Errorf("%s is no act any more", c)
		}
		taken = append(taken, c)
	}
	r := rand.New(rand.NewPCG(*seed, 0))
	for range *some {
		taken = append(taken, crashes[r.IntN(len(crashes))])
	}
	return slices.Compact(taken)
}

func scenarioOf(t *testing.T, name string) scenario {
	t.Helper()
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no scenario %q", name)
	}
	return scenarios[i]
}
