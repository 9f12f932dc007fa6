package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Dashboards are there if they are wanted, each under a name of its own, and gone if they are not.
func TestDashboardsAreInstalledIfWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		set  string
		want []string
	}{
		"by default none":             {"metrics.enabled=true", nil},
		"Terrier, Vault and Flux":     {"metrics.dashboard.enabled=true", []string{"terrier.json", "terrier-flux.json", "terrier-vault.json"}},
		"all":                         {"metrics.dashboard.enabled=true,metrics.dashboard.more.kyuubi=true,metrics.dashboard.more.spark=true", []string{"terrier.json", "terrier-flux.json", "terrier-kyuubi.json", "terrier-spark.json", "terrier-vault.json"}},
		"Terrier alone":               {"metrics.dashboard.enabled=true,metrics.dashboard.more.vault=false,metrics.dashboard.more.flux=false", []string{"terrier.json"}},
		"more without the first is 0": {"metrics.dashboard.more.kyuubi=true", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, o := range objects(t, mustHelm(t, "template", "terrier", chart, "--namespace", "terrier-system", "--set", tt.set)) {
				if o.GetKind() != "ConfigMap" || !strings.Contains(o.GetName(), "-dashboard") {
					continue
				}
				data, _ := o.Object["data"].(map[string]any)
				for file, text := range data {
					got = append(got, file)
					from := "dashboard.json"
					if rest, ok := strings.CutPrefix(file, "terrier-"); ok {
						from = filepath.Join("dashboards", rest)
					}
					if want := read(t, filepath.Join(root, "config", "monitoring", from)); text != want {
						t.Errorf("%s is not %s", file, from)
					}
					if o.GetLabels()["grafana_dashboard"] != "1" {
						t.Errorf("%s has the labels %v, by which Grafana does not find it", file, o.GetLabels())
					}
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("the dashboards are %v, want %v", got, tt.want)
			}
		})
	}
}
