package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

// program writes an executable file that stands for an engine.
func program(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("engine"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func answer(version string) Output {
	return func(context.Context, string, ...string) ([]byte, error) {
		return []byte(`{"terraform_version":"` + version + `","platform":"linux_amd64"}`), nil
	}
}

func TestFindOrder(t *testing.T) {
	explicit, chosen, beside, onPath := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	program(t, explicit, "tofu")
	program(t, chosen, "terraform")
	program(t, beside, "terraform")
	program(t, onPath, "terraform")
	program(t, onPath, "tofu")
	empty := t.TempDir()

	for name, tt := range map[string]struct {
		finder   *Finder
		explicit string
		want     string
	}{
		"an explicit path comes first":        {&Finder{Chosen: filepath.Join(chosen, "terraform"), Beside: beside, Path: onPath}, filepath.Join(explicit, "tofu"), filepath.Join(explicit, "tofu")},
		"then the chosen one":                 {&Finder{Chosen: filepath.Join(chosen, "terraform"), Beside: beside, Path: onPath}, "", filepath.Join(chosen, "terraform")},
		"then the one beside the executable":  {&Finder{Beside: beside, Path: onPath}, "", filepath.Join(beside, "terraform")},
		"then the PATH, tofu before the rest": {&Finder{Beside: empty, Path: "relative:" + empty + ":" + onPath}, "", filepath.Join(onPath, "tofu")},
	} {
		t.Run(name, func(t *testing.T) {
			tt.finder.Run = answer("1.12.6")
			got, err := tt.finder.Find(t.Context(), tt.explicit)
			if err != nil {
				t.Fatalf("Find() error = %v", err)
			}
			want := Engine{Path: tt.want, Name: filepath.Base(tt.want), Version: "1.12.6"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("Find() differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestFindNone(t *testing.T) {
	for name, f := range map[string]*Finder{
		"nothing anywhere":           {Path: t.TempDir()},
		"a choice that is not there": {Chosen: filepath.Join(t.TempDir(), "tofu")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Find(t.Context(), "")
			if got := fault.Of(err); got != fault.Missing {
				t.Errorf("Find() error = %v of kind %v, want Missing", err, got)
			}
		})
	}
	_, err := (&Finder{}).Find(t.Context(), "")
	if !strings.Contains(err.Error(), "make build") {
		t.Errorf("Find() error = %q, want one that says how to get an engine", err)
	}
}

func TestVersionIsAskedAgainWhenTheFileChanges(t *testing.T) {
	path := program(t, t.TempDir(), "tofu")
	f := &Finder{Chosen: path, Run: answer("1.12.5")}
	find := func() string {
		e, err := f.Find(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return e.Version
	}
	find()
	f.Run = answer("1.12.6")
	if got := find(); got != "1.12.5" {
		t.Errorf("version of an unchanged file = %s, want the remembered 1.12.5", got)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if got := find(); got != "1.12.6" {
		t.Errorf("version of a changed file = %s, want 1.12.6", got)
	}
}

func TestFindRejectsOtherPrograms(t *testing.T) {
	f := &Finder{Chosen: program(t, t.TempDir(), "tofu"), Run: func(context.Context, string, ...string) ([]byte, error) {
		return []byte("hello"), nil
	}}
	_, err := f.Find(t.Context(), "")
	if got := fault.Of(err); got != fault.Invalid {
		t.Errorf("Find() error = %v of kind %v, want Invalid", err, got)
	}
}

func TestAdvisory(t *testing.T) {
	for version, safe := range map[string]bool{
		"1.12.6": true, "1.12.3": true, "1.12.2": false, "1.11.10": true, "1.11.9": false,
		"1.10.10": false, "1.13.0-beta1": true, "2.0.0": true, "1.12.2-rc1": false, "dev": false,
	} {
		if got := Advisory(version); (got == "") != safe {
			t.Errorf("Advisory(%s) = %q, want safe = %v", version, got, safe)
		}
	}
}

func TestNames(t *testing.T) {
	for name, tt := range map[string]struct {
		check func(string) error
		good  []string
		bad   []string
	}{
		"workspaces": {checkWorkspace, []string{"default", "prod-eu_1", "a.b"},
			[]string{"", "-x", "../x", "a..b", "a/b", "a b", "a\nb", "$(id)", ".hidden"}},
		"targets": {CheckTarget, []string{"module.a", `aws_instance.x["k.\"y"]`, "module.a[0].null_resource.b[12]", "data.http.x"},
			[]string{"", "-destroy", "a b", "a;b", "a\n", `a["x`, "a[b]", ".a", "a.", "a.-x"}},
		"variable files": {CheckVarFile, []string{"prod.tfvars", "envs/prod.tfvars.json"},
			[]string{"", "/etc/passwd", "../x", "a/../../x", "-x", "a\x00b"}},
		"lock IDs": {checkLockID, []string{"8c1d3c50-0083-7539-ca3a-5daa9e165a36", "1700000000000"},
			[]string{"", "-force", "a b", "a\n"}},
		"backend configuration": {checkBackendConfig, []string{"bucket=x", "path=a=b", "key="},
			[]string{"", "bucket", "-x=y", "a b=c", "k=a\nb", "../f"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range tt.good {
				if err := tt.check(s); err != nil {
					t.Errorf("check(%q) = %v, want nil", s, err)
				}
			}
			for _, s := range tt.bad {
				if got := fault.Of(tt.check(s)); got != fault.Invalid {
					t.Errorf("check(%q) is of kind %q, want Invalid", s, got)
				}
			}
		})
	}
}

func TestArguments(t *testing.T) {
	plain := func(args []string) func() ([]string, error) {
		return func() ([]string, error) { return args, nil }
	}
	for name, tt := range map[string]struct {
		build func() ([]string, error)
		want  string
	}{
		"init": {func() ([]string, error) {
			return Init(InitOptions{Backend: []string{"a=b"}, Upgrade: true, VarFiles: VarFiles{Files: []string{"x.tfvars"}}})
		},
			"init -input=false -no-color -json -upgrade -backend-config=a=b -var-file=x.tfvars"},
		"workspace": {func() ([]string, error) { return SelectWorkspace("prod") }, "workspace select -no-color -or-create -- prod"},
		"plan": {func() ([]string, error) {
			return Plan(PlanOptions{Out: "p", Destroy: true, Targets: []string{"a.b"}, VarFiles: VarFiles{First: "own.json", Files: []string{"x.tfvars"}, Tree: "../"}, Parallelism: 3, LockTimeout: 90 * time.Second})
		}, "plan -input=false -no-color -json -detailed-exitcode -out=p -destroy -target=a.b -var-file=own.json -var-file=../x.tfvars -parallelism=3 -lock-timeout=1m30s"},
		"apply":              {func() ([]string, error) { return Apply(ApplyOptions{Plan: "-p", NoLock: true}) }, "apply -input=false -no-color -json -lock=false -- -p"},
		"apply that forgets": {func() ([]string, error) { return Apply(ApplyOptions{Plan: "p", Forgets: true}) }, "apply -input=false -no-color -json -suppress-forget-errors -- p"},
		"show":               {plain(ShowJSON("p")), "show -no-color -json -- p"},
		"show as text":       {plain(ShowText("p")), "show -no-color -- p"},
		"output":             {plain(Outputs()), "output -no-color -json"},
		"force-unlock":       {func() ([]string, error) { return ForceUnlock("abc-1") }, "force-unlock -force -no-color -- abc-1"},
		"state pull":         {plain(StatePull()), "state pull"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.build()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, strings.Join(got, " ")); d != "" {
				t.Errorf("arguments differ (-want +got):\n%s", d)
			}
		})
	}
	for name, build := range map[string]func() ([]string, error){
		"a bad target": func() ([]string, error) { return Plan(PlanOptions{Out: "p", Targets: []string{"-x"}}) },
		"a bad var file": func() ([]string, error) {
			return Plan(PlanOptions{Out: "p", VarFiles: VarFiles{Files: []string{"../x"}}})
		},
		"a bad parallelism": func() ([]string, error) { return Apply(ApplyOptions{Plan: "p", Parallelism: -1}) },
		"a bad workspace":   func() ([]string, error) { return SelectWorkspace("--help") },
	} {
		if args, err := build(); fault.Of(err) != fault.Invalid {
			t.Errorf("%s gives %v, %v; want an Invalid error", name, args, err)
		}
	}
}

// FuzzNames shows that no accepted name can be read as an option or hold a
// control character.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"prod", "-x", "a.b[0]", `a.b["c"]`, "x/y.tfvars", "k=v"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, check := range []func(string) error{checkWorkspace, CheckTarget, CheckVarFile, checkLockID, checkBackendConfig} {
			if check(s) == nil && (strings.HasPrefix(s, "-") || strings.ContainsAny(s, "\x00\n\r\x1b")) {
				t.Errorf("%q was accepted", s)
			}
		}
	})
}
